// SPDX-License-Identifier: Apache-2.0
// Attempts that run /bin/true, each in its own namespaces and group with everything an isolated job has, against a bare
// loop of fork, exec and wait of the same program, in the same run; and how long an attempt takes from being asked for
// to running.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/sys/clock.h"
#include "lifecycle/execute/local/testing.h"

namespace falaj::execute {
namespace {

constexpr int kJobs = 400, kRounds = 5, kAtOnce = 16, kStarts = 100;

double seconds_of(sys::Micros time) { return std::chrono::duration<double>(time).count(); }

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

class Jobs {
 public:
  explicit Jobs(const sys::Clock& clock) : clock_(clock) {
    CHECK(node_.executor().nodes()[0].isolation_max == Isolation::isolated, "this machine isolates jobs");
  }

  double rate() {
    const auto began = clock_.now();
    std::set<std::string> running;
    std::uint64_t seen = 0;
    for (int begun = 0, ended = 0; ended < kJobs;) {
      for (; begun < kJobs && running.size() < kAtOnce; ++begun) running.insert(start());
      for (const auto& report : node_.executor().poll(seen, std::chrono::seconds(10)))
        if (report.phase == Phase::ended && running.erase(report.attempt)) finish(report), ++ended;
    }
    return kJobs / seconds_of(clock_.now() - began);
  }

  // From the call until the task's process runs its program.
  double start_ms_p50() {
    std::vector<double> took;
    for (int i = 0; i < kStarts; ++i) {
      const auto began = clock_.now();
      const auto attempt = start();
      std::uint64_t seen = 0;
      bool ran = false;
      for (bool over = false; !over;)
        for (const auto& report : node_.executor().poll(seen, std::chrono::seconds(10))) {
          if (report.attempt != attempt) continue;
          if (!ran && report.phase != Phase::starting)
            took.push_back(seconds_of(clock_.now() - began) * 1e3), ran = true;
          if (report.phase == Phase::ended) finish(report), over = true;
        }
    }
    std::nth_element(took.begin(), took.begin() + kStarts / 2, took.end());
    return took[kStarts / 2];
  }

 private:
  std::string start() {
    Launch launch;
    launch.attempt = "job" + std::to_string(++last_) + ".1";
    launch.command = {"/bin/true"};
    launch.work_directory = node_ / ("work" + std::to_string(last_ % 64));
    launch.tasks = {Task{}};
    launch.limits = {.cpu_millis = 1000, .memory_bytes = 64 << 20, .disk_bytes = 1 << 30, .processes = 100};
    launch.isolation_min = Isolation::isolated;
    node_.executor().start(launch);
    return launch.attempt;
  }
  void finish(const Report& report) {
    CHECK(report.ending->reason == Reason::finished && report.ending->exit_code == 0, "/bin/true runs as a job");
    node_.executor().forget(report.attempt);
    node_.executor().drop_logs(report.attempt);
  }

  const sys::Clock& clock_;
  local::TestNode node_;
  int last_ = 0;
};

void print(const char* claim, double ours, const char* unit, const char* against, double limit, double goal,
           const char* better) {
  const json::object line{{"claim", claim}, {"ours", ours},          {"unit", unit}, {"against", against},
                          {"limit", limit}, {"ratio", ours / limit}, {"goal", goal}, {"better", better}};
  std::puts(json::serialize(line).c_str());
}

int run() {
  const sys::RealClock clock;
  Jobs jobs(clock);
  jobs.rate();  // warms what is used again
  double ours = 0, bare = 0;
  for (int round = 0; round < kRounds; ++round) {
    bare = std::max(bare, bare_rate(clock));
    ours = std::max(ours, jobs.rate());
  }
  print("isolated jobs started and ended", ours, "jobs/s", "fork, exec and wait of the same program", bare, 0.25,
        "higher");
  print("from submitting to running, median", jobs.start_ms_p50(), "ms", "20 ms", 20, 1, "lower");
  return 0;
}

}  // namespace
}  // namespace falaj::execute

int main() { return falaj::execute::run(); }
