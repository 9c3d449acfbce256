// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/log_lines.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "compute/protocol/rest_codec.h"
#include "compute/protocol/tensors.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/traffic/prediction.h"

namespace falaj::serve {
namespace {

using graph::Element;

constexpr std::string_view kKey = "key";
constexpr std::string_view kMasked = "***";

// ---- columns

// A feature of people that nobody may be shown is not written down either, unless it is said how it is hidden.
bool is_personal(const traffic::Endpoint& endpoint, const std::string& name) {
  if (!endpoint.features) return false;
  for (const auto& view : endpoint.features->views)
    if (view.personal && std::find(view.features.begin(), view.features.end(), name) != view.features.end())
      return true;
  return false;
}

// Of one value in a dataset; "" for those that have no type there.
std::string_view type_of(Element element) {
  switch (element) {
    case Element::float32:
    case Element::float64:
    case Element::uint64:  // beyond what int64 holds
      return "float64";
    case Element::boolean:
      return "boolean";
    case Element::text:
      return "text";
    case Element::float16:
    case Element::bfloat16:
      return "";
    default:
      return "int64";
  }
}

bool is_number(std::string_view type) { return type == "float64" || type == "int64"; }

bool has_one_value(const graph::Port& port, bool rows_first) {
  for (std::size_t i = rows_first ? 1 : 0; i < port.shape.size(); ++i) {
    const auto* size = std::get_if<std::int64_t>(&port.shape[i]);
    if (!size || *size != 1) return false;
  }
  return true;
}

void add_column(std::vector<LogColumn>& columns, LogColumn column) {
  const auto same = [&](const LogColumn& c) { return c.name == column.name; };
  const auto found = std::find_if(columns.begin(), columns.end(), same);
  if (found == columns.end())
    columns.push_back(std::move(column));
  else if (found->type != column.type)  // variants that do not agree
    found->type = is_number(found->type) && is_number(column.type) ? "float64" : "text";
}

void add_cells(LogLayout& layout, LogLayout::OfVariant& variant, std::span<const graph::Port> ports, bool output,
               bool rows_first, const traffic::Endpoint& endpoint) {
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const auto& port = ports[i];
    const auto hide = hide_of(endpoint, port.name);
    if (hide == Hide::drop || type_of(port.element).empty() || !is_utf8(port.name)) continue;
    LogLayout::Cell cell;
    cell.name = port.name;
    cell.place = static_cast<std::uint16_t>(i);
    cell.output = output;
    cell.list = !has_one_value(port, rows_first);
    cell.element = port.element;
    cell.hide = hide;
    const auto column = (output ? "out_" : "in_") + port.name;
    cell.key = ",";
    protocol::append_text(cell.key, column);
    cell.key += ':';
    add_column(layout.columns, {column, cell.list || hide == Hide::hash ? "text" : std::string(type_of(port.element))});
    variant.cells.push_back(std::move(cell));
  }
}

// A column whose name nobody has is most likely a slip of the pen, and what it was to hide would be written.
std::string unknown_columns(const ServedEndpoint& endpoint, const LogLayout& layout) {
  if (endpoint.variants.empty()) return "";
  std::set<std::string, std::less<>> known{std::string(kKey), layout.key_header};
  for (const auto& variant : endpoint.variants) {
    for (const auto& port : variant.held->inputs) known.insert(port.name);
    for (const auto& port : variant.held->outputs) known.insert(port.name);
  }
  for (const auto& [name, hide] : endpoint.plan.log->columns)
    if (!known.contains(name))
      return fmt::format("nothing is logged: log.columns.{}: no variant has such an input or output", name);
  return "";
}

// ---- values

// Reads what Kept::pack wrote.
class Unpacking {
 public:
  explicit Unpacking(std::string_view from) : left_(from) {}
  std::uint64_t number() {
    std::uint64_t out = 0;
    std::memcpy(&out, left_.data(), sizeof out);
    left_.remove_prefix(sizeof out);
    return out;
  }
  std::string_view bytes() {
    const auto size = number();
    const auto out = left_.substr(0, size);
    left_.remove_prefix(size);
    return out;
  }

