// SPDX-License-Identifier: Apache-2.0
// Jobs through the real program, fully isolated, against what else could start them on this machine, in one run: a bare
// loop of fork and exec, and a Slurm cluster started for this.
//   - whole jobs a second, submitted together and followed to their ends
//   - from the call that submits a job until its process runs, one after the other
//   - durable submits over one kept connection, alone and many in a call, against sbatch
//   - 200 running jobs and a server that is killed: how many it finds again, and how soon
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/base/text.h"
#include "foundation/client/api_client.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/testing.h"
#include "lifecycle/execute/slurm/testing.h"
#include "tests/load/open_load.h"
#include "tests/program.h"

namespace falaj::tests {
namespace {

constexpr int kJobs = 600, kRounds = 3, kStarts = 60, kRunning = 200;
constexpr double kSubmitSeconds = 2;
constexpr std::uint64_t kLookUs = 2'000, kRarelyUs = 40'000;
const client::Query kProject{{"scope", "/t/default/p/default"}};

double seconds_of(sys::Micros time) { return std::chrono::duration<double>(time).count(); }

void claim(const std::string& what, double ours, std::string_view unit, std::string_view against, double limit,
           double goal, bool lower = false) {
  const json::object line{
      {"claim", what},  {"ours", ours},          {"unit", unit}, {"against", against},
      {"limit", limit}, {"ratio", ours / limit}, {"goal", goal}, {"better", lower ? "lower" : "higher"}};
  std::puts(json::serialize(line).c_str());
}

void must(bool holds, const std::string& what) {
  if (!holds) throw Error(Code::internal, "not so: " + what);
}

double bare_rate(const sys::Clock& clock) {
  const auto began = clock.now();
  for (int i = 0; i < kJobs; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::execl("/bin/true", "true", nullptr);
      ::_exit(127);
    }
    int status = 0;
    CHECK(::waitpid(pid, &status, 0) == pid && status == 0, "/bin/true runs");
  }
  return kJobs / seconds_of(clock.now() - began);
}

class Bench {
 public:
  explicit Bench(const std::string& binary)
      : program_(binary, directory_ / "data", directory_ / "log",
                 {"--set", "log_level=error", "--set", "jobs.cpus=16", "--set", "jobs.memory_bytes=32GiB", "--set",
                  "rates.calls_per_second=1000000"}) {
    connect();
    submit({{"command", {"/bin/true"}}});  // starts what is started once
    await_none_live();
  }

  double jobs_rate(bool tracked) {
    json::object spec = small("/bin/true");
    spec["run"] = json::object{{"make", tracked}};
    spec["array"] = json::object{{"count", kJobs}};
    const auto began = clock_.now();
    const auto id = submit(spec);
    await_none_live();
    const auto took = clock_.now() - began;
    const auto last = job(id);
    must(last.at("phase").as_string() == "succeeded" && last.at("isolation").as_string() == "isolated",
         "jobs run isolated: " + json::serialize(last));
    return kJobs / seconds_of(took);
  }

  // From before the call until the kernel was asked to run the program, as the executor recorded it.
  double start_ms_p50() {
    std::vector<double> took;
    for (int i = 0; i < kStarts; ++i) {
      const auto began = clock_.wall().count();
      const auto id = submit(small("/bin/true"));
      await_none_live(kRarelyUs);  // who looks takes the processor from those who work
      const auto ended = job(id);
      took.push_back(static_cast<double>(*parse_time(ended.at("started").as_string()) - began) / 1e3);
    }
    std::nth_element(took.begin(), took.begin() + kStarts / 2, took.end());
    return took[kStarts / 2];
  }

  // Durable submits of jobs that wait, over one connection that is kept.
  double submit_rate(int in_a_call) {
    json::object spec = small("/bin/true");
    spec["notBefore"] = "2099-01-01T00:00:00Z";
    json::array jobs;
    for (int i = 0; i < in_a_call; ++i) jobs.push_back(json::object{{"name", "waits"}, {"spec", spec}});
    const auto body = json::serialize(json::object{{"jobs", jobs}});
    const auto request = fmt::format(
        "POST /v1/jobs?scope=/t/default/p/default HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\n"
        "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
        program_.token(), body.size(), body);
    const Conversation conversation{[&](std::uint64_t, std::string& out) { out = request; },
                                    [](std::uint64_t, std::string_view) { return std::string(); }};
    const auto port = parse_int(std::string_view(program_.url()).substr(program_.url().rfind(':') + 1));
    const auto loaded = offer(static_cast<std::uint16_t>(*port), {0, kSubmitSeconds, 1}, conversation, clock_);
    must(loaded.refused == 0 && loaded.answers > 0, "submits are taken: " + loaded.first_trouble);
    return loaded.rate() * in_a_call;
  }

