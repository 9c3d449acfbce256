// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/yaml.h"
#include "lifecycle/flow/plan.h"

namespace falaj::flow {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

PipelineSpec spec_of(const std::string& text) { return decode<PipelineSpec>(parse_json(text), "pipeline"); }

std::vector<std::string> faults_of(const std::string& text) {
  Faults faults;
  PipelineSpec spec;
  decode_into(spec, parse_json(text), faults, "spec");
  if (faults.empty())
    check(
        spec, [](const json::value&, const std::string&, Faults&) {}, faults);
  std::vector<std::string> out;
  for (const auto& fault : faults) out.push_back(fault.where + ": " + fault.what);
  return out;
}

std::string pipeline(const std::string& steps, const std::string& parameters = "{}") {
  return fmt::format(R"({{"parameters": {}, "steps": [{}]}})", parameters, steps);
}
const std::string kA = R"({"name": "a", "run": {"command": ["true"]}})";

TEST(Plan, EveryFaultIsSaidAtOnceWithItsPlace) {
  const auto faults = faults_of(pipeline(
      R"({"name": "a", "run": {"command": ["${{params.nothing}}"]}},
         {"name": "b", "after": ["c"], "sql": {"query": "SELECT 1", "into": "x", "moed": "append"}},
         {"name": "d", "run": {"command": ["x"]}, "train": {}},
         {"name": "a", "gate": {"model": "m", "version": "${{steps.b.outputs.auc}}", "conditions": [{}]}},
         {"name": "e", "when": "${{params.depth}} + 1", "run": {"command": ["x"]}})",
      R"({"depth": {"type": "int", "default": 3}, "bad": {"type": "int", "default": "x"}})"));
  EXPECT_THAT(faults,
              ElementsAre(HasSubstr("spec.parameters.bad.default: must be of type int"),
                          HasSubstr("spec.steps[3].name: 'a' is there twice"),
                          HasSubstr("spec.steps[0].run.command[0]: no parameter 'nothing'; there are: bad, depth"),
                          HasSubstr("spec.steps[1].after[0]: no step 'c'"),
                          HasSubstr("spec.steps[1].sql.moed: unknown field; did you mean 'mode'"),
                          HasSubstr("spec.steps[2]: must do one thing"),
                          HasSubstr("spec.steps[3].gate.version: a sql step has no output 'auc'; there are: "
                                    "dataset, digest, name, rows, version"),
                          HasSubstr("spec.steps[4].when: must be true or false, but is int64")));
}

TEST(Plan, ACircleIsNamed) {
  EXPECT_THAT(faults_of(pipeline(R"({"name": "a", "after": ["c"], "run": {"command": ["x"]}},
                                    {"name": "b", "run": {"command": ["${{steps.a.outputs.run}}"]}},
                                    {"name": "c", "after": ["b"], "run": {"command": ["x"]}},
                                    {"name": "d", "after": ["c"], "run": {"command": ["x"]}})")),
              ElementsAre("spec.steps: wait for each other in a circle: a after c after b after a"));
  EXPECT_THAT(faults_of(pipeline(R"({"name": "a", "run": {"command": ["${{steps.a.outputs.run}}"]}})")).size(), 2u);
}

TEST(Plan, WhatIsKnownOnlyLaterIsNotHeldAgainstIt) {
  EXPECT_THAT(faults_of(pipeline(kA + R"(, {"name": "s", "trainSet": {"service": "${{params.service}}", "spine":
                                          "rows", "into": "${{params.into}}"}},
                                          {"name": "g", "gate": {"model": "m", "version": "${{steps.t.outputs.version}}",
                                           "conditions": [{"metric": "auc", "atLeast": "${{params.least}}"}]}},
                                          {"name": "t", "matrix": {"d": [1, 2]}, "train": {"depth": "${{matrix.d}}"}})",
                                 R"({"service": {}, "into": {}, "least": {"type": "number"}})")),
              IsEmpty());
  // But the type is known, and cannot be right.
  EXPECT_THAT(
      faults_of(pipeline(kA + R"(, {"name": "p", "promote": {"model": "m", "version": "${{steps.a.outputs.run}}",
                                          "alias": "x"}})")),
      ElementsAre("spec.steps[1].promote.version: must be a whole number, not text"));
  // A default is held to the rules.
  EXPECT_THAT(
      faults_of(pipeline(R"({"name": "s", "trainSet": {"service": "x", "spine": "rows", "into": "${{params.i}}"}})",
                         R"({"i": {"default": "NOT A NAME"}})")),
      ElementsAre(HasSubstr("spec.steps[0].trainSet.into")));
}

