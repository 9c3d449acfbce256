// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/hooks.h"

#include <csignal>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/sys/files.h"
#include "foundation/sys/process.h"

namespace falaj::jobs {
namespace {

constexpr sys::Micros kHookLook = std::chrono::milliseconds(200), kHookDies = std::chrono::seconds(10);
constexpr std::size_t kHookOutputMax = 1 << 20, kHookTail = 800;

std::string tail_of(const std::string& directory, const std::string& name) {
  try {
    auto files = sys::open_files(directory);
    const auto bytes = files->read_all(name, kHookOutputMax);
    const auto text = trim(as_text(bytes));
    return std::string(text.size() > kHookTail ? text.substr(text.size() - kHookTail) : text);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

std::vector<std::string> hook_command(const std::string& directory, const PoolOrder& order) {
  if (order.scaling == "slurm")
    return {"scontrol", "update", fmt::format("NodeName={}", fmt::join(order.names, ",")),
            order.up ? "State=POWER_UP" : "State=POWER_DOWN"};
  std::vector<std::string> out{directory + "/" + order.program, order.pool};
  if (order.up)
    out.push_back(std::to_string(order.nodes));
  else
    out.insert(out.end(), order.names.begin(), order.names.end());
  return out;
}

void run_hook(const std::string& directory, const PoolOrder& order, const std::function<bool()>& stopping) {
  std::error_code missing;
  std::filesystem::create_directories(directory, missing);
  const auto log = order.pool + ".log";
  std::filesystem::remove(directory + "/" + log, missing);
  sys::Command command;
  command.argv = hook_command(directory, order);
  const char* path = std::getenv("PATH");
  command.environment = {fmt::format("PATH={}", path ? path : "/usr/bin:/bin"), "LANG=C.UTF-8",
                         "FALAJ_POOL=" + order.pool};
  command.directory = directory;
  command.stdout_file = command.stderr_file = directory + "/" + log;
  sys::RealProcesses processes;
  const auto child = processes.start(command);
  for (sys::Micros waited{0};; waited += kHookLook) {
    if (const auto end = child->wait(kHookLook)) {
      if (end->status == 0 && end->signal == 0) return;
      throw Error(Code::internal, fmt::format("{} {}: {}", command.argv[0].substr(command.argv[0].rfind('/') + 1),
                                              end->signal != 0 ? fmt::format("was killed by signal {}", end->signal)
                                                               : fmt::format("ended with {}", end->status),
                                              tail_of(directory, log)));
    }
    const bool late = waited >= order.time_limit;
    if (!late && !stopping()) continue;
    child->signal(SIGKILL);
    child->wait(kHookDies);
    throw Error(late ? Code::deadline : Code::cancelled,
                late ? fmt::format("took longer than {}: {}", format_duration_us(order.time_limit.count()),
                                   tail_of(directory, log))
                     : "the server stops");
  }
}

}  // namespace falaj::jobs
