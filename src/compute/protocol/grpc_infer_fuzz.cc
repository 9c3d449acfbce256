// SPDX-License-Identifier: Apache-2.0
// A message that we accept is one that protocol buffers' own parser accepts, and means the same to it.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include <inference.pb.h>

#include "compute/protocol/grpc_codec.h"

namespace falaj::protocol {
namespace {

void compare(const Asked& ours, const inference::ModelInferRequest& theirs) {
  CHECK(ours.ask.model == theirs.model_name() && ours.ask.version == theirs.model_version() && ours.id == theirs.id(),
        "other texts");
  CHECK(ours.ask.inputs.size() == static_cast<std::size_t>(theirs.inputs_size()), "other inputs");
  CHECK(ours.ask.outputs.size() == static_cast<std::size_t>(theirs.outputs_size()), "other outputs");
  for (int i = 0; i < theirs.inputs_size(); ++i) {
    const auto& input = ours.ask.inputs[static_cast<std::size_t>(i)];
    const auto& other = theirs.inputs(i);
    CHECK(input.name == other.name() && datatype(input.element) == other.datatype(), "another input");
    CHECK(input.sizes == graph::Sizes(other.shape().begin(), other.shape().end()), "another shape");
    const auto count = graph::count_of(input.sizes);
    if (input.element == graph::Element::text)
      CHECK(input.texts.size() == count, "as many texts as the shape says");
    else
      CHECK(input.bytes.size() == count * graph::bytes_of(input.element), "as many bytes as the shape says");
    if (theirs.raw_input_contents_size() > 0 && input.element != graph::Element::text)
      CHECK(as_text(input.bytes) == theirs.raw_input_contents(i), "other bytes");
    const auto& floats = other.contents().fp32_contents();
    if (theirs.raw_input_contents_size() == 0 && input.element == graph::Element::float32)
      CHECK(static_cast<std::size_t>(floats.size()) == count &&
                (count == 0 || std::memcmp(floats.data(), input.bytes.data(), input.bytes.size()) == 0),
            "other values");
    if (theirs.raw_input_contents_size() == 0 && input.element == graph::Element::int64)
      CHECK(count == 0 ||
                std::memcmp(other.contents().int64_contents().data(), input.bytes.data(), input.bytes.size()) == 0,
            "other values");
  }
}

}  // namespace
}  // namespace falaj::protocol

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace falaj;
  using namespace falaj::protocol;
  const BytesView message = std::as_bytes(std::span(data, size));
  try {
    const auto ours = decode_model_infer(message);
    ::inference::ModelInferRequest theirs;
    CHECK(theirs.ParseFromArray(data, static_cast<int>(size)), "protocol buffers refuse what we accept");
    compare(ours, theirs);
  } catch (const Error& error) {
    CHECK(error.code() == Code::invalid, "another error than of the input");
  }
  return 0;
}
