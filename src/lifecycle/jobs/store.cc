// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/store.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"

namespace falaj::jobs {
namespace {

// `life` is the described struct as JSON; what is looked for stands in columns of its own beside it. Members of an
// array share one spec, in the row of its first member.
constexpr sql::Migration kMigrations[] = {
    {1, "jobs",
     "CREATE TABLE job(id TEXT PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL, name TEXT NOT NULL,"
     " owner TEXT NOT NULL, queue TEXT NOT NULL, array_id TEXT NOT NULL, array_index BIGINT NOT NULL,"
     " labels TEXT NOT NULL, spec TEXT NOT NULL, submitted_us BIGINT NOT NULL, phase TEXT NOT NULL,"
     " live BIGINT NOT NULL, transitions BIGINT NOT NULL, wish TEXT NOT NULL, wished_by TEXT NOT NULL,"
     " life TEXT NOT NULL) CLUSTERED;"
     "CREATE INDEX job_project ON job(tenant, project, id);"
     "CREATE INDEX job_live ON job(id) WHERE live = 1;"
     "CREATE INDEX job_wish ON job(id) WHERE wish <> '';"
     "CREATE INDEX job_array ON job(array_id, array_index) WHERE array_id <> '';"
     "CREATE TABLE job_transition(job TEXT NOT NULL, number BIGINT NOT NULL, at_us BIGINT NOT NULL,"
     " phase TEXT NOT NULL, epoch BIGINT NOT NULL, why TEXT NOT NULL, PRIMARY KEY(job, number)) CLUSTERED;"
     "CREATE TABLE job_spent(job TEXT NOT NULL, epoch BIGINT NOT NULL, tenant TEXT NOT NULL, project TEXT NOT NULL,"
     " owner TEXT NOT NULL, queue TEXT NOT NULL, started_us BIGINT NOT NULL, ended_us BIGINT NOT NULL,"
     " reason TEXT NOT NULL, tasks BIGINT NOT NULL, cpu_us BIGINT NOT NULL, memory_peak_bytes BIGINT NOT NULL,"
     " cpu_millis BIGINT NOT NULL, memory_bytes BIGINT NOT NULL, gpu_millis BIGINT NOT NULL,"
     " PRIMARY KEY(job, epoch)) CLUSTERED;"
     "CREATE INDEX job_spent_time ON job_spent(ended_us)"},
    {2, "jobs",
     "CREATE TABLE job_pool(name TEXT PRIMARY KEY, life TEXT NOT NULL) CLUSTERED;"
     "CREATE TABLE job_pool_event(pool TEXT NOT NULL, number BIGINT NOT NULL, at_us BIGINT NOT NULL,"
     " what TEXT NOT NULL, nodes BIGINT NOT NULL, why TEXT NOT NULL, PRIMARY KEY(pool, number)) CLUSTERED;"
     "ALTER TABLE job_spent ADD COLUMN cost DOUBLE PRECISION NOT NULL DEFAULT 0;"
     "ALTER TABLE job_spent ADD COLUMN name TEXT NOT NULL DEFAULT '';"
     "ALTER TABLE job_spent ADD COLUMN submitted_us BIGINT NOT NULL DEFAULT 0;"
     "ALTER TABLE job_spent ADD COLUMN limit_us BIGINT NOT NULL DEFAULT 0;"
     "ALTER TABLE job_spent ADD COLUMN deadline_us BIGINT NOT NULL DEFAULT 0"},
    {3, "jobs", "ALTER TABLE job_spent ADD COLUMN energy_joules DOUBLE PRECISION NOT NULL DEFAULT 0"},
    {4, "jobs", "ALTER TABLE job_spent ADD COLUMN saved_us BIGINT NOT NULL DEFAULT 0"},
};

Record read_record(const sql::Row& row, const std::shared_ptr<const JobSpec>& shared) {
  Record out;
  out.id = JobId::parse(row.text(0));
  out.where = {TenantName{std::string(row.text(1))}, ProjectName{std::string(row.text(2))}};
  out.name = row.text(3);
  out.owner = row.text(4);
  out.array = row.text(5);
  out.array_index = row.integer(6);
  const auto labels = parse_json(row.text(7));
  for (const auto& [key, value] : labels.as_object()) out.labels[std::string(key)] = value.as_string();
  out.spec = shared ? shared : std::make_shared<JobSpec>(decode<JobSpec>(parse_json(row.text(8)), "a stored job"));
  out.submitted_us = row.integer(9);
  out.life = decode<Life>(parse_json(row.text(10)), "a stored job");
  out.digest = crypto::sha256(row.text(10));
  out.transitions = row.integer(11);
  return out;
}

// Reads records with the specs of arrays filled in.
class RecordReader {
 public:
  explicit RecordReader(sql::Reader& reader) : reader_(reader) {}
  // The spec is read after the rows: one statement at a time runs on a connection.
  std::vector<Record> finish(std::vector<Record> records) {
    for (auto& record : records) {
      if (record.spec) continue;
      auto& spec = specs_[record.array];
      if (!spec)
        reader_.query("SELECT spec FROM job WHERE array_id = ? AND spec <> ''", {std::string_view(record.array)},
                      [&](const sql::Row& row) {
                        spec = std::make_shared<JobSpec>(decode<JobSpec>(parse_json(row.text(0)), "a stored job"));
                      });
      if (!spec) throw Error(Code::corrupt, fmt::format("job {}: its array has no spec", record.id.str()));
      record.spec = spec;
    }
    return records;
  }
  static Record read(const sql::Row& row) {
    static const std::shared_ptr<const JobSpec> kLater;
    if (!row.text(8).empty()) return read_record(row, kLater);
    auto out = read_record(row, std::make_shared<JobSpec>());
    out.spec.reset();
    return out;
  }

