// SPDX-License-Identifier: Apache-2.0
#include "tests/program.h"

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/mutex.h"
#include "foundation/base/text.h"

namespace falaj::tests {
namespace {
constexpr sys::Micros kLook{2'000};           // between two looks at the log for the ready line
constexpr sys::Micros kStartMax{60'000'000};  // sanitizers on a loaded machine are slow
}  // namespace

Program::Program(std::string binary, std::string data, std::string log, std::vector<std::string> more_arguments)
    : binary_(std::move(binary)),
      data_(std::move(data)),
      log_(std::move(log)),
      more_arguments_(std::move(more_arguments)) {
  start();
}

Program::~Program() {
  if (child_) kill();
}

void Program::start() {
  const std::string out = log_ + ".ready";
  std::remove(out.c_str());
  sys::Command command;
  command.argv = {binary_, "up", "--data", data_, "--listen", "127.0.0.1:0"};
  command.argv.insert(command.argv.end(), more_arguments_.begin(), more_arguments_.end());
  command.environment = {"PATH=" + environment("PATH", "/usr/bin:/bin"), "HOME=" + data_, "LC_ALL=C.UTF-8"};
  command.stdout_file = out;
  command.stderr_file = log_;
  child_ = processes_.start(command);
  for (sys::Micros waited{0}; waited < kStartMax; waited += kLook) {
    const std::string text = read_text(out);
    if (text.find('\n') != std::string::npos) {
      const auto at = text.find("http");
      url_ = std::string(trim(text.substr(at, text.find_first_of(" \n", at) - at)));
      return;
    }
    if (child_->wait(kLook)) break;
  }
  throw Error(Code::unavailable, fmt::format("falaj up did not become ready: {}{}", read_text(out), read_text(log_)));
}

void Program::kill() {
  child_->signal(SIGKILL);
  child_->wait(kStartMax);
  child_.reset();
}

void Program::stop() {
  child_->signal(SIGTERM);
  const auto exit = child_->wait(kStartMax);
  if (!exit) throw Error(Code::deadline, "falaj up did not stop");
  child_.reset();
  if (exit->status != 0 || exit->signal != 0)
    throw Error(Code::internal, fmt::format("falaj up stopped with status {}, signal {}: {}", exit->status,
                                            exit->signal, read_text(log_)));
}

std::string Program::token() const { return std::string(trim(read_text(data_ + "/admin.token"))); }

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string environment(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

void pause(std::uint64_t micros) {
  Mutex mu;
  std::condition_variable never;
  Lock lock(mu);
  lock.wait_for(never, std::chrono::microseconds(micros));
}

}  // namespace falaj::tests
