// SPDX-License-Identifier: Apache-2.0
// A body that we accept as an inference holds together: tensors have the bytes that their shapes say, and the answer
// that repeats them is JSON, which another parser (Boost's) reads, and says the same when it is read back.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "compute/protocol/rest_codec.h"

namespace falaj::protocol {
namespace {

graph::Tensor copied(const Input& input) {
  return {input.element, input.sizes, Bytes(input.bytes.begin(), input.bytes.end()), input.texts};
}

void check(const Asked& asked) {
  CHECK(!asked.ask.inputs.empty() && asked.ask.inputs.size() <= kTensorsMax, "a number of inputs");
  CHECK(asked.wishes.size() == asked.ask.outputs.size(), "a wish for each output");
  for (const auto& input : asked.ask.inputs) {
    CHECK(!input.name.empty() && input.sizes.size() <= kRankMax, "a name and a shape");
    const auto count = graph::count_of(input.sizes);
    if (input.element == graph::Element::text)
      CHECK(input.texts.size() == count && input.bytes.empty(), "as many texts as the shape says");
    else
      CHECK(input.bytes.size() == count * graph::bytes_of(input.element) && input.texts.empty(), "as many bytes");
    unsigned sum = 0;  // every byte can be read
    for (const auto byte : input.bytes) sum += static_cast<unsigned>(byte);
    if (input.element == graph::Element::boolean) CHECK(sum <= count, "booleans are 0 or 1");
  }
}

void repeat(const Asked& asked, bool binary) {
  Answer answer{"m", "1", {}, asked.ask.parameters};
  for (const auto& input : asked.ask.inputs) answer.outputs.push_back({input.name, copied(input)});
  const auto outputs = answer.outputs;
  Asked how;
  how.id = asked.id;
  how.binary_default = binary;
  Encoded encoded;
  try {
    encoded = encode_answer(how, std::move(answer));
  } catch (const Error&) {
    CHECK(!binary, "binary data can say everything");
    return;
  }
  const auto json = encoded.body.substr(0, encoded.json_bytes.value_or(encoded.body.size()));
  auto read = parse_json(json).as_object();
  if (read.at("outputs").as_array().empty()) return;
  auto tensors = std::move(read.at("outputs"));
  read["inputs"] = std::move(tensors);
  read.erase("outputs");
  read.erase("parameters");
  auto body = json::serialize(read);
  const auto json_bytes = body.size();
  body += encoded.body.substr(json.size());
  const auto again = decode_infer(body, json_bytes);
  CHECK(again.ask.inputs.size() == outputs.size() && again.id == asked.id, "another answer");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& before = outputs[i].tensor;
    const auto after = copied(again.ask.inputs[i]);
    CHECK(after.element == before.element && after.sizes == before.sizes && after.texts == before.texts,
          "another tensor");
    // JSON knows no NaN but one, and no infinity.
    const bool floating = before.element == graph::Element::float32 || before.element == graph::Element::float64;
    if (binary || !floating) CHECK(after.bytes == before.bytes, "other values");
  }
}

}  // namespace
}  // namespace falaj::protocol

// Two bytes of how long the JSON is, of which 65535 stands for all of it; then the body.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace falaj;
  using namespace falaj::protocol;
  if (size < 2) return 0;
  const std::size_t length = data[0] | data[1] << 8;
  const std::string body(reinterpret_cast<const char*>(data + 2), size - 2);
  try {
    const auto asked =
        decode_infer(body, length == 65535 ? std::nullopt : std::optional<std::uint64_t>(length % (body.size() + 2)));
    check(asked);
    repeat(asked, true);
    repeat(asked, false);
  } catch (const Error& error) {
    CHECK(error.code() == Code::invalid, "another error than of the input");
  }
  return 0;
}
