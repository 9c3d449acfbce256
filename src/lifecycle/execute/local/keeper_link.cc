// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/keeper_link.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "foundation/base/error.h"
#include "foundation/base/log.h"
#include "lifecycle/execute/local/journal.h"
#include "lifecycle/execute/local/keeper.h"
#include "lifecycle/execute/local/socket_address.h"

namespace falaj::execute::local {
namespace {

constexpr Micros kKeeperStartMax = std::chrono::seconds(60);
constexpr Micros kAnswerMax = std::chrono::seconds(30);
constexpr Micros kTryAgain = std::chrono::milliseconds(200);
constexpr int kTries = 20;

[[noreturn]] void away() { throw Error(Code::unavailable, "the keeper of this node does not answer"); }

bool send_all(int socket, BytesView bytes) {
  while (!bytes.empty()) {
    const auto n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

KeeperLink::KeeperLink(std::string directory, std::vector<std::string> keeper, const sys::Clock& clock,
                       sys::Processes& processes)
    : directory_(std::move(directory)), keeper_(std::move(keeper)), clock_(clock), processes_(processes) {
  introduce(connect_or_start());
  reader_ = std::thread([this] { read_all(); });
}

KeeperLink::~KeeperLink() {
  {
    Lock lock(mu_);
    stop_ = true;
    if (socket_) ::shutdown(socket_.get(), SHUT_RDWR);
    changed_.notify_all();
  }
  reader_.join();
}

bool KeeperLink::stopped() {
  Lock lock(mu_);
  return stop_;
}

sys::Descriptor KeeperLink::connect() {
  sys::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress address(directory_, kSocketName);
  if (!socket || ::connect(socket.get(), address.get(), address.size()) != 0) return sys::Descriptor();
  return socket;
}

void KeeperLink::start_keeper() {
  sys::Command command;
  command.argv = keeper_;
  command.argv.insert(command.argv.end(), {"--dir", directory_});
  const auto child = processes_.start(command);
  const auto exit = child->wait(kKeeperStartMax);
  if (!exit) throw Error(Code::unavailable, "the keeper of this node is not there after a minute");
  if (*exit != sys::Exit{}) throw Error(Code::unavailable, "the keeper of this node does not start");
}

// One that is about to end may still be in the way: hence several tries.
sys::Descriptor KeeperLink::connect_or_start() {
  for (int tries = 0; tries < kTries; ++tries) {
    if (auto socket = connect()) return socket;
    if (stopped()) away();
    start_keeper();
  }
  away();
}

// Says hello and hears of every attempt before anything else happens.
void KeeperLink::introduce(sys::Descriptor socket) {
  reading_ = socket.get();
  frames_ = Frames();
  if (!send_all(socket.get(), encode(Question{.ask = Ask::hello}))) away();
  Heard heard;
  const auto is_answer = [](const Statement& statement) { return statement.told == Told::answer; };
  while (std::none_of(heard.statements.begin(), heard.statements.end(), is_answer))
    if (!read_some(heard))
      throw Error(Code::unavailable,
                  "the keeper of this node hangs up; one of an older version ends with its last job");
  {
    Lock lock(mu_);
    socket_ = std::move(socket);
    if (stop_) ::shutdown(socket_.get(), SHUT_RDWR);
  }
  publish(std::move(heard), true);  // who hears of it may ask
}

bool KeeperLink::read_some(Heard& heard) {
  std::byte part[65'536];
  const auto n = ::recv(reading_, part, sizeof part, 0);
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) return false;
  frames_.add(BytesView(part).first(static_cast<std::size_t>(n)));
  while (const auto frame = frames_.next()) {
    heard.statements.push_back(decode_statement(*frame));
    const auto& last = heard.statements.back();
    heard.ends = heard.ends || (last.told == Told::report && last.report.phase == Phase::ended);
  }
  return true;
}

void KeeperLink::publish(Heard heard, bool afresh) {
  if (heard.ends) Journal::sync(directory_);  // one for all that came together
  Lock lock(mu_);
  if (afresh) reports_.clear();
  for (auto& statement : heard.statements) {
    switch (statement.told) {
      case Told::report:
        reports_[statement.report.attempt] = std::move(statement.report);
        break;
      case Told::forgotten:
        reports_.erase(statement.attempt);
        break;
      case Told::used:
        used_[statement.attempt] = statement.used;
        continue;
      case Told::answer:
        if (statement.abilities.keeper_pid != 0) abilities_ = statement.abilities;
        if (const auto waits = asked_.find(statement.id); waits != asked_.end()) waits->second = std::move(statement);
        continue;
    }
    ++version_;
  }
  if (afresh) ++version_;
  changed_.notify_all();
}

void KeeperLink::read_all() {
  while (!stopped()) {
    try {
      if (reading_ < 0) introduce(connect_or_start());
      Heard heard;
      if (read_some(heard)) {
        publish(std::move(heard), false);
        continue;
      }
      if (stopped()) return;
      log::warn("keeper_lost");
    } catch (const Error& error) {
      if (stopped()) return;
      log::warn("keeper_lost", {{"error", error.what()}});
    }
    lose();
    if (!wait_before_trying_again()) return;
  }
}

void KeeperLink::lose() {
  if (reading_ >= 0) ::shutdown(reading_, SHUT_RDWR);  // whoever sends stops waiting
  reading_ = -1;
  Lock sending(sending_);
  Lock lock(mu_);
  socket_ = sys::Descriptor();
  asked_.clear();  // nobody answers these
  changed_.notify_all();
}

bool KeeperLink::wait_before_trying_again() {
  Lock lock(mu_);
  const Micros until = clock_.now() + kTryAgain;
  for (Micros left = kTryAgain; !stop_ && left > Micros(0); left = until - clock_.now()) lock.wait_for(changed_, left);
  return !stop_;
}

void KeeperLink::ask(Question question) {
  {
    Lock sending(sending_);
    int socket = -1;
    {
      Lock lock(mu_);
      if (!socket_) away();
      socket = socket_.get();
      question.id = ++last_id_;
      asked_.try_emplace(question.id);
    }
    if (!send_all(socket, encode(question))) {
      Lock lock(mu_);
      asked_.erase(question.id);
      away();
    }
  }
  Lock lock(mu_);
  const Micros until = clock_.now() + kAnswerMax;
  for (;;) {
    const auto asked = asked_.find(question.id);
    if (asked == asked_.end()) away();
    if (asked->second) break;
    const Micros left = until - clock_.now();
    if (left <= Micros(0)) {
      asked_.erase(asked);
      away();
    }
    lock.wait_for(changed_, left);
  }
  const auto answer = std::move(*asked_.extract(question.id).mapped());
  if (answer.refused) throw *answer.refused;
}

std::optional<Used> KeeperLink::used(const std::string& attempt) {
  ask({.ask = Ask::use, .attempt = attempt});
  Lock lock(mu_);
  const auto found = used_.extract(attempt);
  return found.empty() ? std::nullopt : std::optional(found.mapped());
}

std::vector<Report> KeeperLink::reports(std::uint64_t& seen, Micros at_most) {
  Lock lock(mu_);
  const Micros until = clock_.now() + at_most;
  for (Micros left = at_most; version_ == seen && left > Micros(0); left = until - clock_.now())
    lock.wait_for(changed_, left);
  seen = version_;
  std::vector<Report> out;
  out.reserve(reports_.size());
  for (const auto& [attempt, report] : reports_) out.push_back(report);
  return out;
}

std::optional<Report> KeeperLink::report(std::string_view attempt) {
  Lock lock(mu_);
  const auto found = reports_.find(attempt);
  return found == reports_.end() ? std::nullopt : std::optional(found->second);
}

Abilities KeeperLink::abilities() {
  Lock lock(mu_);
  return abilities_;
}

}  // namespace falaj::execute::local
