// SPDX-License-Identifier: Apache-2.0
#include "compute/protocol/rest_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include <fmt/compile.h>
#include <fmt/format.h>
#include <simdjson.h>

#include "foundation/base/text.h"

namespace falaj::protocol {
namespace {

namespace ondemand = simdjson::ondemand;
using graph::Element;

constexpr std::size_t kKeptJsonBytesMax = 1 << 20;  // a thread keeps the memory of documents up to this

// What parsing needs: room after the text, and the parser's own memory.
struct Reading {
  std::string text;
  ondemand::parser parser;

  ondemand::document begin(std::string_view json) {
    text.reserve(json.size() + simdjson::SIMDJSON_PADDING);
    text.assign(json);
    return parser.iterate(text.data(), json.size(), text.capacity());
  }
};

template <class T>
T number_of(ondemand::value item, Element element) {
  if constexpr (std::is_floating_point_v<T>) {
    double value = 0;
    if (item.get_double().get(value) == simdjson::SUCCESS) {
      if (std::is_same_v<T, float> && std::fabs(value) > std::numeric_limits<float>::max())
        throw Error(Code::invalid, "a number is too great for FP32");
      return static_cast<T>(value);
    }
    // JSON has no word for these. Python writes them all the same, and null is what others make of them.
    const auto token = trim(item.raw_json_token());
    if (token == "null" || token == "NaN") return std::numeric_limits<T>::quiet_NaN();
    if (token == "Infinity") return std::numeric_limits<T>::infinity();
    if (token == "-Infinity") return -std::numeric_limits<T>::infinity();
    throw Error(Code::invalid, "a value is not a number");
  } else {
    bool flag = false;
    if (element == Element::boolean && item.get_bool().get(flag) == simdjson::SUCCESS) return flag;
    using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    Wide value = 0;
    const T most = element == Element::boolean ? T{1} : std::numeric_limits<T>::max();
    if (item.get(value) != simdjson::SUCCESS || value > static_cast<Wide>(most) ||
        value < static_cast<Wide>(std::numeric_limits<T>::min()))
      throw Error(Code::invalid, fmt::format("a value is no {}", datatype(element)));
    return static_cast<T>(value);
  }
}

// Calls f for each value of arrays in arrays, in order.
template <class F>
void each_value(ondemand::array array, std::size_t depth, F&& f) {
  if (depth == kRankMax) throw Error(Code::invalid, fmt::format("data is nested more than {} deep", kRankMax));
  for (ondemand::value item : array) {
    ondemand::json_type type{};  // none for NaN and Infinity
    if (item.type().get(type) == simdjson::SUCCESS && type == ondemand::json_type::array)
      each_value(item.get_array(), depth + 1, f);
    else
      f(item);
  }
}

[[noreturn]] void refuse_count(const Input& input, std::size_t count) {
  throw Error(Code::invalid, fmt::format("unexpected number of values for input {}: {} holds {}", input.name,
                                         graph::text_of(input.sizes), count));
}

void take_data(Asked& asked, Input& input, ondemand::array data, std::size_t count) {
  std::size_t done = 0;
  if (input.element == Element::text) {
    input.texts.reserve(count);
    each_value(data, 0, [&](ondemand::value item) {
      if (done++ == count) refuse_count(input, count);
      input.texts.emplace_back(std::string_view(item.get_string()));
    });
  } else {
    with_type(input.element, [&](auto zero) {
      using T = decltype(zero);
      Bytes bytes(count * sizeof(T));
      auto* out = reinterpret_cast<T*>(bytes.data());
      each_value(data, 0, [&](ondemand::value item) {
        if (done++ == count) refuse_count(input, count);
        *out++ = number_of<T>(item, input.element);
      });
      input.bytes = bytes;
      asked.owned.push_back(std::move(bytes));  // the bytes themselves stay where they are
    });
  }
  if (done != count) refuse_count(input, count);
}

Parameter parameter_of(std::string_view key, ondemand::value value) {
  switch (value.type()) {
    case ondemand::json_type::boolean:
      return bool(value.get_bool());
    case ondemand::json_type::string:
      return std::string(std::string_view(value.get_string()));
    case ondemand::json_type::number:
      if (std::int64_t whole = 0; value.get_int64().get(whole) == simdjson::SUCCESS) return whole;
      return double(value.get_double());
    default:
      throw Error(Code::invalid, fmt::format("parameter {} is no text, number or boolean", key));
  }
}

// One request, read from front to back.
class Reader {
 public:
  Reader(std::string_view json, BytesView binary) : binary_(binary), json_(json) {}

