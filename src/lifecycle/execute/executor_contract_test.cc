// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/executor_contract.h"

#include "lifecycle/execute/local/testing.h"
#include "lifecycle/execute/slurm/slurm_executor.h"
#include "lifecycle/execute/slurm/testing.h"

// Every executor; all in this one file, because a suite's tests may be compiled only once.
namespace falaj::execute {
namespace {

std::string name_of_maker(const testing::TestParamInfo<ExecutorMaker>& info) { return info.param.name; }

class LocalAtHand final : public ExecutorAtHand {
 public:
  explicit LocalAtHand(LocalSettings settings) : node_(std::move(settings)) {}
  Executor& get() override { return node_.executor(); }
  void reopen() override { node_.reopen(); }
  std::string directory() override { return node_.directory(); }

 private:
  local::TestNode node_;
};

ExecutorMaker local_at(Isolation level) {
  return {std::string(name_of(level)),
          [level] {
            LocalSettings settings;
            settings.isolation_max = level;
            return std::make_unique<LocalAtHand>(settings);
          },
          level == Isolation::isolated ? Network::none : Network::host};
}

INSTANTIATE_TEST_SUITE_P(Local, ExecutorContract,
                         testing::Values(local_at(Isolation::isolated), local_at(Isolation::contained),
                                         local_at(Isolation::restricted)),
                         name_of_maker);

class SlurmAtHand final : public ExecutorAtHand {
 public:
  explicit SlurmAtHand(const std::string& submit) : settings_(slurm::TestCluster::shared().settings(submit)) {
    reopen();
  }
  Executor& get() override { return *executor_; }
  void reopen() override {
    executor_.reset();
    executor_ = std::make_unique<slurm::SlurmExecutor>(settings_, slurm::make_gateway(settings_, processes_), clock_);
  }
  std::string directory() override { return settings_.directory + "-work"; }

 private:
  const slurm::Settings settings_;
  sys::RealClock clock_;
  sys::RealProcesses processes_;
  std::unique_ptr<Executor> executor_;
};

ExecutorMaker slurm_by(const std::string& submit) {
  return {submit,
          [submit]() -> std::unique_ptr<ExecutorAtHand> {
            if (!slurm::TestCluster::is_installed()) return nullptr;
            return std::make_unique<SlurmAtHand>(submit);
          },
          Network::none};
}

INSTANTIATE_TEST_SUITE_P(Slurm, ExecutorContract, testing::Values(slurm_by("rest"), slurm_by("sbatch")), name_of_maker);

}  // namespace
}  // namespace falaj::execute