 private:
  sql::Reader& reader_;
  std::map<std::string, std::shared_ptr<const JobSpec>> specs_;
};

// The narrowest scope that holds all of them.
std::string scope_of_all(std::span<const Change> changes) {
  if (changes.size() == 1) return changes[0].record->scope().str();
  const auto& first = changes[0].record->where;
  bool same_project = true, same_tenant = true;
  for (const auto& change : changes) {
    same_tenant &= change.record->where.tenant == first.tenant;
    same_project &= same_tenant && change.record->where.project == first.project;
  }
  if (same_project) return first.scope().str();
  return same_tenant ? iam::Scope::of_tenant(first.tenant.str()).str() : "/";
}

std::string details_of(std::span<const Change> changes) {
  std::map<std::string_view, std::int64_t> counts;
  for (const auto& change : changes)
    for (const auto& transition : change.transitions) ++counts[name_of(transition.phase)];
  json::object out;
  for (const auto& [phase, count] : counts) out[phase] = count;
  return json::serialize(out);
}

void write_transitions(sql::Writer& writer, const std::string& id, std::span<const Transition> transitions,
                       std::int64_t first) {
  for (const auto& t : transitions)
    writer.execute("INSERT INTO job_transition(job, number, at_us, phase, epoch, why) VALUES (?, ?, ?, ?, ?, ?)",
                   {std::string_view(id), first++, t.at_us, name_of(t.phase), t.epoch, std::string_view(t.why)});
}

void write_spent(sql::Writer& writer, const Record& record, const std::string& id, const Spent& spent) {
  std::int64_t tasks = 0;
  for (const auto& place : spent.places) tasks += place.tasks;
  const auto& spec = *record.spec;
  writer.execute(
      "INSERT INTO job_spent(job, epoch, tenant, project, owner, queue, started_us, ended_us, reason, tasks, cpu_us,"
      " memory_peak_bytes, cpu_millis, memory_bytes, gpu_millis, cost,"
      " name, submitted_us, limit_us, deadline_us, energy_joules, saved_us)"
      " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
      " ON CONFLICT (job, epoch) DO NOTHING",
      {std::string_view(id),
       spent.epoch,
       std::string_view(record.where.tenant.str()),
       std::string_view(record.where.project.str()),
       std::string_view(record.owner),
       std::string_view(spec.queue),
       spent.started_us,
       spent.ended_us,
       std::string_view(spent.reason),
       tasks,
       spent.cpu_us,
       spent.memory_peak_bytes,
       static_cast<std::int64_t>(spec.cpus * 1000) * tasks,
       spec.memory_bytes * tasks,
       static_cast<std::int64_t>(spec.gpus * 1000) * tasks,
       spent.cost,
       std::string_view(record.name),
       record.submitted_us,
       spec.time_limit_us,
       parse_time(spec.deadline).value_or(0),
       spent.energy_joules,
       spent.saved_us});
}

// A life as it is stored.
struct Written {
  std::string text;
  Digest digest;
  explicit Written(const Life& life) : text(json::serialize(encode(life))), digest(crypto::sha256(text)) {}
};

void write_change(sql::Writer& writer, const Change& change, const Written& life) {
  const auto& record = *change.record;
  const auto id = record.id.str();
  const auto changed = writer.execute(
      "UPDATE job SET phase = ?, live = ?, transitions = ?, life = ?, wish = CASE WHEN wish = ? THEN '' ELSE wish END"
      " WHERE id = ?",
      {name_of(record.life.phase), std::int64_t{!has_ended(record.life.phase)},
       record.transitions + static_cast<std::int64_t>(change.transitions.size()), std::string_view(life.text),
       std::string_view(change.granted), std::string_view(id)});
  if (changed != 1) throw Error(Code::corrupt, fmt::format("job {} is not in the database", id));
  write_transitions(writer, id, change.transitions, record.transitions);
  for (const auto& spent : change.spent) write_spent(writer, record, id, spent);
  writer.record({record.scope().str(), record.digest, life.digest});
}

bool places(const Change& change) {
  return std::any_of(change.transitions.begin(), change.transitions.end(),
                     [](const Transition& transition) { return transition.phase == Phase::starting; });
}

}  // namespace

std::span<const sql::Migration> Store::migrations() { return kMigrations; }

void Store::insert(sql::Writer& writer, std::span<const Record> records) const {
  for (const auto& record : records) {
    const auto id = record.id.str();
    const Written life(record.life);
    const auto spec = record.array.empty() || record.array_index == 0 ? json::serialize(encode(*record.spec)) : "";
    writer.execute(
        "INSERT INTO job(id, tenant, project, name, owner, queue, array_id, array_index, labels, spec, submitted_us,"
        " phase, live, transitions, wish, wished_by, life) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        {std::string_view(id), std::string_view(record.where.tenant.str()),
         std::string_view(record.where.project.str()), std::string_view(record.name), std::string_view(record.owner),
         std::string_view(record.spec->queue), std::string_view(record.array), record.array_index,
         std::string_view(json::serialize(json::value_from(record.labels))), std::string_view(spec),
         record.submitted_us, name_of(record.life.phase), std::int64_t{1}, std::int64_t{1}, std::string_view(""),
         std::string_view(""), std::string_view(life.text)});
    const Transition submitted{0, record.submitted_us, 0, record.life.phase, record.life.why};
    write_transitions(writer, id, {&submitted, 1}, 0);
    writer.record({record.scope().str(), std::nullopt, life.digest});
  }
}

