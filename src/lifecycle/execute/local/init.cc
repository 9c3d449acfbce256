// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/init.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include <fmt/format.h>

#include "foundation/base/text.h"
#include "lifecycle/execute/local/networks.h"
#include "lifecycle/execute/local/small_file.h"

namespace falaj::execute::local {
namespace {

constexpr int kTaskUsersStatus = 127;

// Everything a task's process needs, made before it exists: until it becomes the program it shares init's memory.
struct Becoming {
  const TaskStart* task;
  const char* program;
  char* const* arguments;
  char* const* environment;
  int input;
  int control;
  const AttemptStart* attempt;
};

class Init {
 public:
  Init(const AttemptStart& attempt, int control) : attempt_(attempt), control_(control) {}

  [[noreturn]] void run() {
    set_up();
    start_tasks();
    tell({.what = InitSays::What::running});
    // What the keeper has open is none of the attempt's business.
    if (::dup3(control_, 3, O_CLOEXEC) == 3 || control_ == 3) control_ = 3;
    ::syscall(SYS_close_range, 4U, ~0U, 0);
    for (;;) follow();
  }

 private:
  struct Running {
    pid_t pid;
    int rank;
  };

  void tell(const InitSays& says) const { [[maybe_unused]] const auto n = ::send(control_, &says, sizeof says, 0); }

  [[noreturn]] void fail(std::string_view doing, int error, int rank = 0) {
    InitSays says{.what = InitSays::What::failed, .rank = rank, .error = error};
    doing.copy(says.text, sizeof says.text - 1);
    tell(says);
    kill_all();
    ::_exit(1);
  }
  void must(int result, std::string_view doing) {
    if (result != 0) fail(doing, errno);
  }

  void set_up() {
    must(::prctl(PR_SET_PDEATHSIG, SIGKILL), "dying with its keeper");
    ::umask(022);
    ::signal(SIGCHLD, SIG_DFL);  // the keeper ignores it
    if (attempt_.view)
      enter_namespaces();
    else
      must(::prctl(PR_SET_CHILD_SUBREAPER, 1), "reaping");
    // Cleared when the user changed. Without a keeper there is nobody to tell, which the next packet shows.
    must(::prctl(PR_SET_PDEATHSIG, SIGKILL), "dying with its keeper");
    write_small("/proc/self/oom_score_adj", "500");  // when the machine is out of memory, rather a job than a server
    must(::prctl(PR_SET_DUMPABLE, 0), "being looked into by nobody");
    must(::chdir(attempt_.work_directory.c_str()), "entering its work directory");
    input_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (input_ < 0) fail("its input", errno);
    find_program();
    if (const int error = give_up_privileges()) fail("giving up privileges", error);
    confine();
    if (const int error = attempt_.filter->apply()) fail("filtering system calls", error);
  }

  void enter_namespaces() {
    if (attempt_.network >= 0) must(::setns(attempt_.network, CLONE_NEWNET), "entering its network");
    must(::unshare(CLONE_NEWIPC | CLONE_NEWUTS), "its own namespaces");
    const Entering entering{.mounts = attempt_.view->mounts(),
                            .trees = attempt_.trees,
                            .image = attempt_.image.mount.get(),
                            .scratch_bytes = attempt_.limits.memory_bytes};
    if (const char* failed = enter_view(entering)) fail(failed, errno);
    become_user(attempt_.identity->outside);
    name_user(*attempt_.identity);
  }

  void become_user(unsigned user) {
    if (user == 0) return;  // as the keeper, which is nobody special
    must(::setgroups(0, nullptr), "leaving groups");
    must(::setresgid(user, user, user), "becoming a group");
    must(::setresuid(user, user, user), "becoming a user");
  }

