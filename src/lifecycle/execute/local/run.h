// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "foundation/sys/clock.h"
#include "foundation/sys/descriptor.h"
#include "lifecycle/execute/local/cgroups.h"
#include "lifecycle/execute/local/disk_watch.h"
#include "lifecycle/execute/local/ending.h"
#include "lifecycle/execute/local/images.h"
#include "lifecycle/execute/local/loop.h"
#include "lifecycle/execute/local/machine.h"
#include "lifecycle/execute/local/sandbox.h"
#include "lifecycle/execute/local/task_log.h"
#include "lifecycle/execute/local/wire.h"

namespace falaj::execute::local {

// One attempt from its start to its end: its init, its groups, its output and its clocks. Not thread-safe; everything
// happens in the loop.
class Run {
 public:
  // Called once each, `running` at most once and before `ended`; the Run may be dropped in neither.
  struct Calls {
    std::function<void(Isolation reached)> running;
    std::function<void(Ending ending)> ended;
  };

  Run(Loop& loop, const sys::Clock& clock, Machine& machine, Images& images, std::string log_directory, Calls calls);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void start(const Order& order);        // what goes wrong is an ending
  Used used() const;                     // so far
  void stop(Micros grace, Cause cause);  // again with a shorter grace: the shorter one holds

 private:
  struct TaskRun {
    int rank = 0;
    sys::Descriptor output;
    std::unique_ptr<TaskLog> log;
    std::unique_ptr<Group> group;
    bool ended = false;
  };

  Isolation level_of(const Order& order) const;
  void prepare_view(const Order& order, AttemptStart& start);
  void show(const Mount& mount, AttemptStart& start);
  void prepare_tasks(const Order& order, AttemptStart& start);
  void launch(const Order& order);
  void give_up(const Error& error);
  void watch_disk(const Launch& launch);
  void hear();
  void init_died();
  void hear(const InitSays& says);
  void task_ended(const InitSays& says);
  void read_output(TaskRun& task, bool to_its_end);
  void signal_init(int number);
  void kill();
  void finish(Ending ending);
  GroupUse use_of(const TaskRun& task) const;

  Loop& loop_;
  const sys::Clock& clock_;
  Machine& machine_;
  Images& images_;
  const std::string log_directory_;
  const Calls calls_;

  std::vector<TaskRun> tasks_;
  Started started_;
  sys::Descriptor network_;
  Isolation level_ = Isolation::none;
  Micros grace_{0};
  int spares_ = 0;
  std::vector<TaskEnd> ends_;
  Used used_;  // as processes told; groups know better
  Cause cause_ = Cause::none;
  std::optional<Ending> failed_;  // why it could not start
  bool own_view_ = false;
  bool stopping_ = false, finished_ = false;
  std::optional<Loop::Timer> time_limit_, kill_;
  std::optional<DiskWatch> disk_;
};

}  // namespace falaj::execute::local
