// SPDX-License-Identifier: Apache-2.0
#include "compute/train/gang_watch.h"

#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::train {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

[[noreturn]] void fail_watch(const std::string& what) {
  throw Error(Code::unavailable, fmt::format("{}: {}", what, std::generic_category().message(errno)));
}

Addresses resolve(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = flags;
  if (const int failed = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); failed != 0)
    throw Error(Code::unavailable, fmt::format("the address {}: {}", host, ::gai_strerror(failed)));
  return {found, &::freeaddrinfo};
}

struct Own {
  std::string address, port;
};
Own own_of(int socket) {
  sockaddr_storage at{};
  socklen_t size = sizeof at;
  char address[NI_MAXHOST], port[NI_MAXSERV];
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&at), &size) != 0) fail_watch("the address of a socket");
  ::getnameinfo(reinterpret_cast<sockaddr*>(&at), size, address, sizeof address, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
  return {address, port};
}

}  // namespace

std::string address_towards(const std::string& host, int port) {
  const auto found = resolve(host, std::to_string(port), AI_NUMERICSERV);
  for (const auto* at = found.get(); at; at = at->ai_next) {
    const sys::Descriptor socket(::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    // Nothing is sent: the kernel only looks which way it would go.
    if (socket && ::connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0) return own_of(socket.get()).address;
  }
  fail_watch(fmt::format("a way to {}", host));
}

std::string numeric_address(const std::string& host) {
  const auto found = resolve(host, "0", AI_NUMERICSERV);
  char address[NI_MAXHOST];
  if (const int failed =
          ::getnameinfo(found->ai_addr, found->ai_addrlen, address, sizeof address, nullptr, 0, NI_NUMERICHOST);
      failed != 0)
    throw Error(Code::unavailable, fmt::format("the address {}: {}", host, ::gai_strerror(failed)));
  return address;
}

GangWatch::GangWatch(const std::string& address) : stop_(::eventfd(0, EFD_CLOEXEC)) {
  const auto found = resolve(address, "0", AI_NUMERICHOST | AI_NUMERICSERV);
  socket_ = sys::Descriptor(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_ || !stop_ || ::bind(socket_.get(), found->ai_addr, found->ai_addrlen) != 0)
    fail_watch(fmt::format("listening on {}", address));
  const auto own = own_of(socket_.get());
  place_ = own.address + " " + own.port;
}

GangWatch::~GangWatch() { stop(); }

void GangWatch::start(Settings settings, const sys::Clock& clock) {
  settings_ = std::move(settings);
  thread_ = std::thread([this, &clock] { run(clock); });
}

void GangWatch::stop() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

// A datagram is the word and the sender's rank.
void GangWatch::hear(std::vector<sys::Micros>& heard, sys::Micros now) {
  char bytes[256];
  for (;;) {
    const auto n = ::recv(socket_.get(), bytes, sizeof bytes, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) continue;  // what the kernel says of a datagram we sent: nobody was there to take it
    const std::string_view text(bytes, static_cast<std::size_t>(n));
    if (!text.starts_with(settings_.word)) continue;
    std::size_t rank = heard.size();
    std::from_chars(bytes + settings_.word.size(), bytes + n, rank);
    if (rank < heard.size()) heard[rank] = now;
  }
}

void GangWatch::run(const sys::Clock& clock) {
  const auto interval = settings_.silence / 10;
  const auto says = settings_.word + std::to_string(settings_.rank);
  std::vector<Addresses> others;
  for (std::size_t i = 0; i < settings_.places.size(); ++i) {
    const auto& place = settings_.places[i];
    const auto space = place.find(' ');
    if (i != settings_.rank)
      others.push_back(resolve(place.substr(0, space), place.substr(space + 1), AI_NUMERICHOST | AI_NUMERICSERV));
  }
  auto before = clock.now();
  std::vector<sys::Micros> heard(settings_.places.size(), before);
  for (auto next = before;;) {
    auto now = clock.now();
    if (now >= next) {
      for (const auto& to : others)
        ::sendto(socket_.get(), says.data(), says.size(), MSG_NOSIGNAL, to->ai_addr, to->ai_addrlen);
      next = now + interval;
    }
    pollfd watched[] = {{socket_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
    ::poll(watched, 2, static_cast<int>(std::max<std::int64_t>(wait, 0)));
    if (watched[1].revents != 0) return;
    now = clock.now();
    hear(heard, now);
    // Who was stopped himself, or is on a machine that was, has heard nobody: that says nothing about them.
    if (now - before > settings_.silence / 2) std::fill(heard.begin(), heard.end(), now);
    before = now;
    heard[settings_.rank] = now;
    const auto silent = std::min_element(heard.begin(), heard.end());
    if (now - *silent > settings_.silence) {
      const auto rank = static_cast<std::size_t>(silent - heard.begin());
      settings_.lost(rank, fmt::format("nothing was heard of rank {} for {:.1f} s", rank,
                                       std::chrono::duration<double>(now - *silent).count()));
      return;
    }
  }
}

}  // namespace falaj::train
