// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include <fmt/format.h>

#include "api/testing.h"
#include "foundation/base/testing.h"
#include "lifecycle/jobs/jobs.h"
#include "lifecycle/jobs/schedules.h"
#include "lifecycle/jobs/testing.h"

namespace falaj::api {
namespace {

class JobRoutes : public testing::Test {
 protected:
  std::string submit(const std::string& spec = R"({"command":["true"]})") {
    const auto answer = api.post("/v1/jobs?" + kProject, fmt::format(R"({{"jobs":[{{"name":"x","spec":{}}}]}})", spec));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return std::string(answer.json().at("jobs").at(0).at("id").as_string());
  }
  json::value job(const std::string& id) { return api.get(fmt::format("/v1/jobs/{}?{}", id, kProject)).json(); }
  // Looks until the job is there, moving the clock on; the threads of jobs do the rest.
  std::string phase_after(const std::string& id, std::string_view wanted, bool clock_moves = true) {
    std::string phase;
    for (const auto until = real.now() + kPatience; phase != wanted && real.now() < until;) {
      if (clock_moves) api.clock.advance(std::chrono::milliseconds(100));
      phase = job(id).at("phase").as_string();
    }
    return phase;
  }
  static constexpr sys::Micros kPatience = std::chrono::seconds(60);
  const sys::RealClock real{};
  TestApi api;
};

TEST_F(JobRoutes, AJobIsSubmittedAndRunsToItsEnd) {
  api.jobs->start();
  const auto id = submit();
  // Were it over before anybody heard that it runs, nobody would say that it ran.
  EXPECT_EQ(phase_after(id, "running", false), "running");
  EXPECT_EQ(phase_after(id, "succeeded"), "succeeded") << json::serialize(job(id));
  const auto done = job(id);
  EXPECT_EQ(done.at("owner").as_string(), "user/admin");
  EXPECT_EQ(done.at("exit_code").as_int64(), 0);
  EXPECT_EQ(done.at("attempts").as_int64(), 1);
  // Its run says how it ended.
  const auto run = api.get(fmt::format("/v1/runs/{}?{}", std::string(done.at("run_id").as_string()), kProject)).json();
  EXPECT_EQ(run.at("status").as_string(), "FINISHED");
  const auto events = api.get(fmt::format("/v1/jobs/{}/events?{}", id, kProject)).json();
  std::vector<std::string> phases;
  for (const auto& event : events.at("items").as_array()) phases.emplace_back(event.at("phase").as_string());
  EXPECT_EQ(phases, (std::vector<std::string>{"pending", "admitted", "starting", "running", "finishing", "succeeded"}));
  EXPECT_EQ(api.audited("job.create"), 1u);
  EXPECT_GE(api.audited("job.transition"), 3u);
  const auto usage = api.get("/v1/usage?by=owner&" + kProject).json();
  EXPECT_EQ(usage.at("items").at(0).at("key").as_string(), "user/admin");
}

TEST_F(JobRoutes, EveryFaultOfEveryJobIsListed) {
  const auto answer = api.post("/v1/jobs?" + kProject, R"({"jobs":[
      {"name":"a","spec":{"command":["x"],"queue":"none","cpus":0}},
      {"name":"b","spec":{"command":["x"],"gpuType":"a100","priorityClass":"none"}}]})");
  EXPECT_EQ(answer.status, 400);
  std::vector<std::string> fields;
  const auto said = answer.json();
  for (const auto& detail : said.at("error").at("details").as_array())
    fields.emplace_back(detail.at("field").as_string());
  EXPECT_EQ(fields, (std::vector<std::string>{"jobs[0].spec.cpus", "jobs[0].spec.queue", "jobs[1].spec.gpuType",
                                              "jobs[1].spec.priorityClass"}));
  EXPECT_TRUE(api.get("/v1/jobs?" + kProject).json().at("items").as_array().empty());
}

