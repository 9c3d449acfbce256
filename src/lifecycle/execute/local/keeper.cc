// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/keeper.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <system_error>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/log.h"
#include "lifecycle/execute/local/images.h"
#include "lifecycle/execute/local/journal.h"
#include "lifecycle/execute/local/launch_check.h"
#include "lifecycle/execute/local/loop.h"
#include "lifecycle/execute/local/machine.h"
#include "lifecycle/execute/local/run.h"
#include "lifecycle/execute/local/socket_address.h"
#include "lifecycle/execute/local/wire.h"

namespace falaj::execute::local {
namespace {

constexpr std::size_t kRunsMax = 4096;
constexpr std::size_t kAttemptsMax = 100'000;  // running, or ended and not forgotten
constexpr std::size_t kPeersMax = 64;
constexpr std::size_t kUnsentBytesMax = std::size_t{64} << 20;
constexpr Micros kWriteAgain = std::chrono::seconds(1);

[[noreturn]] void fail_keeper(std::string_view doing) {
  throw Error(Code::unavailable, fmt::format("keeper: {}: {}", doing, std::generic_category().message(errno)));
}

// Keepers of one machine make groups side by side; a directory names its keeper whatever it is called.
std::string name_of_keeper(const std::string& directory) {
  struct stat info {};
  if (::stat(directory.c_str(), &info) != 0) fail_keeper("its directory");
  return fmt::format("falaj-{:x}-{:x}", info.st_dev, info.st_ino);
}

struct Peer {
  sys::Descriptor socket;
  Frames in;
  Bytes out;
  bool greeted = false;
};

class Keeper {
 public:
  explicit Keeper(const KeeperOptions& options)
      : options_(options),
        machine_(name_of_keeper(options.directory)),
        journal_(options.directory),
        logs_(options.directory + "/" + kLogsName),
        loop_(clock_),
        images_(loop_, options.directory + "/images") {
    if (::mkdir(logs_.c_str(), 0700) != 0 && errno != EEXIST) fail_keeper("the directory of logs");
    report_lost();
    listen();
    loop_.watch(listening_.get(), EPOLLIN, [this](std::uint32_t) { accept(); });
    sigset_t terminate;
    ::sigemptyset(&terminate);
    ::sigaddset(&terminate, SIGTERM);
    ::sigprocmask(SIG_BLOCK, &terminate, nullptr);
    signals_ = sys::Descriptor(::signalfd(-1, &terminate, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) fail_keeper("signals");
    loop_.watch(signals_.get(), EPOLLIN, [this](std::uint32_t) { end(); });
    // Since the namespaces are made; what they need of /proc is no longer ours then.
    if (::prctl(PR_SET_DUMPABLE, 0) != 0) fail_keeper("being looked into by nobody");
    end_when_idle();
  }

  void run() { loop_.run(); }

 private:
  using Peers = std::list<Peer>;

  // Of a predecessor: what ran died with it.
  void report_lost() {
    const auto reports = journal_.reports();
    for (auto [attempt, report] : reports) {
      if (report.phase == Phase::ended) continue;
      report.phase = Phase::ended;
      report.ending.emplace();
      report.ending->reason = Reason::node_lost;
      report.ending->message = "the keeper of this node ended, and its tasks with it";
      report.ending->at = clock_.wall();
      journal_.put(report);
    }
  }

  void listen() {
    listening_ = sys::Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listening_) fail_keeper("a socket");
    const SocketAddress address(options_.directory, kSocketName);
    ::unlink((options_.directory + "/" + kSocketName).c_str());  // of a predecessor: we hold the lock
    const auto before = ::umask(0177);
    const int bound = ::bind(listening_.get(), address.get(), address.size());
    ::umask(before);
    if (bound != 0 || ::listen(listening_.get(), 16) != 0) fail_keeper("listening");
  }

