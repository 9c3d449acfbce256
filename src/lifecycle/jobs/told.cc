// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/told.h"

#include <optional>
#include <string>

#include "foundation/base/error.h"
#include "foundation/base/json.h"

namespace falaj::jobs {
namespace {

std::optional<double> number_of(const json::value& value) {
  if (value.is_double()) return value.get_double();
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  return std::nullopt;
}

std::int64_t whole(const json::object& line, std::string_view key, std::int64_t fallback) {
  const auto* value = line.if_contains(key);
  return value && value->is_int64() ? value->get_int64() : fallback;
}

std::string text_of(const json::value& value) {
  return value.is_string() ? std::string(value.get_string()) : json::serialize(value);
}

// Batches of what one call may log.
class Batches {
 public:
  void add(const track::Metric& metric) {
    room(&track::Batch::metrics, track::kBatchMetricsMax).metrics.push_back(metric);
  }
  void add_param(track::KeyValue param) {
    room(&track::Batch::params, track::kBatchParamsMax).params.push_back(std::move(param));
  }
  void add_tag(track::KeyValue tag) { room(&track::Batch::tags, track::kBatchTagsMax).tags.push_back(std::move(tag)); }
  std::vector<track::Batch> take() { return std::move(batches_); }

 private:
  template <class Member>
  track::Batch& room(Member member, std::size_t most) {
    const auto items = [](const track::Batch& b) { return b.metrics.size() + b.params.size() + b.tags.size(); };
    if (batches_.empty() || (batches_.back().*member).size() >= most || items(batches_.back()) >= track::kBatchItemsMax)
      batches_.emplace_back();
    return batches_.back();
  }
  std::vector<track::Batch> batches_;
};

void take_line(const json::object& line, std::int64_t now_ms, Batches& out) {
  const auto each = [&](std::string_view key, auto take) {
    const auto* of = line.if_contains(key);
    if (!of || !of->is_object()) return;
    for (const auto& [name, value] : of->get_object())
      if (!name.empty() && name.size() <= track::kKeyBytesMax) take(std::string(name), value);
  };
  const auto step = whole(line, "step", 0), at = whole(line, "time_ms", now_ms);
  each("metrics", [&](std::string name, const json::value& value) {
    if (const auto number = number_of(value)) out.add(track::Metric{std::move(name), {at, step, *number}, "", "", ""});
  });
  each("params", [&](std::string name, const json::value& value) {
    if (auto text = text_of(value); text.size() <= track::kParamBytesMax)
      out.add_param({std::move(name), std::move(text)});
  });
  each("tags", [&](std::string name, const json::value& value) {
    if (auto text = text_of(value); text.size() <= track::kTagBytesMax) out.add_tag({std::move(name), std::move(text)});
  });
}

}  // namespace

std::vector<track::Batch> parse_told(std::string_view lines, std::int64_t now_ms) {
  Batches out;
  while (!lines.empty()) {
    const auto end = lines.find('\n');
    const auto line = lines.substr(0, end);
    lines = end == std::string_view::npos ? std::string_view() : lines.substr(end + 1);
    try {
      const auto value = parse_json(line);
      if (value.is_object()) take_line(value.get_object(), now_ms, out);
    } catch (const Error&) {  // no JSON
    }
  }
  return out.take();
}

}  // namespace falaj::jobs