 private:
  std::string_view left_;
};

struct Values {
  std::string_view numbers;
  std::vector<std::string_view> texts;
  std::size_t count = 0;
};

Values unpack(Unpacking& from, Element element) {
  Values out;
  if (element == Element::text) {
    out.texts.resize(from.number());
    for (auto& text : out.texts) text = from.bytes();
    out.count = out.texts.size();
  } else {
    out.numbers = from.bytes();
    out.count = out.numbers.size() / graph::bytes_of(element);
  }
  return out;
}

template <class T>
void append_number(std::string& to, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) {
      to += "null";
      return;
    }
  }
  char text[40];
  to.append(text, std::to_chars(text, text + sizeof text, value).ptr);
}

void append_value(std::string& to, Element element, const Values& values, std::size_t at) {
  if (element == Element::text) {
    const auto text = values.texts[at];
    return protocol::append_text(to, is_utf8(text) ? std::string(text) : "base64:" + to_base64(as_bytes(text)));
  }
  if (element == Element::boolean) {
    to += values.numbers[at] != 0 ? "true" : "false";
    return;
  }
  protocol::with_type(element, [&](auto like) {
    std::memcpy(&like, values.numbers.data() + at * sizeof like, sizeof like);
    append_number(to, like);
  });
}

std::string hashed(std::string_view salt, std::string_view name, std::string_view value) {
  const std::string_view end("\0", 1);
  return crypto::sha256({as_bytes(salt), as_bytes(end), as_bytes(name), as_bytes(end), as_bytes(value)})
      .hex()
      .substr(0, 32);
}

void append_hidden(std::string& to, Hide hide, std::string_view salt, std::string_view name, const std::string& value,
                   bool text) {
  if (hide == Hide::hash)
    protocol::append_text(to, hashed(salt, name, value));
  else if (text)
    protocol::append_text(to, kMasked);
  else
    to += "null";
}

void append_cell(std::string& to, const LogLayout::Cell& cell, const Values& values, const Kept& kept,
                 std::size_t row) {
  to += cell.key;
  const auto width = values.count / kept.rows;
  if (width == 0 || (width != 1 && !cell.list)) {
    to += "null";
    return;
  }
  if (!cell.list && cell.hide == Hide::nothing) return append_value(to, cell.element, values, row);
  std::string value;
  if (cell.list) value += '[';
  for (std::size_t i = 0; i < width; ++i) {
    if (i > 0) value += ',';
    append_value(value, cell.element, values, row * width + i);
  }
  if (cell.list) value += ']';
  if (cell.hide != Hide::nothing)
    append_hidden(to, cell.hide, kept.endpoint->plan.salt, cell.name, value,
                  cell.list || cell.element == Element::text);
  else
    protocol::append_text(to, value);
}

void append_key(std::string& to, const LogLayout& layout, const Kept& kept) {
  if (layout.key_header.empty() || layout.hide_key == Hide::drop) return;
  to += R"(,"key":)";
  if (kept.key.empty())
    to += "null";
  else if (layout.hide_key != Hide::nothing)
    append_hidden(to, layout.hide_key, kept.endpoint->plan.salt, kKey, kept.key, true);
  else
    protocol::append_text(to, is_utf8(kept.key) ? kept.key : "base64:" + to_base64(as_bytes(kept.key)));
}

// Which features were looked up: the service and its views by revision, and how new what was found is. Of people not
// even that.
void append_features(std::string& to, const Kept& kept, std::size_t row) {
  const auto& features = kept.endpoint->plan.features;
  if (!features) return;
  to += R"(,"features":)";
  if (kept.feature_times.size() != kept.rows * features->views.size()) {
    to += "null";
    return;
  }
  json::object views{{"service", fmt::format("{}@{}", features->service, features->revision)}};
  for (std::size_t v = 0; v < features->views.size(); ++v) {
    const auto& view = features->views[v];
    const auto at = kept.feature_times[row * features->views.size() + v];
    views[fmt::format("{}@{}", view.name, view.revision)] =
        at == 0 || view.personal ? json::value(nullptr) : json::value(format_time(at));
  }
  protocol::append_text(to, json::serialize(views));
}

void pack_one(std::string& to, const infer::TensorView& tensor) {
  const auto number = [&](std::uint64_t value) { to.append(reinterpret_cast<const char*>(&value), sizeof value); };
  if (tensor.element != Element::text) {
    number(tensor.bytes.size());
    to += as_text(tensor.bytes);
    return;
  }
  number(tensor.texts.size());
  for (const auto text : tensor.texts) {
    number(text.size());
    to += text;
  }
}

}  // namespace