  Asked read(Reading& reading) {
    auto document = reading.begin(json_);
    text_end_ = reading.text.data() + reading.text.capacity();
    bool inputs = false, outputs = false, parameters = false, id = false;
    for (auto field : document.get_object()) {
      const std::string_view key = field.unescaped_key();
      ondemand::value value = field.value();
      if (key == "inputs") {
        once(inputs, key);
        for (ondemand::object input : value.get_array()) read_input(input);
      } else if (key == "outputs") {
        once(outputs, key);
        for (ondemand::object output : value.get_array()) read_output(output);
      } else if (key == "parameters") {
        once(parameters, key);
        for (auto parameter : value.get_object()) {
          const std::string name(std::string_view(parameter.unescaped_key()));
          take_parameter(asked_, name, parameter_of(name, parameter.value()));
        }
      } else if (key == "id") {
        once(id, key);
        asked_.id = std::string_view(value.get_string());
      }
    }
    if (document.current_location().error() != simdjson::OUT_OF_BOUNDS)
      throw Error(Code::invalid, "something follows the JSON of the request");
    if (!inputs) throw Error(Code::invalid, "the request has no inputs");
    if (!binary_.empty())
      throw Error(Code::invalid, fmt::format("unexpected additional input data: {} bytes", binary_.size()));
    check_names(asked_.ask);
    return std::move(asked_);
  }

  bool all_in_binary() const { return all_in_binary_; }  // numbers, whose sizes are what they take

 private:
  static void once(bool& seen, std::string_view key) {
    if (seen) throw Error(Code::invalid, fmt::format("'{}' is there twice", key));
    seen = true;
  }

  void read_input(ondemand::object object) {
    if (asked_.ask.inputs.size() == kTensorsMax) throw Error(Code::invalid, "too many inputs");
    auto& input = asked_.ask.inputs.emplace_back();
    bool name = false, shape = false, type = false, data = false, parameters = false, taken = false;
    std::optional<std::uint64_t> binary;
    std::string_view postponed;  // data that came before what it is
    for (auto field : object) {
      const std::string_view key = field.unescaped_key();
      ondemand::value value = field.value();
      if (key == "name") {
        once(name, key);
        input.name = std::string_view(value.get_string());
      } else if (key == "shape") {
        once(shape, key);
        for (ondemand::value size : value.get_array()) {
          if (input.sizes.size() == kRankMax) throw Error(Code::invalid, "a shape has too many dimensions");
          input.sizes.push_back(size.get_int64());
        }
      } else if (key == "datatype") {
        once(type, key);
        input.element = parse_datatype(value.get_string());
      } else if (key == "data") {
        once(data, key);
        ondemand::array array = value.get_array();
        if (shape && type && name) {
          take_data(asked_, input, array, count_in_json(input));
          taken = true;
        } else {
          postponed = array.raw_json();
        }
      } else if (key == "parameters") {
        once(parameters, key);
        for (auto parameter : value.get_object()) binary = size_of(input, parameter, binary);
      }
    }
    if (!name || input.name.empty()) throw Error(Code::invalid, "an input has no name");
    if (!shape || !type) throw Error(Code::invalid, fmt::format("input {} needs shape and datatype", input.name));
    if (binary && data) throw Error(Code::invalid, fmt::format("input {} has data and binary data", input.name));
    all_in_binary_ &= binary && input.element != Element::text;
    if (binary) {
      if (*binary > binary_.size())
        throw Error(Code::invalid, fmt::format("unexpected size for input {}: {} bytes are announced, {} came",
                                               input.name, *binary, binary_.size()));
      take_bytes(input, binary_.first(*binary));
      binary_ = binary_.subspan(*binary);
    } else if (data && !taken) {
      take_postponed(input, postponed);
    } else if (!data && count_in_json(input) != 0) {
      throw Error(Code::invalid, fmt::format("input {} has no data", input.name));
    }
  }

