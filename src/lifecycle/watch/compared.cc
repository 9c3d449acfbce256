// SPDX-License-Identifier: Apache-2.0
// what windows are compared with

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/watch/dataset_reference.h"
#include "lifecycle/watch/watch.h"

namespace falaj::watch {
namespace {

// Of a monitor, what a reference that is ready to be compared follows from.
std::string asked_of(const MonitorSpec& spec) {
  return fmt::format("{} {} {}", rule_of(spec), spec.together.has_value(), json::serialize(encode(spec.columns)));
}

}  // namespace

std::optional<Reference> Watch::first_windows(const Stream& stream, std::int64_t many) {
  std::vector<traffic::Sketches> first;
  std::vector<stats::RowSample> rows;
  parts_.database.read([&](sql::Reader& r) {
    r.query(
        "SELECT sealed FROM watch_window WHERE tenant = ? AND project = ? AND monitor = ? AND variant = ? AND version "
        "= ? AND number < ? ORDER BY number",
        {stream.tenant, stream.project, stream.monitor, stream.variant, stream.version, many},
        [&](const sql::Row& row) {
          auto held = unseal(stream, row.bytes(0));
          first.push_back(std::move(held.sketches));
          rows.push_back(std::move(held.rows));
        });
  });
  return make_reference(first, fmt::format("its first {} windows", first.size()), rows);
}

// The newest windows of a time, if enough of them are kept.
std::optional<Reference> Watch::past(const Stream& stream, const Past& past, std::string* why_not) {
  std::vector<traffic::Sketches> windows;
  std::vector<stats::RowSample> rows;
  std::int64_t from = 0, until = 0;
  parts_.database.read([&](sql::Reader& r) {
    r.query(
        "SELECT from_us, until_us, sealed FROM watch_window WHERE tenant = ? AND project = ? AND monitor = ? AND "
        "variant = ? AND version = ? AND until_us >= ? AND until_us <= ? ORDER BY number DESC LIMIT ?",
        {stream.tenant, stream.project, stream.monitor, stream.variant, stream.version, past.from_us, past.to_us,
         past.windows > 0 ? past.windows : kPastWindowsMax},
        [&](const sql::Row& row) {
          auto held = unseal(stream, row.bytes(2));
          if (held.sketches.empty()) return;  // too old: its distributions are gone
          if (windows.empty()) until = row.integer(1);
          from = row.integer(0);
          windows.push_back(std::move(held.sketches));
          rows.push_back(std::move(held.rows));
        });
  });
  const auto wanted = std::max(kPastWindowsMin, past.windows);
  if (static_cast<std::int64_t>(windows.size()) < wanted) {
    *why_not = fmt::format("{} windows of that time, and {} make a reference", windows.size(), wanted);
    return std::nullopt;
  }
  std::reverse(windows.begin(), windows.end());
  std::reverse(rows.begin(), rows.end());
  return make_reference(
      windows, fmt::format("{} windows, {} to {}", windows.size(), format_time(from), format_time(until)), rows);
}

Reference Watch::dataset(const Stream& stream, const MonitorSpec& spec) {
  const auto named = dataset_of(spec);
  const auto declared = parts_.resources.get({"Dataset", stream.tenant, stream.project, named.name});
  const auto time = decode<data::DatasetSpec>(declared.resource.spec, "dataset").time;
  return read_dataset(parts_.datasets, where_of(stream), named.name, named.version, time, spec.together.has_value());
}

std::shared_ptr<const Reference> Watch::reference(const Stream& stream, const MonitorSpec& spec, std::int64_t windows,
                                                  std::string* why_not) {
  const auto asked = asked_of(spec);
  if (const auto known = references_.find(stream); known != references_.end() && known->second.asked == asked)
    return known->second.reference;
  std::optional<Reference> made;
  std::string none;
  if (const auto chosen = past_of(spec)) {
    if (parts_.clock.wall().count() <= chosen->to_us) {
      *why_not = fmt::format("it is compared with a time that lasts until {}", format_time(chosen->to_us));
      return nullptr;
    }
    made = past(stream, *chosen, &none);
  } else if (spec.reference == "dataset") {
    try {
      made = dataset(stream, spec);
    } catch (const Error& e) {  // somebody chose it: nothing else stands in for it
      *why_not = e.what();
      return nullptr;
    }
  }
  if (!made && spec.reference != "windows") {
    std::string untrained;
    if (const auto trained =
            trained_reference({parts_.resources, parts_.models, parts_.vault}, stream, spec.endpoint, &untrained))
      made = *trained;
    none += (none.empty() || untrained.empty() ? "" : "; ") + untrained;
  }
  if (!made) {
    if (windows < spec.reference_windows) {
      *why_not = fmt::format("{}{} of the {} windows that make a reference", none.empty() ? "" : none + ": ", windows,
                             spec.reference_windows);
      return nullptr;
    }
    made = first_windows(stream, spec.reference_windows);
  }
  prepare_together(*made, spec);
  auto out = std::make_shared<const Reference>(std::move(*made));
  references_[stream] = {asked, out};
  return out;
}

}  // namespace falaj::watch
