// SPDX-License-Identifier: Apache-2.0
#include "compute/protocol/grpc_codec.h"

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "compute/protocol/wire.h"
#include "foundation/base/text.h"

namespace falaj::protocol {
namespace {

using graph::Element;

// An input as it stands in the message: its values come behind what says what they are, or behind all inputs.
struct Sent {
  Input input;
  std::vector<BytesView> contents;  // one, unless the sender split the message
};

void expect(const WireReader& in, Wire wire) {
  if (!in.is(wire)) throw Error(Code::invalid, fmt::format("field {} of the message is not of its type", in.field()));
}

BytesView part(WireReader& in) {
  expect(in, Wire::length);
  return in.bytes();
}

std::string text_of(WireReader& in) {
  expect(in, Wire::length);
  return in.text();
}

Parameter read_parameter(std::string_view key, BytesView message) {
  WireReader in(message);
  std::optional<Parameter> value;
  while (in.next()) {
    if (in.field() == 1 && in.is(Wire::varint)) {
      value = in.varint() != 0;
    } else if (in.field() == 2 && in.is(Wire::varint)) {
      value = static_cast<std::int64_t>(in.varint());
    } else if (in.field() == 3 && in.is(Wire::length)) {
      value = in.text();
    } else if (in.field() == 4 && in.is(Wire::fixed64)) {
      value = in.fixed<double>();
    } else if (in.field() == 5 && in.is(Wire::varint)) {
      const auto number = in.varint();
      if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        throw Error(Code::invalid, fmt::format("parameter {} is too great", key));
      value = static_cast<std::int64_t>(number);
    } else {
      in.skip();
    }
  }
  if (!value) throw Error(Code::invalid, fmt::format("parameter {} has no value", key));
  return std::move(*value);
}

// An entry of map<string, InferParameter>.
std::pair<std::string, Parameter> read_entry(WireReader& from) {
  WireReader in(part(from));
  std::string key;
  BytesView value;
  while (in.next()) {
    if (in.field() == 1)
      key = text_of(in);
    else if (in.field() == 2)
      value = part(in);
    else
      in.skip();
  }
  auto parameter = read_parameter(key, value);
  return {std::move(key), std::move(parameter)};
}

void read_shape(WireReader& in, graph::Sizes& sizes) {
  const auto add = [&](std::uint64_t size) {
    if (sizes.size() == kRankMax) throw Error(Code::invalid, "a shape has too many dimensions");
    sizes.push_back(static_cast<std::int64_t>(size));
  };
  if (in.is(Wire::varint)) return add(in.varint());
  for (WireReader packed(part(in)); !packed.empty();) add(packed.varint());
}

Sent read_input(BytesView message) {
  Sent sent;
  std::string type;
  for (WireReader in(message); in.next();) {
    switch (in.field()) {
      case 1:
        sent.input.name = text_of(in);
        break;
      case 2:
        type = text_of(in);
        break;
      case 3:
        read_shape(in, sent.input.sizes);
        break;
      case 4:
        refuse_shared_memory(read_entry(in).first, sent.input.name);
        break;
      case 5:
        sent.contents.push_back(part(in));
        break;
      default:
        in.skip();
    }
  }
  if (sent.input.name.empty()) throw Error(Code::invalid, "an input has no name");
  sent.input.element = parse_datatype(type);
  return sent;
}

Wish read_wish(BytesView message) {
  Wish wish;
  for (WireReader in(message); in.next();) {
    if (in.field() == 1) {
      wish.name = text_of(in);
    } else if (in.field() == 2) {
      const auto [key, value] = read_entry(in);
      refuse_shared_memory(key, wish.name);
      if (key != "classification") continue;
      const auto* classes = std::get_if<std::int64_t>(&value);
      if (!classes || *classes < 0 || *classes > UINT32_MAX)
        throw Error(Code::invalid, "parameter classification is a number of classes");
      wish.classes = static_cast<std::uint32_t>(*classes);
    } else {
      in.skip();
    }
  }
  if (wish.name.empty()) throw Error(Code::invalid, "an output has no name");
  return wish;
}

// Which list of InferTensorContents holds values of this type; 0: none.
std::uint32_t list_of(Element element) {
  switch (element) {
    case Element::boolean:
      return 1;
    case Element::int8:
    case Element::int16:
    case Element::int32:
      return 2;
    case Element::int64:
      return 3;
    case Element::uint8:
    case Element::uint16:
    case Element::uint32:
      return 4;
    case Element::uint64:
      return 5;
    case Element::float32:
      return 6;
    case Element::float64:
      return 7;
    case Element::text:
      return 8;
    case Element::float16:
    case Element::bfloat16:
      break;
  }
  return 0;
}

// One value from the list that holds numbers of up to 32 bits, or from a wider one.
template <class T>
T read_number(WireReader& in, const Input& input) {
  if constexpr (std::is_floating_point_v<T>) {
    return in.fixed<T>();
  } else {
    const auto varint = in.varint();
    if (input.element == Element::boolean) return varint != 0;
    if constexpr (sizeof(T) == 8) return static_cast<T>(varint);
    using Sent32 = std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>;
    const auto number = static_cast<Sent32>(varint);
    if (number < static_cast<Sent32>(std::numeric_limits<T>::min()) ||
        number > static_cast<Sent32>(std::numeric_limits<T>::max()))
      throw Error(Code::invalid, fmt::format("input {}: {} is no {}", input.name, number, datatype(input.element)));
    return static_cast<T>(number);
  }
}

void take_contents(Asked& asked, Input& input, const std::vector<BytesView>& contents, std::size_t most) {
  const auto list = list_of(input.element);
  if (list == 0 && !contents.empty())
    throw Error(Code::invalid,
                fmt::format("input {}: {} only as raw_input_contents", input.name, datatype(input.element)));
  const auto count = graph::count_of(input.sizes, most);
  Bytes values;
  std::size_t done = 0;
  const auto one_more = [&] {
    if (done++ == count)
      throw Error(Code::invalid, fmt::format("unexpected number of values for input {}: {} holds {}", input.name,
                                             graph::text_of(input.sizes), count));
  };
  const auto read = [&](WireReader& in) {
    if (in.field() != list)
      throw Error(Code::invalid,
                  fmt::format("input {}: its values are not in the list of {}", input.name, datatype(input.element)));
    if (input.element == Element::text) {
      one_more();
      input.texts.emplace_back(as_text(part(in)));
      return;
    }
    with_type(input.element, [&](auto zero) {
      using T = decltype(zero);
      const auto add = [&](WireReader& from) {
        one_more();
        const auto value = read_number<T>(from, input);
        const auto of_value = std::as_bytes(std::span(&value, 1));
        values.insert(values.end(), of_value.begin(), of_value.end());
      };
      if (!in.is(Wire::length)) {
        expect(in, std::is_same_v<T, float> ? Wire::fixed32 : std::is_same_v<T, double> ? Wire::fixed64 : Wire::varint);
        return add(in);
      }
      values.reserve(count * sizeof(T));
      for (WireReader packed(in.bytes()); !packed.empty();) add(packed);
    });
  };
  for (const auto& message : contents)
    for (WireReader in(message); in.next();) read(in);
  if (done != count)
    throw Error(Code::invalid, fmt::format("unexpected number of values for input {}: {} came, {} holds {}", input.name,
                                           done, graph::text_of(input.sizes), count));
  asked.owned.push_back(std::move(values));
  input.bytes = asked.owned.back();
}

void write_parameter(WireWriter& out, std::uint32_t field, std::string_view key, const Parameter& value) {
  std::string parameter;
  WireWriter in(parameter);
  if (const auto* flag = std::get_if<bool>(&value)) {
    in.tag(1, Wire::varint), in.varint(*flag);
  } else if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    in.tag(2, Wire::varint), in.varint(static_cast<std::uint64_t>(*whole));
  } else if (const auto* number = std::get_if<double>(&value)) {
    in.tag(4, Wire::fixed64);
    const auto bits = std::bit_cast<std::uint64_t>(*number);
    for (int i = 0; i < 8; ++i) parameter += static_cast<char>(bits >> (8 * i));
  } else {
    in.bytes(3, std::get<std::string>(value));
  }
  std::string entry;
  WireWriter of_entry(entry);
  of_entry.bytes(1, key);
  of_entry.bytes(2, parameter);
  out.bytes(field, entry);
}

void write_output(WireWriter& out, std::string_view name, const graph::Tensor& tensor) {
  std::string about, shape;
  for (const auto size : tensor.sizes) WireWriter(shape).varint(static_cast<std::uint64_t>(size));
  WireWriter in(about);
  in.text(1, name);
  in.text(2, datatype(tensor.element));
  if (!shape.empty()) in.bytes(3, shape);
  out.bytes(5, about);
}

constexpr std::uint32_t kRawOutput = 6;

}  // namespace

