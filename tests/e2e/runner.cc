// SPDX-License-Identifier: Apache-2.0
// Runs text cases against the real program: e2e_runner FALAJ_BINARY CASE...
//
//   # what this case is about
//   > falaj project ls          a command of bash that must succeed
//   name     tenant             what it prints (both outputs); <*>, <$name> and ... as in match.h
//   !> falaj token rm nobody    a command that must fail
//   @ restart | kill | stop | no-server | up ARGUMENTS...
//
// Each case has a server of its own ($DATA is its data directory), and an empty directory ($WORK) in which its commands
// run. What <$name> kept is $name in later commands; $ROOT is the source tree.

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "tests/e2e/match.h"
#include "tests/program.h"

namespace falaj::tests {
namespace {

constexpr sys::Micros kCommandMax{120'000'000};

struct Step {
  std::size_t line = 0;
  char kind = '>';  // '>' succeeds, '!' fails, '@' tells the runner
  std::string text;
  std::vector<std::string> expected;
};

std::vector<Step> read_case(const std::string& path) {
  std::ifstream in(path);
  std::vector<Step> steps;
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    if (line.starts_with("> ")) {
      steps.push_back({number, '>', line.substr(2), {}});
    } else if (line.starts_with("!> ")) {
      steps.push_back({number, '!', line.substr(3), {}});
    } else if (line.starts_with("@ ")) {
      steps.push_back({number, '@', line.substr(2), {}});
    } else if (!line.starts_with("#") && !(line.empty())) {
      if (steps.empty())
        throw Error(Code::invalid, fmt::format("{}:{}: output before the first command", path, number));
      steps.back().expected.push_back(line);
    }
  }
  return steps;
}

class Case {
 public:
  Case(std::string binary, std::string path)
      : binary_(std::filesystem::absolute(binary)), path_(std::filesystem::absolute(path)) {
    std::string pattern = (std::filesystem::temp_directory_path() / "falaj-e2e-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw Error(Code::unavailable, "no temporary directory");
    directory_ = pattern;
    std::filesystem::create_directories(directory_ + "/work");
  }
  ~Case() {
    program_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  // The first thing that was not as expected, or nothing.
  std::optional<std::string> run() {
    const auto steps = read_case(path_);
    if (steps.empty()) return "has no commands";
    const bool waits = steps[0].kind == '@' && (steps[0].text == "no-server" || steps[0].text.starts_with("up"));
    if (!waits) up({});
    for (const auto& step : steps)
      if (auto wrong = run(step)) return fmt::format("{}:{}: {}\n{}", path_, step.line, step.text, *wrong);
    return std::nullopt;
  }

 private:
  void up(std::vector<std::string> arguments) {
    program_.emplace(binary_, directory_ + "/data", directory_ + "/log", std::move(arguments));
  }

  std::optional<std::string> run(const Step& step) {
    if (step.kind != '@') return command(step);
    if (step.text == "no-server") return std::nullopt;
    if (!program_ && !step.text.starts_with("up")) return "no server runs";
    if (step.text == "kill" || step.text == "restart") {
      step.text == "kill" ? program_->kill() : program_->stop();
      program_->start();
    } else if (step.text == "stop") {
      program_->stop();
      program_.reset();
    } else if (step.text.starts_with("up")) {
      std::vector<std::string> arguments;
      for (const auto word : split(step.text, ' '))
        if (word != "up" && !word.empty()) arguments.push_back(expanded(std::string(word)));
      up(arguments);
    } else {
      return "unknown instruction";
    }
    return std::nullopt;
  }

  std::string expanded(std::string word) const {
    for (const auto& [name, value] :
         {std::pair("$DATA", directory_ + "/data"), std::pair("$WORK", directory_ + "/work")})
      if (const auto at = word.find(name); at != std::string::npos) word.replace(at, 5, value);
    return word;
  }

  std::optional<std::string> command(const Step& step) {
    const std::string out = directory_ + "/out";
    std::remove(out.c_str());
    sys::Command command;
    command.argv = {"/bin/bash", "-o", "pipefail", "-c", step.text};
    command.directory = directory_ + "/work";
    command.stdout_file = command.stderr_file = out;
    const auto root = std::filesystem::path(path_).parent_path().parent_path().parent_path().string();
    command.environment = {
        "PATH=" + std::filesystem::path(binary_).parent_path().string() + ":" + environment("PATH", "/usr/bin:/bin"),
        "HOME=" + directory_,
        "ROOT=" + root,
        "DATA=" + directory_ + "/data",
        "WORK=" + directory_ + "/work",
        "LC_ALL=C.UTF-8",
        "TZ=UTC"};
    if (program_) {
      command.environment.push_back("FALAJ_URL=" + program_->url());
      command.environment.push_back("FALAJ_TOKEN=" + program_->token());
    }
    for (const auto& [name, value] : captures_) command.environment.push_back(name + "=" + value);
    const auto child = processes_.start(command);
    const auto exit = child->wait(kCommandMax);
    const std::string text = read_text(out);
    if (!exit) return "did not end in time:\n" + text;
    if ((exit->status == 0 && exit->signal == 0) != (step.kind == '>'))
      return fmt::format("{} (status {}, signal {}), printed:\n{}",
                         step.kind == '>' ? "failed" : "succeeded, but should have failed", exit->status, exit->signal,
                         text);
    std::vector<std::string> lines;
    for (const auto line : split(text, '\n')) lines.emplace_back(line);
    std::erase(lines, "");
    return difference(step.expected, lines, captures_);
  }

  const std::string binary_, path_;
  std::string directory_;
  std::optional<Program> program_;
  sys::RealProcesses processes_;
  Captures captures_;
};

}  // namespace
}  // namespace falaj::tests

int main(int argc, char** argv) {
  using namespace falaj;
  using namespace falaj::tests;
  if (argc < 3) {
    fmt::print(stderr, "usage: e2e_runner FALAJ_BINARY CASE...\n");
    return 2;
  }
  std::atomic<int> next{2}, failed{0};
  const auto work = [&] {
    for (int i = next++; i < argc; i = next++) {
      std::optional<std::string> wrong;
      try {
        wrong = Case(argv[1], argv[i]).run();
      } catch (const std::exception& e) {
        wrong = e.what();
      }
      if (wrong) ++failed;
      fmt::print("{} {}{}\n", wrong ? "FAIL" : "ok  ", std::filesystem::path(argv[i]).filename().string(),
                 wrong ? "\n" + *wrong : "");
      std::fflush(stdout);
    }
  };
  {
    std::jthread second(work);
    work();
  }
  fmt::print("{} passed, {} failed\n", argc - 2 - failed.load(), failed.load());
  return failed == 0 ? 0 : 1;
}
