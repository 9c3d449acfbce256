// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/local_executor.h"

#include "lifecycle/execute/executor_contract.h"
#include "lifecycle/execute/local/testing.h"

namespace falaj::execute {
namespace {

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
  return {std::string(name_of(level)), [level] {
            LocalSettings settings;
            settings.isolation_max = level;
            return std::make_unique<LocalAtHand>(settings);
          }};
}

INSTANTIATE_TEST_SUITE_P(Local, ExecutorContract, testing::Values(local_at(Isolation::isolated)),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace falaj::execute
