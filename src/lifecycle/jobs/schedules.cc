// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/schedules.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/log.h"

namespace falaj::jobs {
namespace {

constexpr sql::Migration kScheduleMigrations[] = {
    {1, "job_schedules",
     "CREATE TABLE job_schedule(tenant TEXT NOT NULL, project TEXT NOT NULL, name TEXT NOT NULL,"
     " at_us BIGINT NOT NULL, job TEXT NOT NULL, PRIMARY KEY(tenant, project, name)) CLUSTERED"},
};
constexpr int kTimesLooked = 100'000;  // of a schedule that was away for long

void note_time(sql::Writer& writer, const resource::Metadata& m, std::int64_t at_us, const std::string& job) {
  writer.execute(
      "INSERT INTO job_schedule(tenant, project, name, at_us, job) VALUES (?, ?, ?, ?, ?)"
      " ON CONFLICT (tenant, project, name) DO UPDATE SET at_us = excluded.at_us, job = excluded.job",
      {std::string_view(m.tenant), std::string_view(m.project), std::string_view(m.name), at_us,
       std::string_view(job)});
}

}  // namespace

std::span<const sql::Migration> Schedules::migrations() { return kScheduleMigrations; }

std::optional<std::int64_t> due(const Cron& cron, std::int64_t last_us, std::int64_t now_us) {
  std::optional<std::int64_t> out;
  auto next = cron.next(last_us);
  for (int i = 0; i < kTimesLooked && next && *next <= now_us; ++i) {
    out = next;
    next = cron.next(*next);
  }
  return out;
}

std::optional<Schedules::Last> Schedules::last_of(const resource::Metadata& m) const {
  return database_.read([&](sql::Reader& reader) {
    return reader.first("SELECT at_us, job FROM job_schedule WHERE tenant = ? AND project = ? AND name = ?",
                        {std::string_view(m.tenant), std::string_view(m.project), std::string_view(m.name)},
                        [](const sql::Row& row) {
                          return Last{row.integer(0), std::string(row.text(1))};
                        });
  });
}

bool Schedules::run_one(const resource::Stored& stored, std::int64_t now_us) {
  const auto& m = stored.resource.metadata;
  const auto spec = decode<ScheduleSpec>(stored.resource.spec, "schedule");
  if (spec.suspended) return false;
  const auto last = last_of(m);
  // One that was deleted and declared again begins anew.
  const auto since = std::max(last ? last->at_us : 0, stored.created_us);
  const auto at = due(Cron::parse(spec.cron), since, now_us);
  if (!at) return false;
  const Where where{{m.tenant}, {m.project}};
  const sql::Act act{"system/schedules", "job.create", where.scope().str(), ""};
  const auto skip = [&](std::string_view why) {
    log::warn("schedule_skipped", {{"schedule", m.name}, {"project", where.scope().str()}, {"why", why}});
    database_.write({"system/schedules", "schedule.skip", stored.resource.key().scope().str(), "", "ok",
                     json::serialize(json::object{{"why", why}})},
                    [&](sql::Writer& writer) { note_time(writer, m, *at, last ? last->job : ""); });
    return false;
  };
  if (spec.overlap == "skip" && last && !last->job.empty()) {
    try {
      if (!has_ended(jobs_.job(where, JobId::parse(last->job)).life.phase)) return skip("the one before has not ended");
    } catch (const Error& e) {
      if (e.code() != Code::not_found) throw;
    }
  }
  try {
    const auto snapshot = directory_.snapshot();
    iam::Identity owner;
    owner.principal = snapshot->with_groups(iam::Principal::parse(stored.actor));
    if (!snapshot->active(owner.principal) || !directory_.allows(owner, "job.create", where.scope()))
      return skip(fmt::format("{} may not submit jobs here any more", stored.actor));
    if (spec.job.network == "host" && !directory_.allows(owner, kUseNetwork, where.scope()))
      return skip(fmt::format("{} may not use the machine's network any more", stored.actor));
    for (const auto& entry : spec.job.secrets)
      if (!directory_.allows(owner, "secret.read", iam::Scope::of(m.tenant, m.project, "secret", entry.second)))
        return skip(fmt::format("{} may not read secret '{}' any more", stored.actor, entry.second));
    const auto records =
        jobs_.prepare(where, stored.actor, {{m.name, {{"schedule", m.name}}, spec.job}},
                      [](std::size_t, const std::string& path) { return "spec.job" + path.substr(4); });
    database_.write(act, [&](sql::Writer& writer) {
      jobs_.insert(writer, records);
      note_time(writer, m, *at, records[0].id.str());
    });
    return true;
  } catch (const Error& e) {
    if (e.retryable()) throw;
    return skip(e.what());
  }
}

std::size_t Schedules::run_due() {
  std::size_t many = 0;
  const auto now = clock_.wall().count();
  resource::ListOptions options{"", "", "", "", 1000};
  do {
    const auto page =
        resources_.list("Schedule", options, [](std::string_view, const iam::Scope&) { return std::nullopt; });
    for (const auto& stored : page.items) many += run_one(stored, now);
    options.cursor = page.next;
  } while (!options.cursor.empty());
  return many;
}

}  // namespace falaj::jobs
