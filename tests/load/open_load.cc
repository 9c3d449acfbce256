// SPDX-License-Identifier: Apache-2.0
#include "tests/load/open_load.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/net/testing.h"

namespace falaj::tests {
namespace {

constexpr std::size_t kReadBytes = std::size_t{256} << 10;

struct Under {
  std::uint64_t number = 0;
  std::int64_t due_us = 0;
};

// One kept connection, and what came on it of the answer it waits for.
struct Connection {
  explicit Connection(std::uint16_t port) : socket(port) {}
  net::RawConnection socket;
  Under way;
  std::string received;
  std::size_t head = 0, length = 0;  // 0: the head is not whole yet
  int status = 0;

  bool is_whole() {
    if (head == 0) {
      const auto end = received.find("\r\n\r\n");
      if (end == std::string::npos) return false;
      head = end + 4;
      status = static_cast<int>(parse_int(std::string_view(received).substr(9, 3)).value_or(0));
      constexpr std::string_view kLength = "content-length:";
      const auto text = lower(std::string_view(received).substr(0, head));
      const auto at = text.find(kLength);
      if (at == std::string::npos) throw Error(Code::internal, "an answer without a length");
      const auto from = at + kLength.size();
      length = static_cast<std::size_t>(
          parse_int(trim(std::string_view(text).substr(from, text.find('\r', from) - from))).value_or(0));
    }
    return received.size() >= head + length;
  }
};

class Offering {
 public:
  Offering(std::uint16_t port, const Load& load, const Conversation& conversation, const sys::Clock& clock)
      : load_(load), conversation_(conversation), clock_(clock), poll_(::epoll_create1(EPOLL_CLOEXEC)) {
    CHECK(poll_ >= 0, "no epoll");
    for (std::size_t i = 0; i < load.connections; ++i) {
      auto& connection = connections_.emplace_back(port);
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u32 = static_cast<std::uint32_t>(i);
      CHECK(::epoll_ctl(poll_, EPOLL_CTL_ADD, connection.socket.descriptor(), &event) == 0, "no epoll");
      free_.push_back(i);
    }
    buffer_.resize(kReadBytes);
  }
  ~Offering() { ::close(poll_); }

  Loaded run() {
    const auto begin_us = clock_.now().count();
    const auto end_us = begin_us + static_cast<std::int64_t>(load_.seconds * 1e6);
    out_.latencies_us.reserve(static_cast<std::size_t>(load_.seconds * std::max(load_.per_second, 20'000.0)));
    for (auto now_us = begin_us; now_us < end_us || under_way_ > 0; now_us = clock_.now().count()) {
      if (now_us < end_us) send_due(begin_us, now_us);
      wait(now_us < end_us ? wait_us(begin_us, now_us) : 1000);
    }
    out_.seconds = static_cast<double>(clock_.now().count() - begin_us) / 1e6;
    std::sort(out_.latencies_us.begin(), out_.latencies_us.end());
    return std::move(out_);
  }

 private:
  std::int64_t due_us(std::int64_t begin_us, std::uint64_t number) const {
    return begin_us + static_cast<std::int64_t>(static_cast<double>(number) * 1e6 / load_.per_second);
  }
  std::int64_t wait_us(std::int64_t begin_us, std::int64_t now_us) const {
    if (load_.per_second == 0 || free_.empty()) return 1000;
    return std::clamp<std::int64_t>(due_us(begin_us, next_) - now_us, 0, 1000);
  }

  void send_due(std::int64_t begin_us, std::int64_t now_us) {
    while (!free_.empty() && (load_.per_second == 0 || due_us(begin_us, next_) <= now_us)) {
      auto& connection = connections_[free_.back()];
      free_.pop_back();
      connection.way = {next_, load_.per_second == 0 ? now_us : due_us(begin_us, next_)};
      ++next_;
      request_.clear();
      conversation_.asked(connection.way.number, request_);
      if (!connection.socket.send(request_)) throw Error(Code::unavailable, "the server closed a connection");
      ++under_way_;
    }
  }

  void wait(std::int64_t us) {
    std::array<epoll_event, 64> ready{};
    const timespec longest{us / 1'000'000, us % 1'000'000 * 1000};
    const int n = ::epoll_pwait2(poll_, ready.data(), static_cast<int>(ready.size()), &longest, nullptr);
    for (int i = 0; i < n; ++i) receive(ready[static_cast<std::size_t>(i)].data.u32);
  }

  void receive(std::size_t index) {
    auto& connection = connections_[index];
    const auto got = ::recv(connection.socket.descriptor(), buffer_.data(), buffer_.size(), 0);
    if (got <= 0) throw Error(Code::unavailable, "the server closed a connection");
    connection.received.append(buffer_.data(), static_cast<std::size_t>(got));
    if (!connection.is_whole()) return;
    out_.latencies_us.push_back(static_cast<std::uint32_t>(clock_.now().count() - connection.way.due_us));
    const auto body = std::string_view(connection.received).substr(connection.head, connection.length);
    if (connection.status != 200) {
      if (++out_.refused; out_.first_trouble.empty())
        out_.first_trouble = fmt::format("{}: {}", connection.status, body.substr(0, 200));
    } else {
      ++out_.answers;
      if (const auto wrong = conversation_.answered(connection.way.number, body); !wrong.empty())
        if (++out_.wrong; out_.first_trouble.empty()) out_.first_trouble = wrong;
    }
    connection.received.clear();
    connection.head = connection.length = 0;
    free_.push_back(index);
    --under_way_;
  }

  const Load load_;
  const Conversation& conversation_;
  const sys::Clock& clock_;
  const int poll_;
  std::deque<Connection> connections_;
  std::vector<std::size_t> free_;
  std::uint64_t next_ = 0, under_way_ = 0;
  std::string request_;
  std::string buffer_;
  Loaded out_;
};

}  // namespace

double Loaded::percentile_us(double p) const {
  if (latencies_us.empty()) return 0;
  const auto at = static_cast<std::size_t>(p * static_cast<double>(latencies_us.size()));
  return latencies_us[std::min(at, latencies_us.size() - 1)];
}

Loaded offer(std::uint16_t port, const Load& load, const Conversation& conversation, const sys::Clock& clock) {
  return Offering(port, load, conversation, clock).run();
}

}  // namespace falaj::tests
