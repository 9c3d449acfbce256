// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/mutex.h"
#include "foundation/base/queue.h"
#include "foundation/base/text.h"
#include "foundation/sys/descriptor.h"

namespace falaj::sys {
namespace {

constexpr std::size_t kStartsWaitingMax = 1024;

[[noreturn]] void fail(std::string_view doing, int error) {
  const bool missing = error == ENOENT || error == ENOTDIR || error == EACCES || error == ENOEXEC;
  throw Error(missing ? Code::not_found : Code::unavailable,
              fmt::format("starting a process: {}: {}", doing, std::generic_category().message(error)));
}

std::string program_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");  // nothing in this process changes the environment
  for (const auto directory : split(path ? path : "/usr/bin:/bin", ':')) {
    std::string candidate = fmt::format("{}/{}", directory, name);
    if (!directory.empty() && ::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  fail("no such program on the path", ENOENT);
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const auto& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

Descriptor open_output(const std::string& path, int given) {
  if (given >= 0) {
    Descriptor copy(::fcntl(given, F_DUPFD_CLOEXEC, 3));
    if (!copy) fail("taking its output", errno);
    return copy;
  }
  if (path.empty()) return Descriptor();
  Descriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!fd) fail("opening its output file", errno);
  return fd;
}

void refuse_bad(const Command& command) {
  if (command.argv.empty() || command.argv[0].empty())
    throw Error(Code::invalid, "starting a process: no program named");
  const auto holds_nul = [](const std::string& s) { return s.find('\0') != std::string::npos; };
  if (std::any_of(command.argv.begin(), command.argv.end(), holds_nul) ||
      std::any_of(command.environment.begin(), command.environment.end(), holds_nul))
    throw Error(Code::invalid, "starting a process: a NUL byte in an argument or the environment");
}

// Everything the child needs, made before it exists: between vfork and exec it may only make system calls.
struct Prepared {
  std::string program;
  std::vector<char*> argv, environment;
  const char* directory;
  Descriptor input, output, errors;
  bool dies_with_parent;
  pid_t parent;
  Descriptor report;  // the child writes a Failure to it; becoming the program closes it
};

// A pipe carries it although vfork shares memory: the thread sanitizer makes every vfork a fork.
struct Failure {
  const char* at = nullptr;  // a literal, so the same address in both processes
  int error = 0;
};

[[noreturn]] void become(Prepared& p) {
  const auto give_up = [&](const char* what) {
    const Failure failure{what, errno};
    [[maybe_unused]] const auto written = ::write(p.report.get(), &failure, sizeof failure);
    ::_exit(127);
  };
  if (::setpgid(0, 0) != 0) give_up("making its process group");
  if (p.dies_with_parent) {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up("tying it to its parent");
    if (::getppid() != p.parent) ::_exit(127);  // died before the line above
  }
  if (::dup2(p.input.get(), 0) < 0 || (p.output && ::dup2(p.output.get(), 1) < 0) ||
      (p.errors && ::dup2(p.errors.get(), 2) < 0))
    give_up("giving it its files");
  // At exec rather than now: the report must still go out.
  if (::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) != 0) give_up("closing our files");
  if (p.directory && ::chdir(p.directory) != 0) give_up("entering its directory");
  // exec resets handlers but keeps what we ignore, SIGPIPE above all.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int number = 1; number < SIGRTMIN; ++number)
    if (number != SIGKILL && number != SIGSTOP) ::sigaction(number, &standard, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(p.program.c_str(), p.argv.data(), p.environment.data());
  give_up("running the program");
  ::_exit(127);
}

// vfork: its cost does not grow with our memory, and the parent resumes only once the child has become the program (or
// has said why not). Signals wait meanwhile: a handler run in the child would act on our memory.
// Returns the error, negated, when there is no child.
__attribute__((noinline)) pid_t spawn(Prepared& p) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::vfork();
  if (pid == 0) become(p);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return pid < 0 ? -error : pid;
}

class RealChild final : public Child {
 public:
  RealChild(pid_t pid, Descriptor fd) : pid_(pid), fd_(std::move(fd)) {}
  ~RealChild() override {
    signal(SIGKILL);
    reap(/*block=*/true);
  }

  int pid() const override { return pid_; }
  bool watched() const { return static_cast<bool>(fd_); }
  Usage usage() const override {
    Lock lock(mu_);
    return usage_;
  }

  void signal(int number) override {
    Lock lock(mu_);
    // Until it is reaped its number cannot belong to anybody else, even when it has ended.
    if (!exit_) ::kill(-pid_, number);
  }