  // A server that is killed under running jobs.
  void restart() {
    json::object spec = small("/bin/sh");
    spec["command"] = {"/bin/sh", "-c", "until [ -e $FALAJ_CHECKPOINT_DIR/go ]; do sleep 1; done"};
    spec["array"] = json::object{{"count", kRunning}};
    spec["run"] = json::object{{"make", false}};
    submit(spec);
    const auto running = [&] { return count("running"); };
    while (running() < kRunning) pause(kLookUs);
    const auto all = list("running");
    program_.kill();
    const auto began = clock_.now();
    program_.start();
    const auto ready = clock_.now() - began;
    connect();
    // Its node is known when the keeper has answered, which tells of its jobs in the same breath.
    while (api_->get("/v1/nodes").at("items").as_array().empty()) pause(kLookUs);
    const auto known = clock_.now() - began;
    must(running() == kRunning, "all are running");
    for (const auto& one : all)
      std::ofstream(
          fmt::format("{}/jobs/{}/checkpoint/go", directory_ / "data", std::string_view(one.at("id").as_string())))
          << "go\n";
    await_none_live();
    int kept = 0;
    for (const auto& one : all) {
      const auto ended = job(std::string(one.at("id").as_string()));
      kept += ended.at("phase").as_string() == "succeeded" && ended.at("attempts").as_int64() == 1;
    }
    fmt::print("a server killed under {} running jobs answers after {:.0f} ms, and knows its node after {:.0f} ms\n",
               kRunning, seconds_of(ready) * 1e3, seconds_of(known) * 1e3);
    claim("running jobs found again after kill -9, none started twice", kept, "jobs", "jobs that ran", kRunning, 1);
  }

 private:
  static json::object small(const char* program) {
    return {{"command", {program}}, {"cpus", 0.05}, {"memory", "16MiB"}};
  }
  void connect() {
    api_ = std::make_unique<client::ApiClient>(client::Target{program_.url(), program_.token(), "", ""});
  }
  std::string submit(const json::object& spec) {
    const auto answer = api_->post("/v1/jobs", {{"jobs", {{{"name", "bench"}, {"spec", spec}}}}}, kProject);
    return std::string(answer.at("jobs").at(0).at("id").as_string());
  }
  json::value job(const std::string& id) { return api_->get("/v1/jobs/" + id, kProject); }
  json::array list(const std::string& phase) {
    auto query = kProject;
    query.emplace_back("limit", "1000");
    query.emplace_back("phase", phase);
    return api_->get("/v1/jobs", query).at("items").as_array();
  }
  std::size_t count(const std::string& phase) { return list(phase).size(); }
  void await_none_live(std::uint64_t look_us = kLookUs) {
    auto query = kProject;
    query.emplace_back("live", "true");
    query.emplace_back("limit", "1");
    while (!api_->get("/v1/jobs", query).at("items").as_array().empty()) pause(look_us);
  }

  const sys::RealClock clock_;
  sys::TempDir directory_;
  Program program_;
  std::unique_ptr<client::ApiClient> api_;
};

int run(const std::string& binary) {
  const sys::RealClock clock;
  Bench bench(binary);
  double bare = 0, ours = 0, tracked = 0;
  for (int round = 0; round < kRounds; ++round) {
    bare = std::max(bare, bare_rate(clock));
    ours = std::max(ours, bench.jobs_rate(false));
    tracked = std::max(tracked, bench.jobs_rate(true));
  }
  claim("whole jobs through the server, isolated", ours, "jobs/s", "fork, exec and wait", bare, 0.25);
  fmt::print("each with a tracked run: {:.0f} jobs/s\n", tracked);
  claim("from submitting to running, median", bench.start_ms_p50(), "ms", "20 ms", 20, 1, true);
  bench.restart();
  const double one = bench.submit_rate(1), hundred = bench.submit_rate(100), many = bench.submit_rate(500);
  fmt::print(
      "durable submits over one connection: {:.0f} jobs/s one a call, {:.0f} in hundreds, {:.0f} in five hundreds\n",
      one, hundred, many);
  if (!execute::slurm::TestCluster::is_installed()) return 0;
  execute::slurm::TestCluster cluster;
  const auto slurm = execute::slurm::measure_slurm(cluster, clock);
  claim("whole jobs through the server, isolated", ours, "jobs/s", "Slurm, an array of no-ops", slurm.jobs, 5);
  claim("durable submits, one connection, one a call", one, "jobs/s", "sbatch", slurm.sbatch_submits, 20);
  claim("durable submits, one connection, 100 a call", hundred, "jobs/s", "sbatch", slurm.sbatch_submits, 20);
  claim("durable submits, one connection, 500 a call", many, "jobs/s", "sbatch", slurm.sbatch_submits, 20);
  return 0;
}

}  // namespace
}  // namespace falaj::tests

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    return falaj::tests::run(argc > 1 ? argv[1] : "build/release/bin/falaj");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "jobs_bench: %s\n", error.what());
    return 2;
  }
}
