// SPDX-License-Identifier: Apache-2.0
// run exec: a command as a run, with where it came from and how it ended

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <thread>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/runs.h"
#include "cli/runs_source.h"
#include "foundation/base/text.h"
#include "foundation/sys/descriptor.h"

namespace falaj::cli {
namespace {

constexpr std::size_t kOutputBytesMax = 1 << 20;
constexpr int kLookMs = 50;  // how often a child that says nothing is looked at

struct ExecOptions {
  std::string name, experiment;
  std::vector<std::string> command, tags;
};

struct Ended {
  sys::Exit exit;
  sys::Usage usage;
  int forwarded = 0;   // the last signal we passed on
  std::string output;  // its last part
};

// The signals that end us, taken from a descriptor instead. Threads that are made while it lives have them blocked too.
class Signals {
 public:
  Signals() {
    sigset_t wanted;
    ::sigemptyset(&wanted);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::sigaddset(&wanted, number);
    ::pthread_sigmask(SIG_BLOCK, &wanted, &before_);
    fd_ = sys::Descriptor(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~Signals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  int descriptor() const { return fd_.get(); }
  int next() const {  // 0: none
    signalfd_siginfo info{};
    return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t before_{};
  sys::Descriptor fd_;
};

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // whoever read our output is gone; the run goes on
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

// One of the child's outputs, on its way through.
class Through {
 public:
  explicit Through(int to) : to_(to) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(Code::unavailable, "no pipe for the output of the command");
    out_ = sys::Descriptor(ends[0]);
    in_ = sys::Descriptor(ends[1]);
    ::fcntl(out_.get(), F_SETFL, O_NONBLOCK);
  }
  int input() const { return in_.get(); }
  void started() { in_ = sys::Descriptor(); }
  int descriptor() const { return open_ ? out_.get() : -1; }
  void pass(std::string& kept) {
    std::array<char, 64 * 1024> piece;
    for (;;) {
      const auto n = ::read(out_.get(), piece.data(), piece.size());
      if (n < 0 && errno == EINTR) continue;
      if (n == 0) open_ = false;
      if (n <= 0) return;
      const std::string_view text(piece.data(), static_cast<std::size_t>(n));
      write_all(to_, text);
      kept += text;
      if (kept.size() > 2 * kOutputBytesMax) kept.erase(0, kept.size() - kOutputBytesMax);
    }
  }

 private:
  const int to_;
  sys::Descriptor out_, in_;
  bool open_ = true;
};

Ended run_child(sys::Processes& processes, const Signals& signals, sys::Command command) {
  Through out(1), err(2);
  command.stdout_descriptor = out.input();
  command.stderr_descriptor = err.input();
  command.keeps_input = ::isatty(0) == 0;  // a terminal's input belongs to our process group, and it has its own
  const auto child = processes.start(command);
  out.started();
  err.started();
  Ended ended;
  for (;;) {
    pollfd ready[] = {{signals.descriptor(), POLLIN, 0}, {out.descriptor(), POLLIN, 0}, {err.descriptor(), POLLIN, 0}};
    ::poll(ready, 3, kLookMs);
    while (const int number = signals.next()) child->signal(ended.forwarded = number);
    const auto exit = child->wait(sys::Micros(0));  // before its output is read: what it wrote is then all there
    out.pass(ended.output);
    err.pass(ended.output);
    if (!exit) continue;
    ended.exit = *exit;
    ended.usage = child->usage();
    if (ended.output.size() > kOutputBytesMax) ended.output.erase(0, ended.output.size() - kOutputBytesMax);
    return ended;
  }
}

std::string_view status_of(const Ended& ended) {
  if (ended.exit.signal != 0 || (ended.forwarded != 0 && ended.exit.status != 0)) return "KILLED";
  return ended.exit.status == 0 ? "FINISHED" : "FAILED";
}

std::vector<std::string> environment_of(Session& session, const std::string& run_id, const std::string& experiment) {
  const auto& target = session.api().target();
  std::vector<std::pair<std::string, std::string>> ours{
      {"MLFLOW_TRACKING_URI", fmt::format("{}/mlflow/{}/{}", target.url, session.tenant, session.project)},
      {"MLFLOW_TRACKING_TOKEN", target.token},
      {"MLFLOW_RUN_ID", run_id},
      {"MLFLOW_EXPERIMENT_ID", experiment},
      {"FALAJ_URL", target.url},
      {"FALAJ_TOKEN", target.token},
      {"FALAJ_TENANT", session.tenant},
      {"FALAJ_PROJECT", session.project}};
  if (!target.ca_file.empty()) {
    ours.emplace_back("MLFLOW_TRACKING_SERVER_CERT_PATH", target.ca_file);
    ours.emplace_back("FALAJ_CA_FILE", target.ca_file);
  }
  auto out = own_environment();
  for (const auto& [key, value] : ours) {
    const auto begin = key + "=";
    std::erase_if(out, [&](const std::string& entry) { return entry.starts_with(begin); });
    out.push_back(begin + value);
  }
  return out;
}

void finish(Session& session, const std::string& id, const std::string& root, json::object described,
            const Ended& ended) {
  const auto cpu_s = static_cast<double>(ended.usage.cpu.count()) / 1e6;
  described["exit"] = {{"status", ended.exit.status},
                       {"signal", ended.exit.signal},
                       {"cpu_seconds", cpu_s},
                       {"memory_peak_bytes", ended.usage.memory_peak_bytes}};
  put_artifact(session, root, "source/source.json", pretty(described) + "\n");
  if (!ended.output.empty()) put_artifact(session, root, "source/output.txt", ended.output);
  const auto how =
      ended.exit.signal != 0 ? fmt::format("signal {}", ended.exit.signal) : fmt::format("exit {}", ended.exit.status);
  const auto tag = [](std::string_view key, const std::string& value) {
    return json::object{{"key", key}, {"value", value}};
  };
  session.api().post(
      mlflow_path(session, "mlflow/runs/log-batch"),
      json::object{
          {"run_id", id},
          {"tags", json::array{tag("falaj.exit", how), tag("falaj.cpu_seconds", fmt::format("{:.2f}", cpu_s)),
                               tag("falaj.memory_peak_bytes", std::to_string(ended.usage.memory_peak_bytes))}}});
  session.api().post(
      mlflow_path(session, "mlflow/runs/update"),
      json::object{{"run_id", id}, {"status", status_of(ended)}, {"end_time", session.clock().wall().count() / 1000}});
}

void exec(Session& session, const ExecOptions& options) {
  const Signals signals;
  sys::RealProcesses processes;
  auto source = source_of(processes, session.clock(), options.command);
  const auto experiment = experiment_id(session, options.experiment);
  const auto id = start_run(session, experiment, options.name, options.tags, source);
  const auto root = artifacts_root(session, experiment, id);
  if (!session.quiet) fmt::print(stderr, "run {}\n", id);
  if (!source.diff.empty()) put_artifact(session, root, "source/diff.patch", source.diff);

  Ended ended;
  std::optional<std::string> packages;
  try {
    sys::Command command;
    command.argv = options.command;
    command.environment = environment_of(session, id, experiment);
    std::thread reading([&] { packages = packages_of(processes, session.clock(), options.command); });
    try {
      ended = run_child(processes, signals, std::move(command));
    } catch (...) {
      reading.join();
      throw;
    }
    reading.join();
  } catch (const Error& e) {
    ended.exit.status = 127;
    ended.output = fmt::format("{}\n", e.what());
    fmt::print(stderr, "error: {}\n", harmless(e.what()));
  }
  session.status = ended.exit.signal != 0 ? 128 + ended.exit.signal : ended.exit.status;
  try {
    if (packages) put_artifact(session, root, "source/packages.txt", *packages);
    finish(session, id, root, to_json(source), ended);
  } catch (const Error& e) {  // what the command did counts for more than whether we could tell
    fmt::print(stderr, "error: how run {} ended was not kept: {}\n", id, harmless(e.what()));
    if (session.status == 0) session.status = exit_status(e.code());
  }
}

}  // namespace

void add_exec_command(CLI::App& run, Session& session) {
  const auto options = std::make_shared<ExecOptions>();
  auto* command = run.add_subcommand(
      "exec", "Run a command as a run, with its source, output and end: falaj run exec first -- python train.py");
  command->add_option("-e,--experiment", options->experiment, "Its experiment, made when missing; Default when absent");
  command->add_option("--tag", options->tags, "KEY=VALUE; may be repeated");
  command->add_option("name", options->name, "Its name; one is made up when absent");
  command->footer("What to run stands after '--'.");
  command->callback([&session, options] {
    if (session.after_dashes.empty()) throw Error(Code::invalid, "say it so: falaj run exec [NAME] -- COMMAND...");
    options->command = session.after_dashes;
    exec(session, *options);
  });
}

}  // namespace falaj::cli