Phase Store::wish(sql::Writer& writer, const Where& where, const Wish& wish) const {
  const auto id = wish.job.str();
  std::optional<Phase> phase;
  writer.query("SELECT phase FROM job WHERE id = ? AND tenant = ? AND project = ?",
               {std::string_view(id), std::string_view(where.tenant.str()), std::string_view(where.project.str())},
               [&](const sql::Row& row) { phase = parse_phase(row.text(0)); });
  if (!phase) throw Error(Code::not_found, fmt::format("no job {} in this project", id));
  writer.execute("UPDATE job SET wish = ?, wished_by = ? WHERE id = ?",
                 {std::string_view(wish.what), std::string_view(wish.by), std::string_view(id)});
  return *phase;
}

void Store::write(std::span<Change> changes) {
  if (changes.empty()) return;
  std::vector<Written> lives;
  lives.reserve(changes.size());
  for (const auto& change : changes) lives.emplace_back(change.record->life);
  std::vector<std::function<void(sql::Writer&)>> beside;
  if (beside_placing_)
    for (const auto& change : changes)
      if (places(change))
        if (auto more = beside_placing_(*change.record)) beside.push_back(std::move(more));
  const sql::Act act{"system/jobs", "job.transition", scope_of_all(changes), "", "ok", details_of(changes)};
  database_.write(act, [&](sql::Writer& writer) {
    for (std::size_t i = 0; i < changes.size(); ++i) write_change(writer, changes[i], lives[i]);
    for (const auto& more : beside) more(writer);
  });
  for (std::size_t i = 0; i < changes.size(); ++i) {
    changes[i].record->transitions += static_cast<std::int64_t>(changes[i].transitions.size());
    changes[i].record->digest = lives[i].digest;
  }
}

