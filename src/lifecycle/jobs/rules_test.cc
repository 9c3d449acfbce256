// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/rules.h"

#include <gtest/gtest.h>

namespace falaj::jobs {
namespace {

class WhereJobsRun : public testing::Test {
 protected:
  WhereJobsRun() {
    rules_.executors = {"local", "slurm"};
    rules_.queue_users = {{"default", {}}, {"cluster", {"acme"}}, {"acme/gpu", {}}, {"old", {}}};
    rules_.queue_executors = {{"cluster", "slurm"}, {"acme/gpu", "slurm"}, {"old", "gone"}};
  }
  std::string chosen(const std::string& tenant, const std::string& queue, const std::string& executor = "") {
    JobSpec spec;
    spec.queue = queue;
    spec.executor = executor;
    return rules_.executor_of(tenant, spec);
  }
  std::vector<std::string> faults_of(const std::string& queue, const std::string& executor) {
    JobSpec spec;
    spec.queue = queue;
    spec.executor = executor;
    Faults faults;
    check(spec, "acme", rules_, faults);
    std::vector<std::string> out;
    for (const auto& fault : faults) out.push_back(fault.where + ": " + fault.what);
    return out;
  }
  Rules rules_;
};

TEST_F(WhereJobsRun, TheJobSaysElseItsQueueElseTheFirst) {
  EXPECT_EQ(chosen("acme", "default"), "local");
  EXPECT_EQ(chosen("acme", "cluster"), "slurm");
  EXPECT_EQ(chosen("acme", "gpu"), "slurm") << "a tenant's own queue";
  EXPECT_EQ(chosen("acme", "cluster", "local"), "local");
  EXPECT_EQ(chosen("other", "cluster"), "local") << "a queue that it may not use decides nothing";
}

TEST_F(WhereJobsRun, AJobStaysWhereItWas) {
  Record record;
  record.where = {TenantName{"acme"}, ProjectName{"p"}};
  auto spec = std::make_shared<JobSpec>();
  spec->queue = "cluster";
  record.spec = spec;
  EXPECT_EQ(rules_.executor_of(record), "slurm");
  record.life.executor = "local";  // before its queue moved
  EXPECT_EQ(rules_.executor_of(record), "local");
  record.life.executor = "removed";
  EXPECT_EQ(rules_.executor_of(record), "slurm");
}

TEST_F(WhereJobsRun, WhatIsNotThereIsAFault) {
  EXPECT_TRUE(faults_of("default", "slurm").empty());
  EXPECT_EQ(faults_of("default", "moon"),
            std::vector<std::string>{"spec.executor: no executor 'moon'; there are: local, slurm"});
  EXPECT_EQ(faults_of("old", ""), std::vector<std::string>{"spec.queue: no executor 'gone'; there are: local, slurm"});
}

}  // namespace
}  // namespace falaj::jobs
