// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lifecycle/jobs/pools.h"
#include "lifecycle/jobs/record.h"
#include "storage/sql/database.h"

namespace falaj::jobs {

// One entry of a job's history.
struct Transition {
  std::int64_t number = 0, at_us = 0, epoch = 0;
  Phase phase = Phase::pending;
  std::string why;
};

// A job as it is now, and what led there since it was last written.
struct Change {
  Record* record = nullptr;
  std::vector<Transition> transitions;
  std::vector<Spent> spent;
  std::string granted;  // the wish that has been seen to; "" = none
};

// What a person asked of a job, until the dispatcher has seen to it.
struct Wish {
  JobId job;
  std::string what, by;  // "cancel" or "requeue"
};

struct ListJobs {
  std::string phase, queue, owner, name, array;  // "" = any
  bool live = false;                             // only those that have not ended
  std::string after;                             // the id that the page before ended with
  std::size_t limit = 100;
};

// What attempts took, summed up by one of tenant, project, owner, queue, job.
struct Usage {
  std::string key;
  std::int64_t jobs = 0, attempts = 0;
  double cpu_seconds = 0;  // used
  double cpu_allocated_seconds = 0, memory_gib_seconds = 0, gpu_seconds = 0;
  double energy_joules = 0;  // of processors, where they are counted
  double cost = 0;           // by what the pools of their nodes cost, for the part of the nodes that they held
  double lost_seconds = 0;   // of attempts that a node or a failure took along: allocated processor seconds
};
// A job that ran, as a trace has it: what each of its tasks held, and for how long.
struct PastJob {
  std::string id, name, owner, queue;
  std::int64_t submitted_us = 0, ran_us = 0, limit_us = 0, deadline_us = 0;  // 0 = none
  std::int64_t tasks = 1, cpu_millis = 0, memory_bytes = 0, gpu_millis = 0;
};
// Jobs of a project that wait, by queue; or that failed, by name.
struct Counted {
  std::string name;
  std::int64_t count = 0;
  std::int64_t at_us = 0;  // when the one that waits longest was submitted; when the last one failed
};
enum class UsageBy { tenant, project, owner, queue, job };

// What the dispatcher needs of a store. Requires: nobody else changes the life of a job.
class Book {
 public:
  struct Outcome {
    std::int64_t members = 0, live = 0, succeeded = 0;
  };
  virtual ~Book() = default;
  virtual void write(std::span<Change> changes) = 0;  // all of it, durable, or none
  virtual std::vector<Record> live() = 0;             // those that have not ended
  virtual std::vector<Wish> wishes() = 0;             // that nobody has seen to
  virtual std::optional<Record> find(JobId id) = 0;
  // Of a job, or of all members of an array; nothing when there is none of that id.
  virtual std::optional<Outcome> outcome(const std::string& id) = 0;
  virtual void write_pools(std::span<const PoolChange> changes) = 0;  // all of it, durable, or none
  virtual std::map<std::string, PoolLife> pools() = 0;
};

// The rows of jobs. Thread-safe, as the database is. Each write is one audited record.
class Store final : public Book {
 public:
  static std::span<const sql::Migration> migrations();
  // What else is written when a job is placed: asked before the write, done within it.
  using BesidePlacing = std::function<std::function<void(sql::Writer&)>(const Record&)>;
  explicit Store(sql::Database& database, BesidePlacing beside_placing = {})
      : database_(database), beside_placing_(std::move(beside_placing)) {}

  // ---- by whoever submits
  void insert(sql::Writer& writer, std::span<const Record> records) const;
  // Throws not_found. Returns the phase it is in.
  Phase wish(sql::Writer& writer, const Where& where, const Wish& wish) const;

  // ---- by the dispatcher alone
  void write(std::span<Change> changes) override;
  std::vector<Record> live() override;
  std::vector<Wish> wishes() override;
  std::optional<Record> find(JobId id) override;
  std::optional<Outcome> outcome(const std::string& id) override;
  void write_pools(std::span<const PoolChange> changes) override;
  std::map<std::string, PoolLife> pools() override;

  // ---- by whoever looks
  Record job(const Where& where, JobId id);  // throws not_found
  bool is_in(const Where& where, const std::string& job_or_array) const;
  std::vector<Record> list(const Where& where, const ListJobs& which) const;
  std::vector<Transition> history(JobId id) const;
  std::vector<PoolEvent> pool_events(const std::string& pool, std::size_t limit) const;  // newest first
  // The newest attempts that ended by themselves, oldest first: who ran what for how long.
  struct Ran {
    std::string owner, name;
    std::int64_t tasks = 1, time_limit_us = 0, ran_us = 0;
  };
  std::vector<Ran> ran(std::size_t limit) const;
  // Those of a project that have ended, oldest first; and their removal, with their history but not their accounts.
  std::vector<Record> ended(const Where& where, const std::string& after, std::size_t limit) const;
  std::size_t remove(std::span<const Record> records, const sql::Act& act);
  // Those that ended within a time, by id; `after` is the last id of the page before.
  std::vector<PastJob> past(const iam::Scope& scope, std::int64_t from_us, std::int64_t until_us,
                            const std::string& after, std::size_t limit) const;
  std::vector<Usage> usage(const iam::Scope& scope, UsageBy by, std::int64_t from_us, std::int64_t until_us) const;
  std::vector<Counted> waiting(const Where& where) const;
  std::vector<Counted> failed(const Where& where, std::int64_t since_us) const;  // of those submitted lately

 private:
  sql::Database& database_;
  const BesidePlacing beside_placing_;
};

}  // namespace falaj::jobs
