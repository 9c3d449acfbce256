// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/spec.h"

#include <gtest/gtest.h>

#include <set>

#include "foundation/base/yaml.h"

namespace falaj::jobs {
namespace {

// The places of all faults of a spec.
std::set<std::string> faults_of(std::string_view yaml) {
  JobSpec spec;
  Faults faults;
  decode_into(spec, parse_yaml(yaml).at(0).value, faults, "spec");
  check(spec, faults);
  std::set<std::string> out;
  for (const auto& fault : faults) out.insert(fault.where);
  return out;
}

TEST(JobSpec, TakesWhatAJobNeeds) {
  EXPECT_TRUE(faults_of("{command: [python, train.py]}").empty());
  EXPECT_TRUE(faults_of(R"(
command: [python, train.py, --epochs, '3']
tasks: 4
tasksMin: 2
cpus: 0.5
memory: 4GiB
gpus: 2
gpuType: a100
timeLimit: 2h
expected: 30m
deadline: 2030-01-31T12:00:00Z
retries: {max: 3, backoff: 10s}
preemptible: true
nodes: {labels: {disk: fast}, layout: spread, zones: [uae]}
environment: {SEED: '7'}
inputs: [{name: train, dataset: flights@3}, {name: base, artifact: 0123/model}]
run: {experiment: late flights}
)")
                  .empty());
}

TEST(JobSpec, ListsEveryFaultAtOnce) {
  EXPECT_EQ(faults_of(R"(
command: ['']
tasks: 2
tasksMin: 3
spares: 2
cpus: 0
memory: lots
gpus: 1.5
deadline: tomorrow
retries: {max: -1, not: [2, 0]}
network: all
environment: {FALAJ_URL: x, 1A: x, RANK: '0'}
inputs: [{name: a}, {name: a, dataset: x, blob: y}]
after: {ok: [x]}
comand: [x]
)"),
            (std::set<std::string>{"spec.command[0]", "spec.tasksMin", "spec.spares", "spec.cpus", "spec.memory",
                                   "spec.gpus", "spec.deadline", "spec.retries.max", "spec.retries.not[1]",
                                   "spec.network", "spec.environment.FALAJ_URL", "spec.environment.1A",
                                   "spec.environment.RANK", "spec.inputs[0]", "spec.inputs[1]", "spec.inputs[1].name",
                                   "spec.after.ok[0]", "spec.comand"}));
  EXPECT_EQ(faults_of("{}"), std::set<std::string>{"spec.command"});
}

TEST(JobSpec, HasLimits) {
  JobSpec spec;
  spec.command = {std::string(128 * 1024 - 1, 'x')};
  Faults faults;
  check(spec, faults);
  EXPECT_TRUE(faults.empty());
  spec.command.push_back("x");
  check(spec, faults);
  EXPECT_EQ(faults.size(), 1u);
  faults.clear();
  spec.command = {std::string("a\0b", 3)};
  check(spec, faults);
  EXPECT_EQ(faults.size(), 1u);
}

}  // namespace
}  // namespace falaj::jobs