  // The mounts and the network belong to the keeper's user namespace: in its own, a task has no power over them.
  void name_user(const Identity& identity) {
    must(::unshare(CLONE_NEWUSER), "its own user namespace");
    must(::prctl(PR_SET_DUMPABLE, 1), "naming its user");  // or the files below are root's
    const auto map = fmt::format("{} {} 1", identity.inside, identity.outside);
    for (const auto& [file, text] : {std::pair<const char*, std::string>{"/proc/self/setgroups", "deny"},
                                     {"/proc/self/uid_map", map},
                                     {"/proc/self/gid_map", map}})
      if (const int error = write_small(file, text)) fail("naming its user", error);
  }

  void find_program() {
    const std::string& name = attempt_.command[0];
    program_ = name;
    if (name.find('/') == std::string::npos) {
      program_.clear();
      for (const auto directory : split(attempt_.path, ':')) {
        const auto candidate = fmt::format("{}/{}", directory, name);
        if (!directory.empty() && ::access(candidate.c_str(), X_OK) == 0) {
          program_ = candidate;
          break;
        }
      }
    }
    if (program_.empty()) fail(fmt::format("no such command: {}", name), ENOENT);
  }

  void confine() {
    if (landlock_version() == 0) return;
    const auto pointers = [](const std::vector<std::string>& paths) {
      std::vector<const char*> out;
      for (const auto& path : paths) out.push_back(path.c_str());
      return out;
    };
    // Of the host's /dev and /proc, those that change nothing.
    std::vector<const char*> devices = {"/dev", "/proc"};
    if (!attempt_.view) devices = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"};
    if (const int error = confine_files(pointers(attempt_.readable), pointers(attempt_.writable), devices))
      fail("confining it to its files", error);
  }

  void start_tasks() {
    const auto pointers = [](const std::vector<std::string>& texts) {
      std::vector<char*> out;
      for (const auto& text : texts) out.push_back(const_cast<char*>(text.c_str()));
      out.push_back(nullptr);
      return out;
    };
    const auto arguments = pointers(attempt_.command);
    running_.reserve(attempt_.tasks.size());
    for (const TaskStart& task : attempt_.tasks) {
      const auto environment = pointers(task.environment);
      const Becoming becoming{&task,  program_.c_str(), arguments.data(), environment.data(),
                              input_, control_,         &attempt_};
      const pid_t pid = spawn(becoming);
      if (pid < 0) fail("a process for a task", errno, task.rank);
      running_.push_back({pid, task.rank});
    }
  }

  static pid_t spawn(const Becoming& becoming);

  void follow() {
    sigset_t awaited;
    ::sigemptyset(&awaited);
    for (const int number : {SIGCHLD, SIGTERM, SIGUSR1}) ::sigaddset(&awaited, number);
    siginfo_t info{};
    const int number = ::sigwaitinfo(&awaited, &info);
    if (number == SIGCHLD) reap();
    // A task may signal its init; only the keeper's count. From outside of the namespace a sender has no number.
    if (attempt_.view && info.si_pid != 0) return;
    if (number == SIGTERM)
      for (const Running& task : running_) {
        ::kill(-task.pid, SIGTERM);
        ::kill(-task.pid, SIGCONT);  // or one that is stopped never hears of it
      }
    if (number == SIGUSR1) kill_tasks();
  }

  void reap() {
    for (;;) {
      int status = 0;
      rusage used{};
      const pid_t pid = ::wait4(-1, &status, WNOHANG, &used);
      if (pid <= 0) return;
      const auto task = std::find_if(running_.begin(), running_.end(), [&](const Running& r) { return r.pid == pid; });
      if (task == running_.end()) continue;  // an orphan
      const auto micros = [](const timeval& t) { return t.tv_sec * 1'000'000 + t.tv_usec; };
      tell({.what = InitSays::What::task_ended,
            .rank = task->rank,
            .status = status,
            .cpu_us = micros(used.ru_utime) + micros(used.ru_stime),
            .memory_peak_bytes = used.ru_maxrss * 1024});
      running_.erase(task);
      if (!running_.empty()) continue;
      kill_all();
      const bool clean = attempt_.network >= 0 && network_is_clean();
      tell({.what = InitSays::What::all_ended, .status = clean});
      ::_exit(0);
    }
  }