std::vector<Record> Store::live() {
  return database_.read([](sql::Reader& reader) {
    return RecordReader(reader).finish(
        reader.all("SELECT id, tenant, project, name, owner, array_id, array_index, labels, spec, submitted_us, life, "
                   "transitions FROM job"
                   " WHERE live = 1 ORDER BY id",
                   {}, RecordReader::read));
  });
}

std::vector<Wish> Store::wishes() {
  return database_.read([](sql::Reader& reader) {
    return reader.all("SELECT id, wish, wished_by FROM job WHERE wish <> '' ORDER BY id", {}, [](const sql::Row& row) {
      return Wish{JobId::parse(row.text(0)), std::string(row.text(1)), std::string(row.text(2))};
    });
  });
}

std::optional<Record> Store::find(JobId id) {
  return database_.read([&](sql::Reader& reader) -> std::optional<Record> {
    const auto text = id.str();
    auto found =
        RecordReader(reader).finish(reader.all("SELECT id, tenant, project, name, owner, array_id, array_index, "
                                               "labels, spec, submitted_us, life, transitions FROM job"
                                               " WHERE id = ?",
                                               {std::string_view(text)}, RecordReader::read));
    if (found.empty()) return std::nullopt;
    return std::move(found[0]);
  });
}

std::optional<Store::Outcome> Store::outcome(const std::string& id) {
  return database_.read([&](sql::Reader& reader) -> std::optional<Outcome> {
    Outcome out;
    const auto count = [&](const sql::Row& row) {
      out.members += 1;
      out.live += row.integer(1);
      out.succeeded += row.text(0) == name_of(Phase::succeeded);
    };
    reader.query("SELECT phase, live FROM job WHERE id = ?", {std::string_view(id)}, count);
    if (out.members == 0)
      reader.query("SELECT phase, live FROM job WHERE array_id = ? AND array_id <> ''", {std::string_view(id)}, count);
    return out.members > 0 ? std::optional(out) : std::nullopt;
  });
}

Record Store::job(const Where& where, JobId id) {
  auto found = find(id);
  if (!found || found->where.tenant != where.tenant || found->where.project != where.project)
    throw Error(Code::not_found, fmt::format("no job {} in this project", id.str()));
  return std::move(*found);
}

bool Store::is_in(const Where& where, const std::string& job_or_array) const {
  return database_.read([&](sql::Reader& reader) {
    bool found = false;
    const auto note = [&](const sql::Row&) { found = true; };
    const std::string_view id(job_or_array), tenant(where.tenant.str()), project(where.project.str());
    reader.query("SELECT id FROM job WHERE id = ? AND tenant = ? AND project = ?", {id, tenant, project}, note);
    if (!found)
      reader.query(
          "SELECT id FROM job WHERE array_id = ? AND array_id <> '' AND array_index = 0 AND tenant = ? AND project = ?",
          {id, tenant, project}, note);
    return found;
  });
}