  std::optional<Exit> wait(Micros at_most) override {
    const RealClock clock;
    const Micros began = clock.now();
    for (;;) {
      if (const auto exit = reap(/*block=*/false)) return exit;
      const Micros left = at_most - (clock.now() - began);
      if (left <= Micros(0)) return std::nullopt;
      pollfd ready{fd_.get(), POLLIN, 0};
      const auto whole =
          std::chrono::duration_cast<std::chrono::seconds>(std::min<Micros>(left, std::chrono::hours(1)));
      const auto rest = std::min<Micros>(left, std::chrono::hours(1)) - whole;
      const timespec limit{whole.count(), rest.count() * 1000};
      ::ppoll(&ready, 1, &limit, nullptr);
    }
  }

 private:
  std::optional<Exit> reap(bool block) {
    Lock lock(mu_);
    siginfo_t info{};
    while (!exit_) {
      rusage used{};  // the system call tells it; the library's waitid does not
      const auto result = ::syscall(SYS_waitid, P_PID, pid_, &info, WEXITED | (block ? 0 : WNOHANG), &used);
      if (result != 0 && errno == EINTR) continue;
      CHECK(result == 0, "somebody else waited for our child");
      if (info.si_pid == 0) return std::nullopt;
      const auto micros = [](const timeval& t) { return Micros(t.tv_sec * 1'000'000 + t.tv_usec); };
      usage_ = {micros(used.ru_utime) + micros(used.ru_stime), static_cast<std::uint64_t>(used.ru_maxrss) * 1024};
      exit_ = info.si_code == CLD_EXITED ? Exit{info.si_status, 0} : Exit{0, info.si_status};
    }
    return exit_;
  }

  const pid_t pid_;
  const Descriptor fd_;  // readable when it has ended

  mutable Mutex mu_;
  std::optional<Exit> exit_ GUARDED_BY(mu_);
  Usage usage_ GUARDED_BY(mu_);
};

Failure read_failure(int fd) {
  Failure failure;
  while (::read(fd, &failure, sizeof failure) < 0 && errno == EINTR) {
  }
  return failure;
}

}  // namespace

// Only spawns: preparing and watching are the caller's.
class RealProcesses::Starter {
 public:
  Starter() : thread_([this] { run(); }) {}
  ~Starter() {
    queue_.close();
    thread_.join();
  }

  pid_t start(Prepared& prepared) {
    Request request{&prepared};
    Request* queued = &request;
    if (!queue_.try_push(queued)) throw Error(Code::exhausted, "starting a process: too many are being started");
    Lock lock(mu_);
    while (!request.done) lock.wait(done_);
    return request.pid;
  }

 private:
  struct Request {
    Prepared* prepared;
    pid_t pid = 0;  // these two are guarded by mu_
    bool done = false;
  };

  void run() {
    while (const auto request = queue_.pop()) {
      const pid_t pid = spawn(*(*request)->prepared);
      Lock lock(mu_);
      (*request)->pid = pid;
      (*request)->done = true;
      done_.notify_all();
    }
  }

  BoundedQueue<Request*> queue_{kStartsWaitingMax};
  Mutex mu_;
  std::condition_variable done_;
  std::thread thread_;  // last: runs while the rest exists
};

RealProcesses::RealProcesses() : starter_(std::make_unique<Starter>()) {}
RealProcesses::~RealProcesses() = default;

std::unique_ptr<Child> RealProcesses::start(const Command& command) {
  refuse_bad(command);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("making a pipe", errno);
  const Descriptor outcome(ends[0]);
  Descriptor report(ends[1]);
  Prepared p{.program = program_path(command.argv[0]),
             .argv = pointers(command.argv),
             .environment = pointers(command.environment),
             .directory = command.directory.empty() ? nullptr : command.directory.c_str(),
             .input = Descriptor(command.keeps_input ? ::fcntl(0, F_DUPFD_CLOEXEC, 3)
                                                     : ::open("/dev/null", O_RDONLY | O_CLOEXEC)),
             .output = open_output(command.stdout_file, command.stdout_descriptor),
             .errors = open_output(command.stderr_file, command.stderr_descriptor),
             .dies_with_parent = command.dies_with_parent,
             .parent = ::getpid(),
             .report = std::move(report)};
  if (!p.input) fail("opening its input", errno);
  const pid_t pid = starter_->start(p);
  if (pid < 0) fail("making it", -pid);
  p.report = Descriptor();
  if (const auto failure = read_failure(outcome.get()); failure.at) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    fail(failure.at, failure.error);
  }
  Descriptor fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const int error = errno;
  auto child = std::make_unique<RealChild>(pid, std::move(fd));
  if (!child->watched()) fail("watching it", error);
  return child;
}

}  // namespace falaj::sys
