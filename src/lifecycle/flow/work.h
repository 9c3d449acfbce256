// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "governance/vault/vault.h"
#include "lifecycle/flow/life.h"
#include "storage/sql/database.h"

namespace falaj::flow {

using vault::Where;

// One try of one step of a run.
struct Task {
  Where where;
  std::string pipeline, run;  // the run's id
  std::string owner;          // in whose name it acts: "user/ada"
  std::string step, kind;     // the instance, and what it does
  json::value body;
  std::int64_t attempt = 0;
  jobs::RetrySpec retries;
  std::int64_t time_limit_us = 0;
  std::string parent;    // the pipeline's own run in tracking
  json::value evidence;  // what gates before it found

  std::string id() const;  // "RUN/step/attempt": an effect of that name is done once
};

// A step before it begins.
struct Settled {
  json::value body;             // names are pinned to what they mean now
  json::value depends;          // everything that its outputs depend on besides the body; null = they are never kept
  std::optional<Done> already;  // it is so already: there is nothing to do
};

// What a run took so far.
struct Spent {
  double cpu_hours = 0, cost = 0;
};

// What steps do, in flow's words. Thread-safe. Everything but `insert` and `within` may be repeated after a kill, with
// the same task, and then has no second effect.
class Work {
 public:
  virtual ~Work() = default;
  // Reads only. Throws invalid, not_found, denied: the step then fails.
  virtual Settled settle(const Task& task) = 0;

  struct Job {
    std::string ticket;
    std::function<void(sql::Writer&)> insert;  // in the write that says that the step has begun
  };
  virtual Job submit(const Task& task) = 0;  // Requires: is_job(task.kind)

  struct Acted {
    Done done;
    // Instead of `done`: the effect itself, in the write that says that it is done. What it throws undoes that write,
    // and it is tried again: what will not go away it returns.
    std::function<Done(sql::Writer&)> within;
  };
  virtual Acted act(const Task& task) = 0;  // Requires: !is_job(task.kind)

  // What came of a ticket; nothing while it goes on.
  virtual std::optional<Done> look(const Task& task, const std::string& ticket) = 0;
  virtual void stop(const Task& task, const std::string& ticket, const std::string& why) = 0;
  // Whether outputs that were kept can still be used.
  virtual bool is_there(const Where& where, std::string_view kind, const json::value& outputs) = 0;
  virtual Spent spent(const Where& where, const std::vector<std::string>& tickets, std::int64_t since_us) = 0;
};

}  // namespace falaj::flow