std::vector<Record> Store::list(const Where& where, const ListJobs& which) const {
  return database_.read([&](sql::Reader& reader) {
    // '~' sorts after every character of an id.
    const std::string below = which.after.empty() ? "~" : which.after;
    return RecordReader(reader).finish(reader.all(
        "SELECT id, tenant, project, name, owner, array_id, array_index, labels, spec, submitted_us, life, transitions "
        "FROM job"
        " WHERE tenant = ? AND project = ? AND id < ? AND (? = '' OR phase = ?) AND (? = '' OR queue = ?)"
        " AND (? = '' OR owner = ?) AND (? = '' OR name = ?) AND (? = '' OR array_id = ?) AND live >= ?"
        " ORDER BY id DESC LIMIT ?",
        {std::string_view(where.tenant.str()), std::string_view(where.project.str()), std::string_view(below),
         std::string_view(which.phase), std::string_view(which.phase), std::string_view(which.queue),
         std::string_view(which.queue), std::string_view(which.owner), std::string_view(which.owner),
         std::string_view(which.name), std::string_view(which.name), std::string_view(which.array),
         std::string_view(which.array), std::int64_t{which.live}, static_cast<std::int64_t>(which.limit)},
        RecordReader::read));
  });
}

std::vector<Record> Store::ended(const Where& where, const std::string& after, std::size_t limit) const {
  return database_.read([&](sql::Reader& reader) {
    return RecordReader(reader).finish(reader.all(
        "SELECT id, tenant, project, name, owner, array_id, array_index, labels, spec, submitted_us, life, transitions "
        "FROM job WHERE tenant = ? AND project = ? AND id > ? AND live = 0 ORDER BY id LIMIT ?",
        {std::string_view(where.tenant.str()), std::string_view(where.project.str()), std::string_view(after),
         static_cast<std::int64_t>(limit)},
        RecordReader::read));
  });
}

std::size_t Store::remove(std::span<const Record> records, const sql::Act& act) {
  std::size_t gone = 0;
  if (records.empty()) return gone;
  database_.write(act, [&](sql::Writer& writer) {
    gone = 0;
    for (auto record = records.rbegin(); record != records.rend(); ++record) {
      const auto id = record->id.str();
      if (!record->array.empty() && record->array_index == 0) {  // it holds the spec of all of them
        bool others = false;
        writer.query("SELECT id FROM job WHERE array_id = ? AND id <> ? LIMIT 1",
                     {std::string_view(record->array), std::string_view(id)}, [&](const sql::Row&) { others = true; });
        if (others) continue;
      }
      // One that was begun again meanwhile, or is wished to, stays.
      if (writer.execute("DELETE FROM job WHERE id = ? AND live = 0 AND wish = ''", {std::string_view(id)}) == 0)
        continue;
      writer.execute("DELETE FROM job_transition WHERE job = ?", {std::string_view(id)});
      writer.record({record->scope().str(), record->digest, std::nullopt});
      ++gone;
    }
  });
  return gone;
}

std::vector<Transition> Store::history(JobId id) const {
  return database_.read([&](sql::Reader& reader) {
    const auto text = id.str();
    return reader.all("SELECT number, at_us, phase, epoch, why FROM job_transition WHERE job = ? ORDER BY number",
                      {std::string_view(text)}, [](const sql::Row& row) {
                        return Transition{row.integer(0), row.integer(1), row.integer(3),
                                          parse_phase(row.text(2)).value_or(Phase::pending), std::string(row.text(4))};
                      });
  });
}

void Store::write_pools(std::span<const PoolChange> changes) {
  if (changes.empty()) return;
  json::object details;
  for (const auto& change : changes)
    for (const auto& event : change.events)
      details[change.pool] = json::object{{"what", event.what}, {"nodes", event.nodes}, {"why", event.why}};
  const auto scope = [](const PoolChange& change) { return iam::Scope::of("", "", "nodepool", change.pool).str(); };
  const sql::Act act{"system/jobs",           "pool.scale", changes.size() == 1 ? scope(changes[0]) : "/", "", "ok",
                     json::serialize(details)};
  database_.write(act, [&](sql::Writer& writer) {
    for (const auto& change : changes) {
      const std::string_view pool(change.pool);
      const auto text = json::serialize(encode(change.life));
      writer.execute(
          "INSERT INTO job_pool(name, life) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET life = excluded.life",
          {pool, std::string_view(text)});
      for (const auto& event : change.events)
        writer.execute(
            "INSERT INTO job_pool_event(pool, number, at_us, what, nodes, why) VALUES (?, ?, ?, ?, ?, ?)",
            {pool, event.number, event.at_us, std::string_view(event.what), event.nodes, std::string_view(event.why)});
      writer.execute("DELETE FROM job_pool_event WHERE pool = ? AND number < ?",
                     {pool, change.life.events - kPoolEventsKept});
      writer.record({scope(change), std::nullopt, crypto::sha256(text)});
    }
  });
}