TEST_F(JobRoutes, FilesOfJobsAreReadWithTheirPlaces) {
  const auto post = [&](const std::string& yaml) {
    return api.post("/v1/jobs?" + kProject,
                    json::serialize(json::value{{"sources", {{{"file", "job.yaml"}, {"text", yaml}}}}}));
  };
  const auto good =
      post("apiVersion: falaj/v1\nkind: Job\nmetadata: {name: train}\nspec: {command: ['true'], array: {count: 3}}\n");
  ASSERT_EQ(good.status, 200) << good.body;
  EXPECT_EQ(good.json().at("jobs").at(0).at("count").as_int64(), 3);
  EXPECT_EQ(api.get("/v1/jobs?" + kProject).json().at("items").as_array().size(), 3u);
  const auto bad = post("apiVersion: falaj/v1\nkind: Job\nmetadata: {name: train}\nspec:\n  comand: ['true']\n");
  EXPECT_EQ(bad.status, 400);
  EXPECT_NE(bad.body.find("job.yaml:5: spec.comand"), std::string::npos) << bad.body;
  EXPECT_EQ(post("kind: Zone\n").status, 400);
}

TEST_F(JobRoutes, ArraysAndDependenciesWait) {
  api.jobs->start();
  const auto first = submit();
  const auto second = submit(fmt::format(R"({{"command":["true"],"after":{{"ok":["{}"]}}}})", first));
  EXPECT_EQ(phase_after(second, "succeeded"), "succeeded");
  EXPECT_EQ(job(first).at("phase").as_string(), "succeeded");
  EXPECT_LE(std::string(job(first).at("ended").as_string()), std::string(job(second).at("started").as_string()));
  const auto nobody =
      api.post("/v1/jobs?" + kProject,
               R"({"jobs":[{"name":"x","spec":{"command":["x"],"after":{"ok":["01h00000000000000000000000"]}}}]})");
  EXPECT_EQ(nobody.status, 400) << nobody.body;
}

TEST_F(JobRoutes, JobsOfOneCallWaitForEachOtherByName) {
  api.jobs->start();
  const auto post = [&](const std::string& ok) {
    return api.post(
        "/v1/jobs?" + kProject,
        fmt::format(R"({{"jobs":[{{"name":"train","spec":{{"command":["true"],"after":{{"ok":["prepare"]}}}}}},)"
                    R"({{"name":"prepare","spec":{{"command":["true"],"after":{{"ok":[{}]}}}}}}]}})",
                    ok));
  };
  const auto circle = post("\"train\"");
  EXPECT_EQ(circle.status, 400);
  EXPECT_NE(circle.body.find("'train' waits for 'prepare', which waits for 'train'"), std::string::npos) << circle.body;
  EXPECT_EQ(post("\"nobody\"").status, 400);
  const auto made = post("");
  ASSERT_EQ(made.status, 200) << made.body;
  const auto told = made.json();
  const auto& jobs = told.at("jobs").as_array();
  const std::string train(jobs.at(0).at("id").as_string()), prepare(jobs.at(1).at("id").as_string());
  EXPECT_EQ(phase_after(train, "succeeded"), "succeeded");
  EXPECT_EQ(job(train).at("spec").at("after").at("ok").at(0).as_string(), prepare);
  EXPECT_LE(std::string(job(prepare).at("ended").as_string()), std::string(job(train).at("started").as_string()));
}

TEST_F(JobRoutes, AJobThatFitsNowhereSaysSoAndIsCancelled) {
  api.jobs->start();
  const auto id = submit(R"({"command":["true"],"cpus":64})");
  std::string reason;
  for (const auto until = real.now() + kPatience; reason != "no_node" && real.now() < until;) {
    const auto why = api.get(fmt::format("/v1/jobs/{}/explain?{}", id, kProject)).json();
    reason = why.at("reason").as_string();
  }
  EXPECT_EQ(reason, "no_node");
  EXPECT_EQ(api.post(fmt::format("/v1/jobs/{}/cancel?{}", id, kProject), "{}").status, 200);
  EXPECT_EQ(phase_after(id, "cancelled"), "cancelled");
  EXPECT_EQ(api.audited("job.cancel"), 1u);
}

