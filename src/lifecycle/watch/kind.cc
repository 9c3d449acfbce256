// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/watch/kind.h"

#include <charconv>

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::watch {
namespace {

std::optional<DatasetVersion> parse_dataset(std::string_view text) {
  const auto at = text.rfind('@');
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  DatasetVersion out{std::string(text.substr(0, at)), 0};
  const auto number = text.substr(at + 1);
  const auto [end, wrong] = std::from_chars(number.data(), number.data() + number.size(), out.version);
  if (wrong != std::errc() || end != number.data() + number.size() || out.version < 1) return std::nullopt;
  return out;
}

void check_dataset(const resource::World& world, const resource::Metadata& metadata, const MonitorSpec& spec,
                   Faults& faults) {
  constexpr const char* kWhere = "spec.referenceDataset";
  if (spec.reference != "dataset") {
    if (!spec.reference_dataset.empty()) faults.push_back({kWhere, "is only of reference: dataset"});
    return;
  }
  const auto named = parse_dataset(spec.reference_dataset);
  if (!named) {
    faults.push_back({kWhere, "must name a version of a dataset, such as flights@3"});
    return;
  }
  const auto declared = world.spec({"Dataset", metadata.tenant, metadata.project, named->name});
  const auto* fields = declared ? declared->if_object() : nullptr;
  const auto* personal = fields ? fields->if_contains("personal") : nullptr;
  if (personal && !personal->is_null())
    faults.push_back({kWhere, fmt::format("{} is about people: whoever sees the monitor would see it", named->name)});
}

void check_past(const MonitorSpec& spec, Faults& faults) {
  const std::string where = "spec.referencePast";
  if (spec.reference != "past") {
    if (spec.reference_past) faults.push_back({where, "is only of reference: past"});
    return;
  }
  if (!spec.reference_past) {
    faults.push_back({where, "says which windows: from and to, or windows and before"});
    return;
  }
  const auto& past = *spec.reference_past;
  const bool by_time = !past.from.empty() || !past.to.empty(), by_count = past.windows != 0 || !past.before.empty();
  if (by_time == by_count) {
    faults.push_back({where, "has either from and to, or windows and before"});
    return;
  }
  const auto moment = [&](const char* field, const std::string& text) {
    const auto out = parse_time(text);
    if (!out) faults.push_back({fmt::format("{}.{}", where, field), "must be a moment, such as 2026-01-31T00:00:00Z"});
    return out;
  };
  if (by_time) {
    const auto from = moment("from", past.from), to = moment("to", past.to);
    if (from && to && *from >= *to) faults.push_back({where + ".to", "must be after from"});
    return;
  }
  moment("before", past.before);
  if (past.windows < kPastWindowsMin)
    faults.push_back({where + ".windows", fmt::format("must be at least {}", kPastWindowsMin)});
}

void check_monitor(const resource::World& world, const resource::Metadata& metadata, const MonitorSpec& spec,
                   Faults& faults) {
  if (spec.level <= 0 || spec.level >= 1) faults.push_back({"spec.level", "must be above 0 and below 1, such as 0.01"});
  check_dataset(world, metadata, spec, faults);
  check_past(spec, faults);
}

std::vector<resource::Reference> needs(const resource::World&, const resource::Metadata& metadata,
                                       const MonitorSpec& spec) {
  std::vector<resource::Reference> out = {
      {{"Endpoint", metadata.tenant, metadata.project, spec.endpoint}, "spec.endpoint"}};
  if (spec.reference == "dataset")
    if (const auto named = parse_dataset(spec.reference_dataset))
      out.push_back({{"Dataset", metadata.tenant, metadata.project, named->name}, "spec.referenceDataset"});
  return out;
}

}  // namespace

std::optional<Past> past_of(const MonitorSpec& spec) {
  if (spec.reference != "past" || !spec.reference_past) return std::nullopt;
  const auto& past = *spec.reference_past;
  if (past.windows > 0) return Past{INT64_MIN, parse_time(past.before).value_or(0), past.windows};
  return Past{parse_time(past.from).value_or(0), parse_time(past.to).value_or(0), 0};
}

DatasetVersion dataset_of(const MonitorSpec& spec) {
  auto out = parse_dataset(spec.reference_dataset);
  CHECK(out.has_value(), "a monitor's spec was checked");
  return *out;
}

double level_of_each(const MonitorSpec& spec) {
  return spec.level / (1.0 + (spec.together ? 1 : 0) + (spec.labels ? 1 : 0) + (spec.performance ? 1 : 0));
}

resource::Kind monitor_kind() {
  return resource::make_kind(resource::KindOf<MonitorSpec>{
      kMonitor,
      "monitors",
      "What an endpoint is asked and answers, compared with what its models were trained on.",
      {.project = true},
      check_monitor,
      needs,
      {}});
}

}  // namespace falaj::watch