  void accept() {
    sys::Descriptor socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket || peers_.size() >= kPeersMax) return;
    ucred other{};
    socklen_t length = sizeof other;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &other, &length) != 0 || other.uid != ::geteuid()) return;
    peers_.push_back({std::move(socket), {}, {}, false});
    const auto peer = std::prev(peers_.end());
    try {
      loop_.watch(peer->socket.get(), EPOLLIN, [this, peer](std::uint32_t events) { serve(peer, events); });
    } catch (const Error&) {
      peers_.erase(peer);
      throw;
    }
  }

  void drop(Peers::iterator peer) {
    loop_.unwatch(peer->socket.get());
    peers_.erase(peer);
    end_when_idle();
  }

  void serve(Peers::iterator peer, std::uint32_t events) {
    try {
      if (events & EPOLLOUT) flush(*peer);
      if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        std::byte part[65'536];
        const auto n = ::recv(peer->socket.get(), part, sizeof part, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return drop(peer);
        if (n < 0) return;
        peer->in.add(BytesView(part).first(static_cast<std::size_t>(n)));
        while (const auto frame = peer->in.next()) answer(*peer, decode_question(*frame));
      }
    } catch (const Error& error) {
      log::warn("keeper_peer", {{"error", error.what()}});
      drop(peer);
    }
  }

  void send(Peer& peer, const Bytes& bytes) {
    if (peer.out.size() + bytes.size() > kUnsentBytesMax) throw Error(Code::exhausted, "an executor does not listen");
    peer.out.insert(peer.out.end(), bytes.begin(), bytes.end());
    flush(peer);
  }

  void flush(Peer& peer) {
    while (!peer.out.empty()) {
      const auto n = ::send(peer.socket.get(), peer.out.data(), peer.out.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno != EAGAIN) throw Error(Code::unavailable, "an executor went away");
      if (n < 0) break;
      peer.out.erase(peer.out.begin(), peer.out.begin() + n);
    }
    loop_.change(peer.socket.get(), peer.out.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
  }

  void tell_all(const Statement& statement) {
    const Bytes bytes = encode(statement);
    for (auto peer = peers_.begin(); peer != peers_.end();) {
      const auto next = std::next(peer);
      if (peer->greeted) {
        try {
          send(*peer, bytes);
        } catch (const Error&) {
          // It finds out by itself and is dropped then: this may be called while it is served.
          ::shutdown(peer->socket.get(), SHUT_RDWR);
          peer->greeted = false;
        }
      }
      peer = next;
    }
  }

  void answer(Peer& peer, const Question& question) {
    Statement answer{.told = Told::answer, .id = question.id};
    try {
      switch (question.ask) {
        case Ask::hello:
          greet(peer, answer);
          break;
        case Ask::start:
          check_start(question.order);
          break;
        case Ask::stop:
          stop(question.attempt, question.grace);
          break;
        case Ask::forget:
          forget(question.attempt);
          break;
        case Ask::use:
          if (const auto run = runs_.find(question.attempt); run != runs_.end())
            send(peer, encode(Statement{.told = Told::used, .attempt = question.attempt, .used = run->second->used()}));
          break;
      }
    } catch (const Error& error) {
      answer.refused = error;
    }
    const bool starts = question.ask == Ask::start && !answer.refused && begin(question.order.launch.attempt, answer);
    std::optional<Error> gone;
    try {
      send(peer, encode(answer));
    } catch (const Error& error) {
      gone = error;
    }
    // After the answer, because nobody waits for it; and also when nobody listens any more: it is in the journal.
    if (starts) start(question.order);
    if (gone) throw *gone;
  }

  // Whoever hears that a start was taken has heard of the attempt before. False: it was there, or cannot be.
  bool begin(const std::string& attempt, Statement& answer) {
    if (journal_.reports().count(attempt)) return false;
    try {
      Report report;
      report.attempt = attempt;
      journal_.put(report);
      tell_all({.told = Told::report, .report = std::move(report)});
      return true;
    } catch (const Error& error) {
      answer.refused = error;
      return false;
    }
  }

  void greet(Peer& peer, Statement& answer) {
    peer.greeted = true;
    for (const auto& [attempt, report] : journal_.reports())
      send(peer, encode(Statement{.told = Told::report, .report = report}));
    answer.abilities = {static_cast<int>(::getpid()), machine_.isolation_max(), machine_.has_namespaces(),
                        machine_.cgroups() != nullptr, machine_.lacking()};
  }

  void check_start(const Order& order) const {
    check(order, options_.directory);
    if (journal_.reports().count(order.launch.attempt)) return;
    if (ending_) throw Error(Code::unavailable, "starting an attempt: the keeper ends");
    if (runs_.size() >= kRunsMax) throw Error(Code::exhausted, "starting an attempt: too many run");
    if (journal_.reports().size() >= kAttemptsMax)
      throw Error(Code::exhausted, "starting an attempt: too many to be forgotten");
  }

  void start(const Order& order) {
    const std::string attempt = order.launch.attempt;
    auto run = std::make_unique<Run>(
        loop_, clock_, machine_, images_, fmt::format("{}/{}", logs_, attempt),
        Run::Calls{.running = [this, attempt](Isolation reached) { running(attempt, reached); },
                   .ended = [this, attempt](Ending ending) { ended(attempt, std::move(ending)); }});
    Run& started = *run;
    runs_.insert_or_assign(attempt, std::move(run));  // one that ended a moment ago may still be there
    started.start(order);
  }

  void running(const std::string& attempt, Isolation reached) {
    Report report = journal_.reports().find(attempt)->second;
    report.phase = Phase::running;
    report.started = clock_.wall();
    report.isolation = reached;
    journal_.note(report);  // whether it ran or was about to makes no difference to who finds us dead
    tell_all({.told = Told::report, .report = std::move(report)});
  }

  void ended(const std::string& attempt, const Ending& ending) {
    Report report = journal_.reports().find(attempt)->second;
    report.phase = Phase::ended;
    report.ending = ending;
    try {
      journal_.put(report);
    } catch (const Error& error) {  // the disk is full: nobody hears of the end before it is written
      log::warn("keeper_journal", {{"error", error.what()}});
      loop_.after(kWriteAgain, [this, attempt, ending] { ended(attempt, ending); });
      return;
    }
    tell_all({.told = Told::report, .report = std::move(report)});
    const auto over = runs_.find(attempt);
    loop_.after(Micros(0), [this, attempt, run = over->second.get()] {  // not now: it is the one who called
      const auto found = runs_.find(attempt);
      if (found != runs_.end() && found->second.get() == run) runs_.erase(found);
      end_when_idle();
    });
  }

  void stop(const std::string& attempt, Micros grace) {
    const auto run = runs_.find(attempt);
    if (run != runs_.end()) run->second->stop(grace, Cause::stop);
  }

  void forget(const std::string& attempt) {
    const auto known = journal_.reports().find(attempt);
    if (known == journal_.reports().end()) return;
    if (known->second.phase != Phase::ended) throw Error(Code::conflict, "forgetting an attempt: it has not ended");
    journal_.forget(attempt);
    tell_all({.told = Told::forgotten, .attempt = attempt});
  }

  // Told to end: its tasks cannot outlive it.
  void end() {
    signalfd_siginfo info;
    [[maybe_unused]] const auto n = ::read(signals_.get(), &info, sizeof info);
    ending_ = true;
    for (const auto& [attempt, run] : runs_) run->stop(Micros(0), Cause::keeper_ends);
    end_when_idle();
  }

  void end_when_idle() {
    if (ending_ && runs_.empty()) return loop_.quit();
    if (idle_) loop_.cancel(*idle_);
    idle_.reset();
    if (peers_.empty() && runs_.empty() && !options_.stays)
      idle_ = loop_.after(options_.linger, [this] {
        if (peers_.empty() && runs_.empty()) loop_.quit();
      });
  }

  const KeeperOptions options_;
  const sys::RealClock clock_;
  Machine machine_;
  Journal journal_;
  const std::string logs_;
  Loop loop_;
  Images images_;
  sys::Descriptor listening_, signals_;
  bool ending_ = false;
  Peers peers_;
  std::map<std::string, std::unique_ptr<Run>, std::less<>> runs_;
  std::optional<Loop::Timer> idle_;
};

void make_directory(const std::string& path) {
  for (std::size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    if (::mkdir(path.substr(0, at).c_str(), 0700) != 0 && errno != EEXIST) fail_keeper("making its directory");
    if (at == std::string::npos) return;
  }
}

// False: another holds it.
bool lock(const sys::Descriptor& file) {
  if (!file) fail_keeper("opening its lock");
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return true;
  if (errno != EWOULDBLOCK) fail_keeper("locking");
  return false;
}

void leave_terminal(const std::string& directory) {
  ::setsid();
  const sys::Descriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const sys::Descriptor errors(
      ::open((directory + "/keeper.log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!nothing || !errors || ::chdir("/") != 0) fail_keeper("leaving the terminal");
  for (int fd = 0; fd < 3; ++fd) ::dup2(fd == 2 ? errors.get() : nothing.get(), fd);
  ::prctl(PR_SET_NAME, "falaj-keeper");
}

// In the child: 0 or 1 goes to the parent, then it is on its own.
void be_keeper(const KeeperOptions& options, int ready) {
  for (const int number : {SIGPIPE, SIGHUP, SIGINT}) ::signal(number, SIG_IGN);
  const auto tell = [&](char status) {
    [[maybe_unused]] const auto n = ::write(ready, &status, 1);
    ::close(ready);
  };
  try {
    const sys::Descriptor held(
        ::open((options.directory + "/keeper.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!lock(held)) return tell(0);
    Keeper keeper(options);
    leave_terminal(options.directory);
    ::signal(SIGCHLD, SIG_IGN);  // nobody waits for an attempt's init: it says all there is to say
    tell(0);
    keeper.run();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    tell(1);
  }
}

}  // namespace

int run_keeper(const KeeperOptions& options) {
  try {
    make_directory(options.directory);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail_keeper("a pipe");
    const sys::Descriptor outcome(ends[0]);
    sys::Descriptor ready(ends[1]);
    const pid_t child = ::fork();
    if (child < 0) fail_keeper("a process");
    if (child == 0) {
      be_keeper(options, ready.release());
      ::_exit(0);
    }
    ready = sys::Descriptor();
    char status = 1;
    while (::read(outcome.get(), &status, 1) < 0 && errno == EINTR) {
    }
    return status;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace falaj::execute::local