TEST_F(JobRoutes, OneStopsOnesOwnJobsAndOthersOnlyWithTheRight) {
  api.apply(
      "{apiVersion: falaj/v1, kind: RoleBinding, metadata: {tenant: acme, project: flights, name: ada}, spec: {role: "
      "developer, subjects: [user/ada]}}");
  const auto hers = api.call(
      Question{Method::post, "/v1/jobs?" + kProject, R"({"jobs":[{"name":"x","spec":{"command":["true"]}}]})"}.by(
          api.ada));
  ASSERT_EQ(hers.status, 200) << hers.body;
  const auto cancel = [&](const std::string& id) {
    return api.call(Question{Method::post, fmt::format("/v1/jobs/{}/cancel?{}", id, kProject), "{}"}.by(api.ada))
        .status;
  };
  EXPECT_EQ(cancel(std::string(hers.json().at("jobs").at(0).at("id").as_string())), 200);
  EXPECT_EQ(cancel(submit()), 403);
  EXPECT_EQ(cancel("nonsense"), 404);
}

TEST_F(JobRoutes, ARepeatedSubmissionIsOne) {
  const auto question =
      Question{Method::post, "/v1/jobs?" + kProject, R"({"jobs":[{"name":"x","spec":{"command":["true"]}}]})"}
          .by(api.admin)
          .with("Idempotency-Key", "k1");
  const auto first = api.call(question), second = api.call(question);
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.body, second.body);
  EXPECT_EQ(api.get("/v1/jobs?" + kProject).json().at("items").as_array().size(), 1u);
}

