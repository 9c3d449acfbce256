// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/process.h"
#include "lifecycle/execute/executor.h"
#include "lifecycle/execute/slurm/attempt_files.h"
#include "lifecycle/execute/slurm/gateway.h"
#include "lifecycle/execute/slurm/settings.h"

namespace falaj::execute::slurm {

// Hands attempts to a Slurm cluster, which places them, and follows them there. One attempt is one Slurm job, named
// like it. What must outlive this program is in a directory shared with the nodes (see script.h), so that it can die
// and come back, and so that an end is known even when Slurm has forgotten the job.
//
// One thread follows: it asks Slurm what changed, tells jobs to stop and ends those that do not. All else waits for it
// or reads what it found.
class SlurmExecutor final : public Executor {
 public:
  SlurmExecutor(Settings settings, std::unique_ptr<Gateway> gateway, const sys::Clock& clock);
  ~SlurmExecutor() override;

  std::vector<Node> nodes() override;
  void start(const Launch& launch) override;
  void stop(std::string_view attempt, Micros grace) override;
  // Throws unavailable when nothing changed and Slurm does not answer.
  std::vector<Report> poll(std::uint64_t& seen, Micros at_most) override;
  LogPage logs(std::string_view attempt, int rank, std::int64_t offset, std::int64_t bytes_max) override;
  void forget(std::string_view attempt) override;
  void drop_logs(std::string_view attempt) override;

 private:
  struct Attempt {
    // Found again by its record, it may not have been submitted: Slurm is asked first.
    bool is_submitted() const { return !submitting && (stored.job != 0 || stored.ending); }
    Stored stored;
    Report report;
    bool submitting = false;  // a thread in `start` has it
    Micros submitted{0};      // a list asked for before then may not have it; monotonic, as all below
    int missing = 0;          // so many lists in a row did not have it
    Micros ended_seen{0};     // since when Slurm says it ended, while its record is not there yet
    Micros stop_grace{0};
    bool told = false, killed = false, cancelled = false;  // how far stopping it has come
    Micros next_step{0};                                   // when to go on with that
  };
  using Attempts = std::map<std::string, Attempt, std::less<>>;

  void load();
  void submit(const Launch& launch, bool may_be_there);
  std::optional<SlurmId> find_in_slurm(const std::string& attempt);
  void record_stop(const std::string& name, Stop why, Micros grace);

  // The following thread's, in following.cc.
  void follow();
  void refresh();
  void find_again(const std::vector<Job>& jobs);
  void take(const std::string& name, const std::optional<Job>& job);
  void conclude(const std::string& name, const Attempt& seen, const std::optional<Job>& job);
  void enforce_limits();
  void cut_logs();
  void push_stops();
  void push_stop(Attempt& attempt);
  Micros next_stop() const REQUIRES(mu_);
  bool any_active() const REQUIRES(mu_);
  void changed() REQUIRES(mu_);

  const Settings settings_;
  const std::unique_ptr<Gateway> gateway_;
  const sys::Clock& clock_;
  AttemptFiles files_;
  std::int64_t since_s_ = 0;  // of the following thread
  Micros full_list_at_{0}, cut_logs_at_{0};

  mutable Mutex mu_;
  std::condition_variable changed_, wake_;
  Attempts attempts_ GUARDED_BY(mu_);
  std::uint64_t version_ GUARDED_BY(mu_) = 1;
  bool stopping_ GUARDED_BY(mu_) = false, woken_ GUARDED_BY(mu_) = false;
  bool fresh_ GUARDED_BY(mu_) = false;  // what we loaded has been compared with Slurm
  std::string fault_ GUARDED_BY(mu_);   // why the last question got no answer
  std::thread follower_;
};

// By settings.submit.
std::unique_ptr<Gateway> make_gateway(const Settings& settings, sys::Processes& processes);

}  // namespace falaj::execute::slurm