Asked decode_model_infer(BytesView message) {
  Asked asked;
  std::vector<Sent> sent;
  std::vector<BytesView> raw;
  for (WireReader in(message); in.next();) {
    switch (in.field()) {
      case 1:
        asked.ask.model = text_of(in);
        break;
      case 2:
        asked.ask.version = text_of(in);
        break;
      case 3:
        asked.id = text_of(in);
        break;
      case 4: {
        auto [key, value] = read_entry(in);
        take_parameter(asked, key, std::move(value));
        break;
      }
      case 5:
        if (sent.size() == kTensorsMax) throw Error(Code::invalid, "too many inputs");
        sent.push_back(read_input(part(in)));
        break;
      case 6:
        if (asked.wishes.size() == kTensorsMax) throw Error(Code::invalid, "too many outputs");
        asked.wishes.push_back(read_wish(part(in)));
        asked.ask.outputs.push_back(asked.wishes.back().name);
        break;
      case 7:
        if (raw.size() == kTensorsMax) throw Error(Code::invalid, "too many raw inputs");
        raw.push_back(part(in));
        break;
      default:
        in.skip();
    }
  }
  if (!raw.empty() && raw.size() != sent.size())
    throw Error(Code::invalid, fmt::format("there are {} inputs and {} raw_input_contents", sent.size(), raw.size()));
  for (std::size_t i = 0; i < sent.size(); ++i) {
    auto& [input, contents] = sent[i];
    if (!raw.empty() && !contents.empty())
      throw Error(Code::invalid, fmt::format("input {} has contents, and there are raw_input_contents", input.name));
    if (raw.empty())
      take_contents(asked, input, contents, message.size());
    else
      take_bytes(input, raw[i]);
    asked.ask.inputs.push_back(std::move(input));
  }
  check_names(asked.ask);
  return asked;
}

