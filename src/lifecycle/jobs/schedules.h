// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "governance/iam/directory.h"
#include "governance/resource/resources.h"
#include "lifecycle/jobs/jobs.h"

namespace falaj::jobs {

// The times at or before `now_us` that nobody has seen to since `last_us`: only the newest counts, so that a server
// that was off for a week does not begin with a week's jobs. Nothing when none is due.
std::optional<std::int64_t> due(const Cron& cron, std::int64_t last_us, std::int64_t now_us);

// Submits what Schedule resources say, once for each time, in the name of whoever declared them last, as long as they
// may still submit jobs there. Thread-safe.
class Schedules {
 public:
  static std::span<const sql::Migration> migrations();
  Schedules(sql::Database& database, resource::Resources& resources, const iam::Directory& directory, Jobs& jobs,
            const sys::Clock& clock)
      : database_(database), resources_(resources), directory_(directory), jobs_(jobs), clock_(clock) {}

  std::size_t run_due();  // how many jobs were submitted

 private:
  struct Last {
    std::int64_t at_us = 0;
    std::string job;
  };
  std::optional<Last> last_of(const resource::Metadata& metadata) const;
  bool run_one(const resource::Stored& stored, std::int64_t now_us);

  sql::Database& database_;
  resource::Resources& resources_;
  const iam::Directory& directory_;
  Jobs& jobs_;
  const sys::Clock& clock_;
};

}  // namespace falaj::jobs
