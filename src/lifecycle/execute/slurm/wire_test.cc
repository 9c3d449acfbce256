// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/slurm/wire.h"

#include <gtest/gtest.h>

#include "foundation/base/testing.h"

namespace falaj::execute::slurm {
namespace {

TEST(SlurmWire, SaysNothingOfWhatSlurmDecides) {
  Submission s;
  s.name = "a.1";
  s.script = "#!/bin/bash\n";
  const auto body = parse_json(submit_body(s)).as_object();
  const auto& job = body.at("job").as_object();
  EXPECT_EQ(body.at("script"), "#!/bin/bash\n");
  EXPECT_EQ(job.at("no_requeue"), true);
  EXPECT_TRUE(job.at("environment").is_object()) << "Slurm refuses a job without one";
  for (const auto* key : {"partition", "account", "qos", "gpus_per_task", "memory_per_cpu", "time_limit", "deadline",
                          "nodes", "nodelist", "tasks_per_node", "requeue"})
    EXPECT_FALSE(job.contains(key)) << key;
}

TEST(SlurmWire, SaysWhatWasAskedFor) {
  Submission s;
  s.nodes = {"n1", "n2"};
  s.deadline_seconds = 90;
  s.gpus_per_task = "a100:2";
  s.time_limit_minutes = 7;
  s.environment = {{"PATH", "/bin"}};
  const auto job = parse_json(submit_body(s)).at("job");
  EXPECT_EQ(job.at("nodes"), 2);
  EXPECT_EQ(job.at("nodelist"), "n1,n2");
  EXPECT_EQ(job.at("deadline"), "now+90seconds") << "as text, or it is refused";
  EXPECT_EQ(job.at("gpus_per_task"), "a100:2");
  EXPECT_EQ(job.at("time_limit"), 7);
  EXPECT_EQ(job.at("environment").at("PATH"), "/bin");
}

TEST(SlurmWire, ReadsEverySpellingOfAnError) {
  EXPECT_FALSE(refusal_of(parse_json(R"({"errors":[],"jobs":[]})")));
  EXPECT_EQ(refusal_of(parse_json(R"({"errors":[{"error_code":2014,"error":"no"}]})"))->number, 2014);
  EXPECT_EQ(refusal_of(parse_json(R"({"errors":[{"errno":-1,"error":"Unspecified error"}]})"))->number, kUnspecified);
  const auto unknown = refusal_of(parse_json(R"({"errors":[{"error_number":2017,"description":"gone"}]})"));
  EXPECT_EQ(unknown->number, kNoSuchJob);
  EXPECT_EQ(unknown->text, "gone");
  EXPECT_EQ(error_of("x", {2014, ""}).code(), Code::invalid);
  EXPECT_EQ(error_of("x", {kUnspecified, ""}).code(), Code::unavailable);
  EXPECT_EQ(error_of("x", {1811, ""}).code(), Code::unavailable);
}

TEST(SlurmWire, ReadsJobs) {
  const auto jobs = jobs_of(parse_json(R"({"jobs":[{"job_id":7,"name":"a.1","comment":"falaj attempt a.1",
    "job_state":"FAILED","state_reason":"NonZeroExitCode","exit_code":768,"start_time":5,"end_time":9,
    "array_task_id":null}, 3, {"job_id":8}]})"));
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_EQ(jobs[0].id, 7);
  EXPECT_EQ(jobs[0].state, "FAILED");
  EXPECT_EQ(jobs[0].exit_status, 768);
  EXPECT_EQ(jobs[0].end_s, 9);
  EXPECT_EQ(jobs[1].state, "");
  EXPECT_ERROR(jobs_of(parse_json("{}")), Code::unavailable);
  EXPECT_ERROR(jobs_of(parse_json("[]")), Code::unavailable);
}

TEST(SlurmWire, ReadsNodes) {
  const auto nodes = nodes_of(parse_json(R"json({"nodes":[
    {"name":"n1","state":"mixed","state_flags":[],"cpus":8,"real_memory":4000,"features":"big,fast",
     "gres":"gpu:a100:2(S:0-1)","partitions":["low"]},
    {"name":"n2","state":"idle","state_flags":["DRAIN"],"cpus":8,"real_memory":4000,"gres":""},
    {"name":"n3","state":"down","cpus":8},
    {"name":"n4","state":"idle","state_flags":["NOT_RESPONDING"]}]})json"),
                              "eu", Isolation::contained);
  ASSERT_EQ(nodes.size(), 4U);
  EXPECT_EQ(nodes[0].cpu_millis, 8000);
  EXPECT_EQ(nodes[0].memory_bytes, std::int64_t{4000} << 20);
  EXPECT_EQ(nodes[0].zone, "eu");
  EXPECT_EQ(nodes[0].isolation_max, Isolation::contained);
  EXPECT_EQ(nodes[0].labels.at("slurm.feature/fast"), "true");
  EXPECT_EQ(nodes[0].labels.at("slurm.partition/low"), "true");
  ASSERT_EQ(nodes[0].gpus.size(), 2U);
  EXPECT_EQ(nodes[0].gpus[1].type, "a100");
  EXPECT_TRUE(nodes[0].up);
  for (int i = 1; i < 4; ++i) EXPECT_FALSE(nodes[static_cast<std::size_t>(i)].up) << i;
}

TEST(SlurmWire, ReadsGres) {
  using Gpus = std::vector<std::pair<std::string, std::int64_t>>;
  EXPECT_EQ(gpus_of(""), Gpus{});
  EXPECT_EQ(gpus_of("gpu"), (Gpus{{"", 1}}));
  EXPECT_EQ(gpus_of("gpu:4"), (Gpus{{"", 4}}));
  EXPECT_EQ(gpus_of("gpu:a100"), (Gpus{{"a100", 1}}));
  EXPECT_EQ(gpus_of("license:3,gpu:a100:4(S:0,1),gpu:v100:2(S:1)"), (Gpus{{"a100", 4}, {"v100", 2}}));
  EXPECT_EQ(gpus_of("gpu:a100:99999999999"), (Gpus{{"a100", 1024}}));
}

}  // namespace
}  // namespace falaj::execute::slurm
