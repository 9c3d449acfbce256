// SPDX-License-Identifier: Apache-2.0
// gang_drill [--cases N] [--seconds N] FALAJ_BINARY      (seconds: how long it may take; 15)
//
// A training by four tasks, as a job. One of them is killed, or stopped with SIGSTOP; how long until the others train
// again, seen by a checkpoint that is newer than all before? Without spare tasks the job starts again; with one the
// same attempt goes on.

#include <signal.h>
#include <stdlib.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/client/api_client.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/files.h"
#include "foundation/sys/process.h"
#include "tests/program.h"

namespace falaj::tests {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLookUs = 10'000;
constexpr sys::Micros kPatience = std::chrono::seconds(90);

constexpr std::string_view kTraining = R"(
apiVersion: falaj/v1
kind: Training
metadata: {{name: gang}}
spec:
  data: {{dataset: rows}}
  label: late
  model: network
  patience: 0
  network: {{hidden: [64, 32], epochs: 100000, batch: "256"}}
  checkpoints: {{every: 200ms}}
  parallel: {{mode: data, spares: {}}}
  resources: {{tasks: 4, cpus: 0.5, memory: 1GiB}}
)";

struct Case {
  int signal;
  int spares;
};

class GangDrill {
 public:
  explicit GangDrill(std::string binary) : binary_(std::move(binary)) {
    std::string pattern = (fs::temp_directory_path() / "falaj-gang-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw Error(Code::unavailable, "no temporary directory");
    directory_ = pattern;
    program_ = std::make_unique<Program>(
        binary_, data(), directory_ + "/log",
        std::vector<std::string>{"--set", "log_level=error", "--set", "jobs.cpus=8", "--set", "jobs.memory_bytes=8GiB",
                                 "--set", "rates.calls_per_second=1000000"});
    make_rows();
  }
  ~GangDrill() {
    program_.reset();
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }

  void run(const Case& one, sys::Micros again_max) {
    job_ = submit(fmt::format(kTraining, one.spares));
    await("progress", [&] { return newest() > 0; });
    const auto reached = newest();
    await("more progress", [&] { return newest() > reached; });
    const auto pid = task(0);
    if (::kill(pid, one.signal) != 0) throw Error(Code::unavailable, "the task could not be signalled");
    const auto began = clock_.now();
    pause(100'000);  // what was being written is written
    const auto before = newest();
    await("training again", [&] { return newest() > before; });
    const auto took = clock_.now() - began;
    const auto attempts = job().at("attempts").as_int64();
    const char* name = one.signal == SIGKILL ? "killed" : "stopped";
    fmt::print("result task 0 of 4 {}, {}: training again after {:.1f} s, in attempt {}\n", name,
               one.spares > 0 ? "one spare" : "no spare", std::chrono::duration<double>(took).count(), attempts);
    if (took > again_max) throw Error(Code::deadline, "that is too long");
    if (attempts != (one.spares > 0 ? 1 : 2)) throw Error(Code::corrupt, "it is another attempt than it should be");
    call([&](client::ApiClient& api) { api.post("/v1/jobs/" + job_ + "/cancel", json::object{}, kProject); });
    await("the end", [&] { return job().at("phase").as_string() == "cancelled"; });
  }

 private:
  static inline const client::Query kProject{{"scope", "/t/default/p/default"}};
  std::string data() const { return directory_ + "/data"; }

  void make_rows() {
    std::string text = "x,category,late\n";
    std::uint64_t state = 7;
    for (int i = 0; i < 4000; ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      const double x = static_cast<double>(state >> 40) / (1 << 24) * 4 - 2;
      text += fmt::format("{:.4f},{},{}\n", x, "abcd"[(state >> 33) % 4], x + ((state >> 30) % 8) * 0.1 > 0.35);
    }
    sys::open_files(directory_)->write_all("rows.csv", as_bytes(text));
    cli({"context", "add", "here", program_->url(), "--token", program_->token(), "-t", "default", "-p", "default"});
    cli({"dataset", "create", "rows", "--from", directory_ + "/rows.csv", "-q"});
  }
  void cli(std::vector<std::string> words) {
    sys::Command command;
    command.argv = {binary_};
    command.argv.insert(command.argv.end(), words.begin(), words.end());
    command.environment = {"PATH=/usr/bin:/bin", "HOME=" + directory_};
    command.stdout_file = command.stderr_file = directory_ + "/cli.log";
    const auto exit = processes_.start(command)->wait(kPatience);
    if (!exit || exit->status != 0)
      throw Error(Code::internal, fmt::format("falaj {}: {}", words[0], read_text(directory_ + "/cli.log")));
  }

  void call(const std::function<void(client::ApiClient&)>& work) {
    client::ApiClient api({program_->url(), program_->token(), "", ""});
    work(api);
  }
  std::string submit(const std::string& yaml) {
    std::string id;
    call([&](client::ApiClient& api) {
      const auto answer = api.post("/v1/jobs", {{"sources", {{{"file", "gang"}, {"text", yaml}}}}}, kProject);
      id = answer.at("jobs").at(0).at("id").as_string();
    });
    return id;
  }
  json::value job() {
    json::value out;
    call([&](client::ApiClient& api) { out = api.get("/v1/jobs/" + job_, kProject); });
    return out;
  }

  // The number of the newest checkpoint; 0 = there is none.
  std::int64_t newest() const {
    std::int64_t out = 0;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(fmt::format("{}/jobs/{}/checkpoint", data(), job_), none)) {
      const auto name = entry.path().filename().string();
      std::int64_t number = 0;
      if (name.starts_with("network-") && name.ends_with(".checkpoint"))
        std::from_chars(name.data() + 8, name.data() + name.size(), number);
      out = std::max(out, number);
    }
    return out;
  }
  // The process of a task, by what it was told.
  pid_t task(int rank) const {
    const auto job = fmt::format("FALAJ_JOB_ID={}", job_), own = fmt::format("RANK={}", rank);
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const auto pid = parse_int(entry.path().filename().string());
      if (!pid) continue;
      const auto text = read_text(entry.path().string() + "/environ");
      bool of_job = false, of_rank = false;
      for (const auto word : split(text, '\0')) {
        of_job = of_job || word == job;
        of_rank = of_rank || word == own;
      }
      if (of_job && of_rank) return static_cast<pid_t>(*pid);
    }
    throw Error(Code::not_found, "the task has no process");
  }

