// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/slurm/command.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/sys/descriptor.h"

namespace falaj::execute::slurm {
namespace {

constexpr auto kLongest = std::chrono::seconds(60);

sys::Descriptor memory_file(const char* name) {
  sys::Descriptor file(::memfd_create(name, MFD_CLOEXEC));
  if (file.get() < 0) throw Error(Code::unavailable, "no file in memory for a command's output");
  return file;
}

std::string content(const sys::Descriptor& file) {
  std::string out;
  char piece[65536];
  for (off_t at = 0;;) {
    const auto got = ::pread(file.get(), piece, sizeof piece, at);
    if (got <= 0) return out;
    out.append(piece, static_cast<std::size_t>(got));
    at += got;
  }
}

}  // namespace

CommandResult run_command(sys::Processes& processes, const std::vector<std::string>& argv, std::string_view doing,
                          bool any_status) {
  const auto output = memory_file("output");
  const auto errors = memory_file("errors");
  sys::Command command;
  command.argv = argv;
  command.environment = {"LC_ALL=C"};
  for (const char* name : {"PATH", "HOME", "USER", "LOGNAME", "SLURM_CONF", "SLURM_JWT"})
    if (const char* value = ::getenv(name)) command.environment.push_back(fmt::format("{}={}", name, value));
  command.stdout_descriptor = output.get();
  command.stderr_descriptor = errors.get();
  std::optional<sys::Exit> exit;
  try {
    const auto child = processes.start(command);
    exit = child->wait(kLongest);
    if (!exit) child->signal(SIGKILL);
  } catch (const Error& error) {
    throw Error(Code::unavailable, fmt::format("{}: {}", doing, error.what()));
  }
  if (!exit) throw Error(Code::unavailable, fmt::format("{}: the command took longer than a minute", doing));
  CommandResult result{exit->status, content(output), content(errors)};
  if (exit->signal != 0) throw Error(Code::unavailable, fmt::format("{}: the command died of a signal", doing));
  if (result.status != 0 && !any_status)
    throw Error(Code::unavailable, fmt::format("{}: {}", doing, trim(result.errors).substr(0, 300)));
  return result;
}

}  // namespace falaj::execute::slurm