  template <class Field>
  static std::optional<std::uint64_t> size_of(const Input& input, Field& parameter,
                                              std::optional<std::uint64_t> binary) {
    const std::string_view key = parameter.unescaped_key();
    if (key == "binary_data_size") return std::uint64_t(parameter.value().get_uint64());
    refuse_shared_memory(key, input.name);
    return binary;
  }

  // Each value takes at least one byte of the JSON and a comma, so no shape makes us reserve more than a few times
  // that.
  std::size_t count_in_json(const Input& input) const {
    try {
      return graph::count_of(input.sizes, json_.size());
    } catch (const Error& error) {
      throw Error(Code::invalid, fmt::format("input {}: {}", input.name, error.what()));
    }
  }

  void take_postponed(Input& input, std::string_view data) {
    ondemand::parser parser;
    auto document = parser.iterate(data.data(), data.size(), static_cast<std::size_t>(text_end_ - data.data()));
    take_data(asked_, input, document.get_array(), count_in_json(input));
  }

  void read_output(ondemand::object object) {
    if (asked_.wishes.size() == kTensorsMax) throw Error(Code::invalid, "too many outputs");
    Wish wish;
    for (auto field : object) {
      const std::string_view key = field.unescaped_key();
      ondemand::value value = field.value();
      if (key == "name") wish.name = std::string_view(value.get_string());
      if (key != "parameters") continue;
      for (auto parameter : value.get_object()) {
        const std::string_view of = parameter.unescaped_key();
        refuse_shared_memory(of, wish.name);
        if (of == "binary_data") wish.binary = parameter.value().get_bool();
        if (of == "classification") {
          const std::uint64_t classes = parameter.value().get_uint64();
          wish.classes = static_cast<std::uint32_t>(std::min<std::uint64_t>(classes, UINT32_MAX));
        }
      }
    }
    if (wish.name.empty()) throw Error(Code::invalid, "an output has no name");
    asked_.ask.outputs.push_back(wish.name);
    asked_.wishes.push_back(std::move(wish));
  }

  Asked asked_;
  BytesView binary_;  // what no input has taken yet
  std::string_view json_;
  const char* text_end_ = nullptr;
  bool all_in_binary_ = true;
};

template <class T>
void append_number(std::string& out, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) {
      out += "null";
      return;
    }
  }
  char text[32];  // the shortest that reads back as the same; twice as fast here as std::to_chars
  out.append(text, fmt::format_to(text, FMT_COMPILE("{}"), value));
}

void append_output(std::string& out, const graph::Tensor& tensor, std::string_view name, bool binary) {
  out += R"({"name":)";
  append_text(out, name);
  out += R"(,"datatype":")";
  out += datatype(tensor.element);
  out += R"(","shape":[)";
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
    if (i > 0) out += ',';
    append_number(out, tensor.sizes[i]);
  }
  out += ']';
  if (binary) {
    out += R"(,"parameters":{"binary_data_size":)";
    append_number(out, binary_size(tensor));
    out += "}}";
  } else {
    out += R"(,"data":)";
    append_values(out, tensor);
    out += '}';
  }
}

void append_parameters(std::string& out, const Parameters& parameters) {
  out += R"("parameters":{)";
  for (const auto& [key, value] : parameters) {
    if (out.back() != '{') out += ',';
    append_text(out, key);
    out += ':';
    if (const auto* flag = std::get_if<bool>(&value))
      out += *flag ? "true" : "false";
    else if (const auto* whole = std::get_if<std::int64_t>(&value))
      append_number(out, *whole);
    else if (const auto* number = std::get_if<double>(&value))
      append_number(out, *number);
    else
      append_text(out, std::get<std::string>(value));
  }
  out += "},";
}