Hide hide_of(const traffic::Endpoint& endpoint, const std::string& name) {
  if (endpoint.log)
    if (const auto found = endpoint.log->columns.find(name); found != endpoint.log->columns.end())
      return found->second == "mask" ? Hide::mask : found->second == "drop" ? Hide::drop : Hide::hash;
  return is_personal(endpoint, name) ? Hide::drop : Hide::nothing;
}

LogLayout layout_of(const ServedEndpoint& endpoint) {
  LogLayout out;
  if (const std::string_view sticky = endpoint.plan.sticky; sticky.starts_with("header:"))
    out.key_header = sticky.substr(7);
  out.hide_key = hide_of(endpoint.plan, std::string(kKey));
  if (out.hide_key == Hide::nothing && !out.key_header.empty()) out.hide_key = hide_of(endpoint.plan, out.key_header);
  out.columns = {{"prediction_id", "text"}, {"time", "timestamp"}, {"variant", "text"},
                 {"version", "int64"},      {"revision", "int64"}, {"latency_us", "int64"}};
  if (!out.key_header.empty() && out.hide_key != Hide::drop) out.columns.push_back({std::string(kKey), "text"});
  if (endpoint.plan.features) out.columns.push_back({"features", "text"});
  const auto own = out.columns.size();
  for (const auto& variant : endpoint.variants) {
    const auto& held = *variant.held;
    auto& cells = out.variants.emplace_back();
    add_cells(out, cells, held.inputs, false, held.rows_first, endpoint.plan);
    add_cells(out, cells, held.outputs, true, held.rows_first, endpoint.plan);
  }
  for (auto& variant : out.variants)
    for (std::size_t i = own; i < out.columns.size(); ++i) {
      std::string key = ",";
      protocol::append_text(key, out.columns[i].name);
      key += ':';
      const auto same = [&](const LogLayout::Cell& cell) { return cell.key == key; };
      if (std::none_of(variant.cells.begin(), variant.cells.end(), same)) variant.nulls += key + "null";
    }
  out.problem = unknown_columns(endpoint, out);
  return out;
}

void Kept::pack(std::span<const infer::TensorView> inputs, std::span<const infer::TensorView> outputs) {
  std::size_t bytes = 0;
  for (const auto& list : {inputs, outputs})
    for (const auto& tensor : list) {
      bytes += sizeof(std::uint64_t) + tensor.bytes.size();
      for (const auto text : tensor.texts) bytes += sizeof(std::uint64_t) + text.size();
    }
  packed.reserve(bytes);
  for (const auto& tensor : inputs) pack_one(packed, tensor);
  for (const auto& tensor : outputs) pack_one(packed, tensor);
}

std::size_t append_lines(std::string& to, const Kept& kept) {
  const auto& layout = *kept.endpoint->log;
  const auto& variant = *kept.variant;
  const auto& shown = layout.variants[static_cast<std::size_t>(kept.variant - kept.endpoint->variants.data())];
  const auto& held = *variant.held;
  Unpacking from(kept.packed);
  std::vector<Values> inputs, outputs(held.outputs.size());
  for (const auto& port : held.inputs) inputs.push_back(unpack(from, port.element));
  for (std::size_t i = 0; i < (kept.wanted.empty() ? outputs.size() : kept.wanted.size()); ++i) {
    const auto place = kept.wanted.empty() ? i : kept.wanted[i];
    outputs[place] = unpack(from, held.outputs[place].element);
  }
  traffic::PredictionName name{kept.id, variant.plan.name, variant.plan.version, kept.endpoint->plan.revision, 0};
  const auto time = format_time(kept.at_us);
  std::size_t too_long = 0;
  for (std::size_t row = 0; row < kept.rows; ++row) {
    const auto begin = to.size();
    name.row = static_cast<std::int64_t>(row);
    fmt::format_to(std::back_inserter(to),
                   R"({{"prediction_id":"{}","time":"{}","variant":"{}","version":{},"revision":{},"latency_us":{})",
                   format_prediction(name), time, name.variant, name.version, name.revision, kept.took_us);
    append_key(to, layout, kept);
    append_features(to, kept, row);
    for (const auto& cell : shown.cells)
      append_cell(to, cell, cell.output ? outputs[cell.place] : inputs[cell.place], kept, row);
    to += shown.nulls;
    to += "}\n";
    if (to.size() - begin <= kLogLineMax) continue;
    to.resize(begin);
    ++too_long;
  }
  return too_long;
}

}  // namespace falaj::serve