TEST_F(JobRoutes, WhatRanIsATrace) {
  api.jobs->start();
  const auto id = submit(R"({"command":["true"],"cpus":0.5,"tasks":2,"timeLimit":"1h"})");
  ASSERT_EQ(phase_after(id, "succeeded"), "succeeded");
  const auto trace = api.get("/v1/usage/trace?scope=/").json();
  ASSERT_EQ(trace.at("items").as_array().size(), 1u);
  const auto& job = trace.at("items").at(0);
  EXPECT_EQ(job.at("id").as_string(), id);
  EXPECT_EQ(job.at("tasks").as_int64(), 2);
  EXPECT_EQ(job.at("cpu_millis").as_int64(), 500);
  EXPECT_EQ(job.at("limit_us").as_int64(), 3'600'000'000);
  EXPECT_GT(job.at("ran_us").as_int64(), 0);
  EXPECT_TRUE(api.get("/v1/usage/trace?scope=/t/other").json().at("items").as_array().empty());
}

TEST_F(JobRoutes, LogsArePagedByOffset) {
  api.jobs->start();
  const auto id = submit();
  ASSERT_EQ(phase_after(id, "succeeded"), "succeeded");
  const auto all = api.get(fmt::format("/v1/jobs/{}/logs?{}", id, kProject)).json();
  EXPECT_TRUE(all.at("ended").as_bool());
  EXPECT_EQ(api.get(fmt::format("/v1/jobs/{}/logs?{}&attempt=7", id, kProject)).status, 404);
}

TEST_F(JobRoutes, AScheduleSubmitsItsJobWhenItsTimeHasComeAndNotTwice) {
  api.jobs->start();
  const std::string yaml =
      "{apiVersion: falaj/v1, kind: Schedule, metadata: {tenant: acme, project: flights, name: nightly}, spec: {cron: "
      "'@every 60s', job: {command: ['true']}}}";
  ASSERT_EQ(api.post("/v1/apply", json::serialize(json::value{{"sources", {{{"file", "x"}, {"text", yaml}}}}})).status,
            200);
  jobs::Schedules schedules(*api.database, *api.resources, *api.directory, *api.jobs, api.clock);
  EXPECT_EQ(schedules.run_due(), 0u);
  api.clock.advance(std::chrono::seconds(61));
  EXPECT_EQ(schedules.run_due(), 1u);
  EXPECT_EQ(schedules.run_due(), 0u);
  const auto listed = api.get("/v1/jobs?name=nightly&" + kProject).json();
  ASSERT_EQ(listed.at("items").as_array().size(), 1u);
  const auto first = std::string(listed.at("items").at(0).at("id").as_string());
  EXPECT_EQ(listed.at("items").at(0).at("owner").as_string(), "user/admin");
  EXPECT_EQ(listed.at("items").at(0).at("labels").at("schedule").as_string(), "nightly");
  EXPECT_EQ(phase_after(first, "succeeded"), "succeeded");
  api.clock.advance(std::chrono::hours(24));  // away for a day: made up for once
  EXPECT_EQ(schedules.run_due(), 1u);
  EXPECT_EQ(schedules.run_due(), 0u);
}

TEST_F(JobRoutes, TheMachinesNetworkIsARightOfItsOwn) {
  const auto bind = [&](const std::string& role) {
    api.apply("{apiVersion: falaj/v1, kind: RoleBinding, metadata: {tenant: acme, project: flights, name: " + role +
              "}, spec: {role: " + role + ", subjects: [user/ada]}}");
  };
  bind("developer");
  const auto status = [&] {
    return api
        .call(Question{Method::post, "/v1/jobs?" + kProject,
                       R"({"jobs":[{"name":"x","spec":{"command":["true"],"network":"host"}}]})"}
                  .by(api.ada))
        .status;
  };
  EXPECT_EQ(status(), 403);
  bind("operator");
  EXPECT_EQ(status(), 200);
}

TEST_F(JobRoutes, SecretsAreGivenByNameToThoseWhoMayReadThem) {
  const auto put = [&](const std::string& name) {
    return api.post("/v1/secrets?" + kProject, fmt::format(R"({{"name":"{}","value":"hunter2"}})", name));
  };
  ASSERT_EQ(put("db").status, 200);
  EXPECT_EQ(put("No Name").status, 400);
  const auto listed = api.get("/v1/secrets?" + kProject);
  EXPECT_EQ(listed.json().at("items").at(0).at("name").as_string(), "db");
  EXPECT_EQ(listed.body.find("hunter2"), std::string::npos);
  const std::string body = R"({"jobs":[{"name":"x","spec":{"command":["true"],"secrets":{"DB_PASSWORD":"db"}}}]})";
  const auto by_ada = [&] { return api.call(Question{Method::post, "/v1/jobs?" + kProject, body}.by(api.ada)).status; };
  api.apply(
      "{apiVersion: falaj/v1, kind: RoleBinding, metadata: {tenant: acme, project: flights, name: ada}, spec: {role: "
      "developer, subjects: [user/ada]}}");
  EXPECT_EQ(by_ada(), 403);
  const auto id = submit(R"({"command":["true"],"secrets":{"DB_PASSWORD":"db"}})");
  EXPECT_EQ(json::serialize(job(id)).find("hunter2"), std::string::npos);
  EXPECT_EQ(api.post("/v1/jobs?" + kProject,
                     R"({"jobs":[{"name":"x","spec":{"command":["true"],"secrets":{"X":"none","FALAJ_X":"db"}}}]})")
                .status,
            400);
  const vault::Where flights{{"acme"}, {"flights"}};
  EXPECT_EQ(api.jobs->secrets().reveal(flights, "db"), "hunter2");
  EXPECT_EQ(api.call(Question{Method::del, "/v1/secrets/db?" + kProject, ""}.by(api.admin)).status, 200);
  EXPECT_ERROR(api.jobs->secrets().reveal(flights, "db"), Code::not_found);
}

TEST_F(JobRoutes, JobsThatEndedLongAgoGoWhereAPolicySaysSo) {
  api.jobs->start();
  const auto id = submit();
  const auto array = submit(R"({"command":["true"],"array":{"count":3}})");
  ASSERT_EQ(phase_after(id, "succeeded"), "succeeded");
  ASSERT_EQ(phase_after(array, "succeeded"), "succeeded");
  const auto many = [&] { return api.get("/v1/jobs?" + kProject).json().at("items").as_array().size(); };
  for (const auto until = real.now() + kPatience; real.now() < until;) {
    api.clock.advance(std::chrono::milliseconds(100));
    if (api.get("/v1/jobs?live=true&" + kProject).json().at("items").as_array().empty()) break;
  }
  EXPECT_EQ(many(), 4u);
  api.clock.advance(std::chrono::hours(48));
  EXPECT_EQ(api.jobs->retain(), 0u) << "no policy, no removal";
  api.apply(
      "{apiVersion: falaj/v1, kind: RetentionPolicy, metadata: {tenant: acme, project: flights, name: jobs}, spec: "
      "{resources: ['job/x*'], keep: 1d, then: delete}}");
  EXPECT_EQ(api.jobs->retain(), 4u);
  EXPECT_EQ(many(), 0u);
  EXPECT_EQ(api.get(fmt::format("/v1/jobs/{}?{}", id, kProject)).status, 404);
  EXPECT_EQ(api.get("/v1/usage?by=job&" + kProject).json().at("items").as_array().size(), 4u) << "accounts stay";
}

TEST_F(JobRoutes, PoolsAreSeen) {
  api.jobs->start();
  api.apply(
      "{apiVersion: falaj/v1, kind: NodePool, metadata: {name: cloud}, spec: {nodes: ['c*'], scaling: hooks, max: 2, "
      "costPerHour: 2.5, shape: {cpus: 64, memory: 8GiB}, hooks: {up: absent, down: absent}}}");
  submit(R"({"command":["true"],"cpus":64})");
  json::value pool;
  for (const auto until = real.now() + kPatience; real.now() < until;) {
    api.clock.advance(std::chrono::milliseconds(100));
    const auto answer = api.get("/v1/pools/cloud?" + kProject);
    if (answer.status != 200) continue;
    pool = answer.json();
    if (pool.at("events").as_array().size() >= 2 && pool.at("pool").at("wanted").as_int64() == 0) break;
  }
  EXPECT_EQ(pool.at("pool").at("wanted").as_int64(), 0);
  EXPECT_EQ(pool.at("events").at(0).at("what").as_string(), "failed");
  EXPECT_EQ(pool.at("events").at(1).at("what").as_string(), "asked");
  EXPECT_EQ(api.get("/v1/pools?" + kProject).json().at("items").as_array().size(), 1u);
  EXPECT_EQ(api.get("/v1/pools/none?" + kProject).status, 404);
  EXPECT_GE(api.audited("pool.scale"), 2u);
}

TEST_F(JobRoutes, QueuesAreThoseTheProjectMayUse) {
  api.apply(
      "{apiVersion: falaj/v1, kind: Queue, metadata: {name: theirs}, spec: {tenants: [other]}}\n---\n"
      "{apiVersion: falaj/v1, kind: Queue, metadata: {name: ours}, spec: {tenants: [acme], limit: {cpus: 2}}}\n---\n"
      "{apiVersion: falaj/v1, kind: Queue, metadata: {tenant: acme, name: team}, spec: {parent: ours}}");
  std::set<std::string> names;
  const auto all = api.get("/v1/queues?" + kProject).json();
  for (const auto& queue : all.at("items").as_array()) names.emplace(queue.at("name").as_string());
  EXPECT_EQ(names, (std::set<std::string>{"default", "ours", "acme/team"}));
  submit(R"({"command":["true"],"queue":"team"})");
  EXPECT_EQ(
      api.post("/v1/jobs?" + kProject, R"({"jobs":[{"name":"x","spec":{"command":["x"],"queue":"theirs"}}]})").status,
      400);
}

}  // namespace
}  // namespace falaj::api