  void await(std::string_view what, const std::function<bool()>& there) {
    for (const auto until = clock_.now() + kPatience; clock_.now() < until; pause(kLookUs))
      if (there()) return;
    std::string logs;
    for (int rank = 0; rank < 5; ++rank)
      call([&](client::ApiClient& api) {
        try {
          auto query = kProject;
          query.emplace_back("rank", std::to_string(rank));
          logs += json::serialize(api.get("/v1/jobs/" + job_ + "/logs", query)) + "\n";
        } catch (const Error&) {
          // there is no such task
        }
      });
    throw Error(Code::deadline, fmt::format("{} never came: {}\n{}", what, json::serialize(job()), logs));
  }

  const std::string binary_;
  std::string directory_, job_;
  std::unique_ptr<Program> program_;
  sys::RealProcesses processes_;
  const sys::RealClock clock_;
};

}  // namespace
}  // namespace falaj::tests

int main(int argc, char** argv) {
  using namespace falaj;
  std::string binary;
  std::int64_t cases = 4, seconds = 15;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--cases" && i + 1 < argc)
      cases = parse_int(argv[++i]).value_or(cases);
    else if (word == "--seconds" && i + 1 < argc)
      seconds = parse_int(argv[++i]).value_or(seconds);
    else
      binary = word;
  }
  try {
    tests::GangDrill drill(std::filesystem::absolute(binary).string());
    for (const auto& one : {tests::Case{SIGSTOP, 0}, {SIGKILL, 1}, {SIGKILL, 0}, {SIGSTOP, 1}})
      if (cases-- > 0) drill.run(one, std::chrono::seconds(seconds));
    return 0;
  } catch (const std::exception& e) {
    fmt::print("result failed: {}\n", e.what());
    return 1;
  }
}