// As encode_answer, with the best classes in place of the values where they are wanted.
Encoded encode_classes(const Asked& asked, const Answer& answer) {
  auto how = asked;
  auto shown = answer;
  for (auto& wish : how.wishes) {
    for (auto& output : shown.outputs)
      if (output.name == wish.name && wish.classes > 0) output.tensor = classify(output.tensor, wish.classes);
    wish.classes = 0;
  }
  return encode_answer(how, shown);
}

// The JSON before binary data says what the data are, not what is in them: a client's next request has the same. What
// was read of it last is kept, and given to those that begin with the same bytes.
struct RememberedHead {
  std::string json;
  Asked asked;
  std::vector<std::uint64_t> sizes;  // of the inputs' data, in order
};
constexpr std::size_t kRememberedBytesMax = 4096;

bool recall(const RememberedHead& head, std::string_view json, BytesView binary, Asked& out) {
  if (head.json != json) return false;
  std::uint64_t sum = 0;
  for (const auto size : head.sizes) sum += size;
  if (sum != binary.size()) return false;  // is refused by whoever reads it
  out = head.asked;
  for (std::size_t i = 0; i < head.sizes.size(); ++i) {
    take_bytes(out.ask.inputs[i], binary.first(head.sizes[i]));
    binary = binary.subspan(head.sizes[i]);
  }
  return true;
}

// Requires: `asked` is what was read of `json`, whose inputs are all binary.
void remember(RememberedHead& head, std::string_view json, const Asked& asked) {
  head.sizes.clear();
  for (const auto& input : asked.ask.inputs) head.sizes.push_back(input.bytes.size());
  head.asked = asked;
  for (auto& input : head.asked.ask.inputs) input.bytes = {};
  head.json = json;
}

}  // namespace

Asked decode_infer(std::string_view body, std::optional<std::uint64_t> json_bytes) {
  if (json_bytes && *json_bytes > body.size())
    throw Error(Code::invalid,
                fmt::format("Inference-Header-Content-Length is {}, the body only {} bytes", *json_bytes, body.size()));
  const auto json = body.substr(0, json_bytes.value_or(body.size()));
  if (json.size() > kJsonBytesMax)
    throw Error(Code::invalid, fmt::format("JSON of more than {} bytes: send tensors as binary data", kJsonBytesMax));
  const auto binary = as_bytes(body.substr(json.size()));
  thread_local RememberedHead remembered;
  const bool worth_it = json_bytes && json.size() <= kRememberedBytesMax;
  if (Asked asked; worth_it && recall(remembered, json, binary, asked)) return asked;
  try {
    Reader reader(json, binary);
    if (json.size() <= kKeptJsonBytesMax) {
      thread_local Reading kept;
      auto asked = reader.read(kept);
      // One with an id of its own will hardly come again.
      if (worth_it && asked.id.empty() && reader.all_in_binary()) remember(remembered, json, asked);
      return asked;
    }
    Reading own;
    return reader.read(own);
  } catch (const simdjson::simdjson_error& error) {
    throw Error(Code::invalid, fmt::format("not the JSON of an inference: {}", error.what()));
  }
}

Asked decode_raw(std::string_view body, const Description& model) {
  if (model.inputs.size() != 1)
    throw Error(Code::invalid, fmt::format("a body of nothing but data needs a model with one input; this has {}",
                                           model.inputs.size()));
  const auto& port = model.inputs[0];
  Asked asked;
  asked.binary_default = true;
  auto& input = asked.ask.inputs.emplace_back();
  input.name = port.name;
  input.element = port.element;
  std::size_t open = SIZE_MAX, known = 1;  // which size the number of bytes decides
  for (std::size_t i = 0; i < port.shape.size(); ++i) {
    const auto* size = std::get_if<std::int64_t>(&port.shape[i]);
    input.sizes.push_back(size ? *size : 1);
    if (i == 0 && model.rows_first) {
      input.sizes[0] = 1;
    } else if (size) {
      known *= static_cast<std::size_t>(*size);
    } else {
      if (open != SIZE_MAX)
        throw Error(Code::invalid, "a body of nothing but data needs an input with at most one size that varies");
      open = i;
    }
  }
  if (port.element == Element::text) {  // the one text is the body as it is
    if (known != 1) throw Error(Code::invalid, "a body of nothing but data can be one BYTES element only");
    input.texts.emplace_back(body);
    return asked;
  }
  if (open != SIZE_MAX && known > 0)
    input.sizes[open] = static_cast<std::int64_t>(body.size() / (known * graph::bytes_of(port.element)));
  take_bytes(input, as_bytes(body));
  return asked;
}