TEST(Plan, TriggersSayOneThingAndEveryParameterThatHasNoDefault) {
  const auto faults = faults_of(R"({"parameters": {"rows": {}, "n": {"type": "int", "default": 1}}, "steps": [)" + kA +
                                R"(], "triggers": [{"cron": "@daily"}, {"dataset": "x", "cron": "@daily",
        "parameters": {"rows": "${{trigger.dataset}}"}}, {"dataset": "x", "parameters": {"rows": "${{params.n}}", "n":
        "many", "other": 1}}]})");
  EXPECT_THAT(faults, ElementsAre(HasSubstr("spec.triggers[0].parameters: 'rows' has no default"),
                                  HasSubstr("spec.triggers[1]: must be one of"),
                                  HasSubstr("spec.triggers[2].parameters.n: must be of type int"),
                                  HasSubstr("spec.triggers[2].parameters.other: the pipeline has no such"),
                                  HasSubstr("spec.triggers[2].parameters.rows: 'params.n': only trigger.NAME")));
}

TEST(Plan, AMatrixIsEveryCombinationAndWhoComesAfterWaitsForAll) {
  const auto plan = plan_of(spec_of(pipeline(R"(
      {"name": "z", "run": {"command": ["${{steps.t.outputs.version}}"]}},
      {"name": "t", "after": ["a"], "matrix": {"d": [1, 2], "e": ["x", "y"]}, "run": {"command": ["${{matrix.d}}"]}},
      )" + kA)));
  std::vector<std::string> ids;
  for (const auto& instance : plan.instances) ids.push_back(instance.id);
  EXPECT_THAT(ids, ElementsAre("a", "t.1", "t.2", "t.3", "t.4", "z"));
  EXPECT_EQ(plan.instances[5].needs.size(), 4u);
  EXPECT_EQ(plan.instances[3].matrix.at("d"), json::value(2));
  EXPECT_EQ(plan.instances[3].matrix.at("e"), json::value("x"));
}

TEST(Plan, TooManyCombinationsAreRefused) {
  std::string values = "1";
  for (int i = 2; i <= 40; ++i) values += fmt::format(", {}", i);
  EXPECT_THAT(faults_of(pipeline(fmt::format(R"({{"name": "t", "matrix": {{"d": [{0}], "e": [{0}]}}, "run": {{"command":
                                             ["x"]}}}})",
                                             values))),
              ElementsAre(HasSubstr("spec.steps: are 1001 with all combinations; at most 1000")));
}

TEST(Plan, ParametersAreReadAsTheirTypes) {
  const auto spec =
      spec_of(pipeline(kA, R"({"n": {"type": "int", "default": 1}, "x": {"type": "number", "default": 0.5},
                                             "b": {"type": "boolean", "default": false}, "t": {}})"));
  const auto given = parameters_of(spec, {{"n", "7"}, {"x", "1e-3"}, {"b", "true"}, {"t", "7"}});
  EXPECT_EQ(json::value(given), json::value({{"b", true}, {"n", 7}, {"t", "7"}, {"x", 1e-3}}));
  EXPECT_THROW(parameters_of(spec, {{"n", "seven"}, {"t", "x"}}), Error);
  EXPECT_THROW(parameters_of(spec, {{"t", "x"}, {"other", 1}}), Error);
  EXPECT_THROW(parameters_of(spec, {}), Error);
}

}  // namespace
}  // namespace falaj::flow
