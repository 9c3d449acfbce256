// SPDX-License-Identifier: Apache-2.0
// What becomes of jobs that have ended: what they left, their rows, their logs.
#include <algorithm>
#include <set>
#include <vector>

#include "foundation/base/error.h"
#include "foundation/base/log.h"
#include "lifecycle/jobs/jobs.h"
#include "lifecycle/jobs/keep_rules.h"

namespace falaj::jobs {
namespace {

constexpr sys::Micros kLeftoversKept = std::chrono::hours(24 * 7);

}  // namespace

void Jobs::upkeep() {
  std::set<JobId> live;
  for (const auto& record : store_.live()) live.insert(record.id);
  launches_.sweep([&](JobId id) { return live.contains(id); }, (parts_.clock.wall() - kLeftoversKept).count());
  retain();
}

std::size_t Jobs::retain() {
  constexpr std::size_t kAtOnce = 500;
  std::set<std::string> needed;  // by jobs that wait for them
  for (const auto& record : store_.live())
    for (const auto* list : {&record.spec->after.ok, &record.spec->after.any})
      needed.insert(list->begin(), list->end());
  const auto snapshot = parts_.directory.snapshot();
  const auto now = parts_.clock.wall().count();
  std::size_t gone = 0;
  for (const auto& [where, rules] : keep_rules(parts_.resources, *snapshot)) {
    const sql::Act act{"system/retention", "job.delete", where.scope().str(), ""};
    const auto shortest = std::min_element(rules.begin(), rules.end(),
                                           [](const auto& a, const auto& b) { return a.keep_us < b.keep_us; });
    for (std::string after; !stopping();) {
      const auto page = store_.ended(where, after, kAtOnce);
      // Ids are in the order of submission: from here on all are too young.
      if (page.empty() || page.front().submitted_us + shortest->keep_us > now) break;
      std::vector<Record> due;
      for (const auto& record : page)
        if (is_due(rules, record, now) && !needed.contains(record.id.str()) && !needed.contains(record.array))
          due.push_back(record);
      gone += store_.remove(due, act);
      for (const auto& record : due) drop_logs(record);
      if (page.size() < kAtOnce) break;
      after = page.back().id.str();
    }
  }
  return gone;
}

void Jobs::drop_logs(const Record& record) {
  try {
    for (std::int64_t epoch = 1; epoch <= record.life.epoch; ++epoch)
      executor(record.life.executor).drop_logs(attempt_name(record.id, epoch));
  } catch (const Error& e) {
    if (e.code() != Code::not_found) log::warn("logs_not_dropped", {{"job", record.id.str()}, {"why", e.what()}});
  }
}

}  // namespace falaj::jobs
