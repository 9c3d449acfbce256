// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/machine.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/execute/local/made_namespace.h"
#include "lifecycle/execute/local/sandbox.h"
#include "lifecycle/execute/local/small_file.h"

namespace falaj::execute::local {
namespace {

constexpr unsigned kInside = 1000;
// Nobody's on any machine we know of; where the keeper is in a container that has few numbers, nobody's in there.
constexpr unsigned kOutside = 1'999'999'999, kOutsideFew = 65'534;

[[noreturn]] void fail_machine(std::string_view doing, int error) {
  throw Error(Code::unavailable, fmt::format("{}: {}", doing, std::generic_category().message(error)));
}

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name[0] ? name : "localhost";
}

// Whether this process's user namespace has that number.
bool is_mapped(unsigned id) {
  const std::string map = read_small("/proc/self/uid_map");
  for (const auto line : split(map, '\n')) {
    std::vector<std::int64_t> numbers;
    for (const auto word : split(line, ' '))
      if (const auto number = parse_int(word)) numbers.push_back(*number);
    if (numbers.size() == 3 && id >= numbers[0] && id - numbers[0] < numbers[2]) return true;
  }
  return false;
}

void name_self(unsigned inside, unsigned user, unsigned group) {
  for (const auto& [file, text] : {std::pair<const char*, std::string>{"/proc/self/setgroups", "deny"},
                                   {"/proc/self/uid_map", fmt::format("{} {} 1", inside, user)},
                                   {"/proc/self/gid_map", fmt::format("{} {} 1", inside, group)}})
    if (const int error = write_small(file, text)) fail_machine("a user namespace for tasks", error);
}

// A namespace that only says: what is ours (0) on disk is theirs.
sys::Descriptor map_to(unsigned outside) {
  return made_namespace(
      "user", [] { return ::unshare(CLONE_NEWUSER) == 0 ? nullptr : "making it"; },
      [&](pid_t child) -> const char* {
        for (const char* file : {"uid_map", "gid_map"})
          if (const int error = write_small(fmt::format("/proc/{}/{}", child, file), fmt::format("0 {} 1", outside))) {
            errno = error;
            return "mapping the owners of files";
          }
        return nullptr;
      });
}

}  // namespace

Machine::Machine(const std::string& name) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) fail_machine("its limit of open files", errno);
  open_files_ = static_cast<std::int64_t>(files.rlim_cur);
  files.rlim_cur = files.rlim_max;  // each attempt takes a few
  if (::setrlimit(RLIMIT_NOFILE, &files) != 0) fail_machine("its limit of open files", errno);
  // Groups first: in a user namespace of our own, files of the host may look like somebody else's.
  try {
    cgroups_ = std::make_unique<Cgroups>(name);
  } catch (const Error& error) {
    note(error.what());
  }
  try {
    take_namespaces();
    try_namespaces();
  } catch (const Error& error) {
    view_.reset();
    networks_.reset();
    note(error.what());
  }
  if (landlock_version() == 0) note("no Landlock in this kernel");
}

void Machine::take_namespaces() {
  const unsigned user = ::geteuid(), group = ::getegid();
  if (user == 0) {
    identity_.inside = kInside;
    identity_.outside = is_mapped(kOutside) ? kOutside : kOutsideFew;
    identity_.map = map_to(identity_.outside);
  } else {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) fail_machine("namespaces as an ordinary user", errno);
    name_self(0, user, group);
    identity_.inside = user;
    identity_.outside = 0;
  }
  view_ = std::make_unique<View>(host_name(), identity_.inside);
  networks_ = std::make_unique<Networks>();
}

// Everything that an attempt does, once.
void Machine::try_namespaces() {
  const auto network = networks_->take();
  int output[2];
  if (::pipe2(output, O_CLOEXEC) != 0) fail_machine("a pipe", errno);
  const sys::Descriptor unread(output[0]), written(output[1]);
  AttemptStart trial;
  trial.command = {"/bin/true"};
  trial.work_directory = "/tmp";
  trial.tasks = {TaskStart{.rank = 0, .environment = {}, .cpus = {}, .doors = {}, .output = written.get()}};
  trial.view = view_.get();
  trial.network = network.get();
  trial.identity = &identity_;
  trial.filter = &any_;
  trial.readable = {"/"};
  trial.open_files = open_files_;
  const Started started = start(trial);
  std::string problem = "its processes ended early";
  InitSays says;
  while (::recv(started.control.get(), &says, sizeof says, 0) == sizeof says) {
    if (says.what == InitSays::What::failed)
      problem = fmt::format("{}: {}", says.text, std::generic_category().message(says.error));
    if (says.what == InitSays::What::task_ended && says.status != 0) problem = "/bin/true failed in it";
    if (says.what == InitSays::What::task_ended && says.status == 0) problem.clear();
    if (says.what == InitSays::What::all_ended || says.what == InitSays::What::failed) break;
  }
  ::waitpid(started.pid, nullptr, 0);
  if (!problem.empty()) throw Error(Code::unavailable, "namespaces: " + problem);
}

Isolation Machine::isolation_max() const {
  if (!cgroups_) return Isolation::restricted;
  return view_ ? Isolation::isolated : Isolation::contained;
}

}  // namespace falaj::execute::local