  // The tasks' ends are still to be told.
  void kill_tasks() const {
    if (attempt_.view)
      ::kill(-1, SIGKILL);
    else
      for (const Running& task : running_) ::kill(-task.pid, SIGKILL);
  }

  // Whatever the tasks left behind; returns when nothing is left.
  void kill_all() const {
    do {
      if (attempt_.view) {
        ::kill(-1, SIGKILL);
      } else {
        const std::string children = read_small(fmt::format("/proc/self/task/{}/children", ::getpid()));
        for (const auto child : split(children, ' '))
          if (const auto pid = parse_int(child)) ::kill(static_cast<pid_t>(*pid), SIGKILL);
      }
    } while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR);
  }

  const AttemptStart& attempt_;
  int control_;
  int input_ = -1;
  std::string program_;
  std::vector<Running> running_;
};

[[noreturn]] void give_up_task(const Becoming& b, const char* doing) {
  InitSays says{.what = InitSays::What::failed, .rank = b.task->rank, .error = errno};
  std::string_view(doing).copy(says.text, sizeof says.text - 1);
  [[maybe_unused]] const auto n = ::send(b.control, &says, sizeof says, 0);
  ::_exit(kTaskUsersStatus);
}

void limit_task(const Becoming& b) {
  const auto limit = [&](int what, std::int64_t soft, std::int64_t hard) {
    const rlimit both{static_cast<rlim_t>(soft), static_cast<rlim_t>(hard)};
    if (::setrlimit(static_cast<__rlimit_resource>(what), &both) != 0) give_up_task(b, "limiting it");
  };
  const auto limit_both = [&](int what, std::int64_t value) { limit(what, value, value); };
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  limit(RLIMIT_NOFILE, b.attempt->open_files, static_cast<std::int64_t>(files.rlim_max));
  limit_both(RLIMIT_CORE, 0);
  const Limits& limits = b.attempt->limits;
  if (limits.disk_bytes > 0) limit_both(RLIMIT_FSIZE, limits.disk_bytes);
  if (b.attempt->grouped) return;
  if (limits.memory_bytes > 0) limit_both(RLIMIT_AS, limits.memory_bytes);
  if (limits.processes > 0) limit_both(RLIMIT_NPROC, limits.processes);
}

[[noreturn]] void become_task(const Becoming& b) {
  if (::setsid() < 0) give_up_task(b, "its own session");
  for (const int door : b.task->doors)
    if (::write(door, "0", 1) != 1) give_up_task(b, "entering its group");
  if (!b.task->cpus.empty()) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    for (const int cpu : b.task->cpus) CPU_SET(static_cast<std::size_t>(cpu), &cpus);
    if (::sched_setaffinity(0, sizeof cpus, &cpus) != 0) give_up_task(b, "pinning it to its cpus");
  }
  limit_task(b);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::dup2(b.input, 0) < 0 || ::dup2(b.task->output, 1) < 0 || ::dup2(b.task->output, 2) < 0)
    give_up_task(b, "giving it its output");
  if (::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) != 0) give_up_task(b, "closing files");
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (const int number : {SIGPIPE, SIGHUP, SIGINT, SIGCHLD}) ::sigaction(number, &standard, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(b.program, b.arguments, b.environment);
  give_up_task(b, "running its command");
}

// Not inlined: what the caller holds in registers must not be what the child changed.
__attribute__((noinline)) pid_t Init::spawn(const Becoming& becoming) {
  const pid_t pid = ::vfork();
  if (pid == 0) become_task(becoming);
  return pid;
}

}  // namespace

void be_init(const AttemptStart& attempt, int control) {
  try {
    Init(attempt, control).run();
  } catch (...) {
    ::_exit(1);  // out of memory: nothing more can be said
  }
}

}  // namespace falaj::execute::local