EncodedInfer::EncodedInfer(const Asked& asked, Answer answer, bool streamed) {
  WireWriter out(head_);
  out.text(1, answer.model);
  out.text(2, answer.version);
  out.text(3, asked.id);
  for (const auto& [key, value] : answer.parameters) write_parameter(out, 4, key, value);
  if (streamed) write_parameter(out, 4, "triton_final_response", true);
  tensors_.reserve(answer.outputs.size());
  for (auto& output : answer.outputs) {
    std::uint32_t classes = 0;
    for (const auto& wish : asked.wishes)
      if (wish.name == output.name) classes = wish.classes;
    tensors_.push_back(classes > 0 ? classify(output.tensor, classes) : std::move(output.tensor));
    write_output(out, output.name, tensors_.back());
  }
  size_ = head_.size();
  for (const auto& tensor : tensors_) {
    const auto size = binary_size(tensor);
    size_ += 1 + varint_size(size) + size;
  }
  if (!streamed) return;
  std::string around;
  WireWriter stream(around);
  stream.tag(2, Wire::length), stream.varint(size_);
  size_ += around.size();
  head_.insert(0, around);
}

void EncodedInfer::write(std::byte* out) const {
  std::memcpy(out, head_.data(), head_.size());
  out += head_.size();
  std::string before;
  for (const auto& tensor : tensors_) {
    before.clear();
    WireWriter writer(before);
    writer.tag(kRawOutput, Wire::length), writer.varint(binary_size(tensor));
    std::memcpy(out, before.data(), before.size());
    out = write_binary(tensor, out + before.size());
  }
}

std::string encode_stream_failure(std::string_view model, std::string_view version, std::string_view id,
                                  std::string_view why) {
  std::string response, out;
  WireWriter in(response);
  in.text(1, model);
  in.text(2, version);
  in.text(3, id);
  write_parameter(in, 4, "triton_final_response", true);
  WireWriter around(out);
  around.text(1, why.empty() || !is_utf8(why) ? "the request failed" : why);  // a cut text may end within a character
  around.bytes(2, response);
  return out;
}

}  // namespace falaj::protocol