std::map<std::string, PoolLife> Store::pools() {
  return database_.read([&](sql::Reader& reader) {
    std::map<std::string, PoolLife> out;
    reader.query("SELECT name, life FROM job_pool", {}, [&](const sql::Row& row) {
      out[std::string(row.text(0))] = decode<PoolLife>(parse_json(row.text(1)), "a stored pool");
    });
    return out;
  });
}

std::vector<PoolEvent> Store::pool_events(const std::string& pool, std::size_t limit) const {
  return database_.read([&](sql::Reader& reader) {
    return reader.all(
        "SELECT number, at_us, what, nodes, why FROM job_pool_event WHERE pool = ? ORDER BY number DESC LIMIT ?",
        {std::string_view(pool), static_cast<std::int64_t>(limit)}, [](const sql::Row& row) {
          return PoolEvent{row.integer(0), row.integer(1), std::string(row.text(2)), row.integer(3),
                           std::string(row.text(4))};
        });
  });
}

std::vector<Store::Ran> Store::ran(std::size_t limit) const {
  auto out = database_.read([&](sql::Reader& reader) {
    return reader.all(
        "SELECT s.owner, j.name, s.tasks, s.ended_us - s.started_us, j.spec FROM job_spent s JOIN job j ON j.id = s.job"
        " WHERE s.reason IN ('finished', 'checkpointed', 'time_limit') ORDER BY s.ended_us DESC LIMIT ?",
        {static_cast<std::int64_t>(limit)}, [](const sql::Row& row) {
          Ran one{std::string(row.text(0)), std::string(row.text(1)), row.integer(2), 0, row.integer(3)};
          if (!row.text(4).empty())
            one.time_limit_us = decode<JobSpec>(parse_json(row.text(4)), "a stored job").time_limit_us;
          return one;
        });
  });
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Usage> Store::usage(const iam::Scope& scope, UsageBy by, std::int64_t from_us,
                                std::int64_t until_us) const {
  std::map<std::string, Usage> sums;
  std::map<std::string, std::string> last_job;
  database_.read([&](sql::Reader& reader) {
    reader.query(
        "SELECT job, tenant, project, owner, queue, started_us, ended_us, reason, cpu_us, cpu_millis, memory_bytes,"
        " gpu_millis, cost, energy_joules, saved_us FROM job_spent WHERE ended_us > ? AND started_us < ? AND (? = '' "
        "OR tenant = "
        "?)"
        " AND (? = '' OR project = ?) ORDER BY job, epoch",
        {from_us, until_us, scope.tenant(), scope.tenant(), scope.project(), scope.project()},
        [&](const sql::Row& row) {
          const std::string job(row.text(0)), tenant(row.text(1));
          const auto key = by == UsageBy::tenant    ? tenant
                           : by == UsageBy::project ? fmt::format("{}/{}", tenant, row.text(2))
                           : by == UsageBy::owner   ? std::string(row.text(3))
                           : by == UsageBy::queue   ? std::string(row.text(4))
                                                    : job;
          auto& sum = sums[key];
          sum.key = key;
          sum.attempts += 1;
          if (auto& last = last_job[key]; last != job) last = job, sum.jobs += 1;
          const auto began = std::max(row.integer(5), from_us), ended = std::min(row.integer(6), until_us);
          const double seconds = static_cast<double>(std::max<std::int64_t>(ended - began, 0)) / 1e6;
          const double allocated = seconds * static_cast<double>(row.integer(9)) / 1000;
          // Of one that lies only partly within the time only that part counts, of everything alike.
          const double all = static_cast<double>(std::max<std::int64_t>(row.integer(6) - row.integer(5), 1)) / 1e6;
          const double within = std::min(seconds / all, 1.0);
          sum.cpu_seconds += within * static_cast<double>(row.integer(8)) / 1e6;
          sum.cpu_allocated_seconds += allocated;
          sum.memory_gib_seconds += seconds * static_cast<double>(row.integer(10)) / static_cast<double>(1 << 30);
          sum.gpu_seconds += seconds * static_cast<double>(row.integer(11)) / 1000;
          sum.cost += within * row.real(12);
          sum.energy_joules += within * row.real(13);
          const auto lost = lost_us(row.text(7), began, ended, row.integer(14));
          sum.lost_seconds += static_cast<double>(lost) / 1e6 * static_cast<double>(row.integer(9)) / 1000;
        });
  });
  std::vector<Usage> out;
  out.reserve(sums.size());
  for (auto& [key, sum] : sums) out.push_back(std::move(sum));
  return out;
}

std::vector<PastJob> Store::past(const iam::Scope& scope, std::int64_t from_us, std::int64_t until_us,
                                 const std::string& after, std::size_t limit) const {
  return database_.read([&](sql::Reader& reader) {
    return reader.all(
        "SELECT job, MAX(name), MAX(owner), MAX(queue), MAX(submitted_us),"
        " CAST(SUM(CASE WHEN reason IN ('stopped', 'node_lost', 'not_started') THEN 0 ELSE ended_us - started_us END)"
        " AS BIGINT), MAX(tasks), MAX(cpu_millis), MAX(memory_bytes), MAX(gpu_millis), MAX(limit_us), MAX(deadline_us)"
        " FROM job_spent WHERE job > ? AND ended_us > ? AND ended_us <= ? AND submitted_us > 0"
        " AND (? = '' OR tenant = ?) AND (? = '' OR project = ?) GROUP BY job ORDER BY job LIMIT ?",
        {std::string_view(after), from_us, until_us, scope.tenant(), scope.tenant(), scope.project(), scope.project(),
         static_cast<std::int64_t>(limit)},
        [](const sql::Row& row) {
          PastJob out;
          out.id = row.text(0);
          out.name = row.text(1);
          out.owner = row.text(2);
          out.queue = row.text(3);
          out.submitted_us = row.integer(4);
          out.ran_us = row.integer(5);
          out.tasks = std::max<std::int64_t>(row.integer(6), 1);
          out.cpu_millis = row.integer(7) / out.tasks;
          out.memory_bytes = row.integer(8) / out.tasks;
          out.gpu_millis = row.integer(9) / out.tasks;
          out.limit_us = row.integer(10);
          out.deadline_us = row.integer(11);
          return out;
        });
  });
}

std::vector<Counted> Store::waiting(const Where& where) const {
  return database_.read([&](sql::Reader& reader) {
    return reader.all(
        "SELECT queue, COUNT(*), MIN(submitted_us) FROM job WHERE live = 1 AND tenant = ? AND project = ?"
        " AND phase IN ('pending', 'admitted') GROUP BY queue ORDER BY queue",
        {std::string_view(where.tenant.str()), std::string_view(where.project.str())}, [](const sql::Row& row) {
          return Counted{std::string(row.text(0)), row.integer(1), row.integer(2)};
        });
  });
}

std::vector<Counted> Store::failed(const Where& where, std::int64_t since_us) const {
  // Ids begin with the time of submission: what was submitted long before is not even looked at.
  constexpr std::int64_t kLatelyUs = std::int64_t{30} * 86'400 * 1'000'000;
  const auto ms = static_cast<std::uint64_t>(std::max<std::int64_t>(0, since_us - kLatelyUs) / 1000);
  const auto first = format_id({ms << 16, 0});
  return database_.read([&](sql::Reader& reader) {
    return reader.all(
        "SELECT j.name, COUNT(*), MAX(t.at_us) FROM job j JOIN job_transition t ON t.job = j.id AND t.number = "
        "j.transitions WHERE j.tenant = ? AND j.project = ? AND j.id >= ? AND j.phase = 'failed' AND t.at_us > ?"
        " GROUP BY j.name ORDER BY j.name",
        {std::string_view(where.tenant.str()), std::string_view(where.project.str()), std::string_view(first),
         since_us},
        [](const sql::Row& row) {
          return Counted{std::string(row.text(0)), row.integer(1), row.integer(2)};
        });
  });
}

}  // namespace falaj::jobs