Encoded encode_answer(const Asked& asked, const Answer& answer) {
  const auto wish_for = [&](const Output& output) -> const Wish* {
    const Wish* found = nullptr;
    for (const auto& each : asked.wishes)
      if (each.name == output.name) found = &each;
    return found;
  };
  for (const auto& wish : asked.wishes)
    if (wish.classes > 0) return encode_classes(asked, answer);
  const auto is_binary = [&](const Output& output) {
    const auto* wish = wish_for(output);
    return wish ? wish->binary : asked.binary_default;
  };
  std::size_t bytes = 256 + answer.model.size() + asked.id.size(), in_binary = 0;
  for (const auto& output : answer.outputs) {
    const auto size = binary_size(output.tensor);
    const bool binary = is_binary(output);
    if (binary) in_binary += size;
    bytes += 128 + output.name.size() + (binary ? size : size * 3);
  }
  Encoded encoded;
  auto& out = encoded.body;
  out.reserve(bytes);
  out += '{';
  if (!asked.id.empty()) {
    out += R"("id":)";
    append_text(out, asked.id);
    out += ',';
  }
  out += R"("model_name":)";
  append_text(out, answer.model);
  out += R"(,"model_version":)";
  append_text(out, answer.version);
  out += ',';
  if (!answer.parameters.empty()) append_parameters(out, answer.parameters);
  out += R"("outputs":[)";
  for (const auto& output : answer.outputs) {
    if (out.back() != '[') out += ',';
    append_output(out, output.tensor, output.name, is_binary(output));
  }
  out += "]}";
  if (in_binary == 0) return encoded;
  encoded.json_bytes = out.size();
  for (const auto& output : answer.outputs) {
    const auto& tensor = output.tensor;
    if (!is_binary(output)) continue;
    if (tensor.element == Element::text) {
      const auto before = out.size();
      out.resize(before + framed_size(tensor.texts));
      frame(tensor.texts, reinterpret_cast<std::byte*>(out.data() + before));
    } else {
      out.append(as_text(tensor.bytes));
    }
  }
  return encoded;
}

void append_text(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  std::size_t from = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text.substr(from, i - from));
    from = i + 1;
    if (c == '"' || c == '\\')
      (out += '\\') += static_cast<char>(c);
    else
      ((out += "\\u00") += kHex[c >> 4]) += kHex[c & 15];
  }
  out.append(text.substr(from)) += '"';
}

void append_values(std::string& out, const graph::Tensor& tensor) {
  out += '[';
  if (tensor.element == Element::text) {
    for (const auto& text : tensor.texts) {
      if (!is_utf8(text)) throw Error(Code::invalid, "an output is no UTF-8, which JSON needs: ask for binary data");
      if (out.back() != '[') out += ',';
      append_text(out, text);
    }
  } else {
    with_type(tensor.element, [&](auto zero) {
      using T = decltype(zero);
      const auto* values = reinterpret_cast<const T*>(tensor.bytes.data());
      const auto count = tensor.bytes.size() / sizeof(T);
      for (std::size_t i = 0; i < count; ++i) {
        if (i > 0) out += ',';
        if (tensor.element == Element::boolean)
          out += values[i] ? "true" : "false";
        else
          append_number(out, values[i]);
      }
    });
  }
  out += ']';
}

}  // namespace falaj::protocol
