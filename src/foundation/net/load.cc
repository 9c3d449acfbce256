// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/load.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/sys/descriptor.h"
#include "foundation/sys/net.h"

namespace falaj::net {
namespace {

constexpr std::size_t kLoadReadBytes = std::size_t{256} << 10;
constexpr std::size_t kAnswerHeadBytesMax = std::size_t{64} << 10;
constexpr std::int64_t kRestUs = 10'000;     // of a connection that could not be made
constexpr std::int64_t kLookUs = 100'000;    // between two looks for answers that are late
constexpr std::int64_t kIdleWaitUs = 1'000;  // most time in one wait
constexpr timeval kOpenWait{5, 0};

struct SslDelete {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};

// What connections are made of: the address, looked up once, and whom to trust.
class Dialler {
 public:
  explicit Dialler(const LoadTarget& target) : host_(target.host), port_(target.port) {
    sys::RealResolver resolver;
    addresses_ = resolver.resolve(host_);
    if (target.tls) trust(target.ca_file);
  }

  sys::Descriptor connect() const {
    for (std::size_t i = 0;; ++i) {
      try {
        return connect(addresses_.at(i));
      } catch (const Error&) {
        if (i + 1 >= addresses_.size()) throw;
      }
    }
  }

  // Null without TLS.
  std::unique_ptr<SSL, SslDelete> secure(int socket) const {
    if (!context_) return nullptr;
    std::unique_ptr<SSL, SslDelete> out(SSL_new(context_.get()));
    CHECK(out, "out of memory");
    auto* checked = SSL_get0_param(out.get());
    if (X509_VERIFY_PARAM_set1_ip_asc(checked, host_.c_str()) != 1) {
      SSL_set1_host(out.get(), host_.c_str());
      SSL_set_tlsext_host_name(out.get(), host_.c_str());
    }
    SSL_set_fd(out.get(), socket);
    if (SSL_connect(out.get()) != 1) {
      const auto verified = SSL_get_verify_result(out.get());
      ERR_clear_error();
      if (verified != X509_V_OK)
        throw Error(Code::denied,
                    fmt::format("{}:{} is not trusted: {}", host_, port_, X509_verify_cert_error_string(verified)));
      throw Error(Code::unavailable, fmt::format("no TLS with {}:{}", host_, port_));
    }
    return out;
  }

 private:
  sys::Descriptor connect(const sys::Address& address) const {
    const bool v4 = address.is_v4();
    sys::Descriptor out(::socket(v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!out) throw Error(Code::unavailable, fmt::format("no socket: {}", std::strerror(errno)));
    const int on = 1;
    ::setsockopt(out.get(), SOL_SOCKET, SO_SNDTIMEO, &kOpenWait, sizeof kOpenWait);
    ::setsockopt(out.get(), SOL_SOCKET, SO_RCVTIMEO, &kOpenWait, sizeof kOpenWait);
    ::setsockopt(out.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(port_);
    std::memcpy(&four.sin_addr, address.bytes.data() + 12, 4);  // the mapped form ends with it
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port_);
    std::memcpy(&six.sin6_addr, address.bytes.data(), 16);
    const auto* to = v4 ? reinterpret_cast<const sockaddr*>(&four) : reinterpret_cast<const sockaddr*>(&six);
    if (::connect(out.get(), to, v4 ? sizeof four : sizeof six) != 0)
      throw Error(Code::unavailable, fmt::format("no connection to {}:{}: {}", host_, port_, std::strerror(errno)));
    return out;
  }

  void trust(const std::string& ca_file) {
    struct sigaction now {};  // OpenSSL writes to closed sockets as to open ones
    if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
    context_.reset(SSL_CTX_new(TLS_client_method()));
    CHECK(context_, "out of memory");
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_3_VERSION);
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_mode(context_.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (ca_file.empty())
      SSL_CTX_set_default_verify_paths(context_.get());
    else if (SSL_CTX_load_verify_locations(context_.get(), ca_file.c_str(), nullptr) != 1)
      throw Error(Code::invalid, fmt::format("no certificates can be read from {}", ca_file));
  }

  const std::string host_;
  const std::uint16_t port_;
  std::vector<sys::Address> addresses_;
  std::unique_ptr<SSL_CTX, SslDelete> context_;
};

// The head of an answer, as far as it is needed to find its end.
struct AnswerHead {
  int status = 0;
  std::size_t bytes = 0, body_bytes = 0;
  bool last = false;  // the server closes the connection behind it
};

std::optional<AnswerHead> read_head(std::string_view received) {
  const auto end = received.find("\r\n\r\n");
  if (end == std::string_view::npos) {
    if (received.size() > kAnswerHeadBytesMax) throw Error(Code::unavailable, "an answer's head has no end");
    return std::nullopt;
  }
  AnswerHead out;
  out.bytes = end + 4;
  const auto status = received.starts_with("HTTP/1.") && end >= 12 ? parse_int(received.substr(9, 3)) : std::nullopt;
  if (!status) throw Error(Code::unavailable, "an answer is not HTTP/1.1");
  out.status = static_cast<int>(*status);
  bool known = out.status == 204 || out.status == 304;
  for (const auto line : split(received.substr(0, end), '\n')) {
    const auto colon = line.find(':');
    if (colon != 10 && colon != 14) continue;  // as long as the names below
    const auto name = lower(line.substr(0, colon));
    const auto value = trim(line.substr(colon + 1));
    if (name == "content-length") {
      const auto length = parse_int(value);
      if (!length || *length < 0) throw Error(Code::unavailable, "an answer's Content-Length is no number");
      out.body_bytes = static_cast<std::size_t>(*length);
      known = true;
    } else if (name == "connection") {
      out.last = lower(value) == "close";
    }
  }
  if (!known) throw Error(Code::unavailable, "an answer has no Content-Length");
  return out;
}

struct LoadConnection {
  sys::Descriptor socket;
  std::unique_ptr<SSL, SslDelete> tls;  // ends before its socket does
  bool asking = false;                  // a request is under way
  std::uint64_t number = 0;
  std::int64_t due_us = 0, sent_us = 0, freed_us = 0, rest_until_us = 0, tardy_us = 0;
  std::string request, received;
  std::size_t sent = 0;
  std::optional<AnswerHead> head;
  bool writes_too = false;  // is waited for until it can be written to

  void close() {
    tls.reset();
    socket = sys::Descriptor();
  }
  // Like recv and send: -1 with EAGAIN when it would block.
  ssize_t read(char* into, std::size_t bytes) const {
    if (!tls) return ::recv(socket.get(), into, bytes, 0);
    return told(SSL_read(tls.get(), into, static_cast<int>(bytes)));
  }
  ssize_t write(std::string_view bytes) const {
    if (!tls) return ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return told(SSL_write(tls.get(), bytes.data(), static_cast<int>(std::min<std::size_t>(bytes.size(), 1 << 30))));
  }
  ssize_t told(int result) const {
    if (result > 0) return result;
    const auto why = SSL_get_error(tls.get(), result);
    ERR_clear_error();
    if (why == SSL_ERROR_ZERO_RETURN) return 0;
    errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
    return -1;
  }
};

double thread_cpu_seconds() {
  rusage mine{};
  ::getrusage(RUSAGE_THREAD, &mine);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(mine.ru_utime) + seconds(mine.ru_stime);
}

// The kernel wakes a thread up to 50 us after it asked to be, which would be counted as the server's.
class OnTime {
 public:
  OnTime() : before_(::prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0)) { ::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); }
  ~OnTime() { ::prctl(PR_SET_TIMERSLACK, before_ > 0 ? before_ : 0, 0, 0, 0); }
  OnTime(const OnTime&) = delete;
  OnTime& operator=(const OnTime&) = delete;

 private:
  const int before_;
};

class Offering {
 public:
  Offering(const LoadTarget& target, const Load& load, const Talk& talk, const sys::Clock& clock)
      : load_(load), talk_(talk), clock_(clock), dialler_(target), poll_(::epoll_create1(EPOLL_CLOEXEC)) {
    CHECK(poll_, "no epoll");
    for (std::size_t i = 0; i < load.connections; ++i) {
      connections_.emplace_back();
      open(i);
      free_.push_back(i);
    }
    buffer_.resize(kLoadReadBytes);
  }

  LoadTook run() {
    const OnTime on_time;
    const double cpu = thread_cpu_seconds();
    begin_us_ = now_us();
    end_us_ = begin_us_ + static_cast<std::int64_t>(load_.seconds * 1e6);
    auto last_look_us = begin_us_;
    for (auto now = begin_us_; now < end_us_ || under_way_ > 0; now = now_us()) {
      if (now < end_us_) send_due(now);
      wait(wait_us(now_us()));
      if (now - last_look_us < kLookUs) continue;
      last_look_us = now;
      give_up_late(now);
    }
    LoadTook took;
    took.seconds = static_cast<double>(std::max(last_us_, end_us_) - begin_us_) / 1e6;
    took.cpu_seconds = thread_cpu_seconds() - cpu;
    tell_unsent();
    return took;
  }

 private:
  std::int64_t now_us() const { return clock_.now().count(); }
  bool is_open_loop() const { return load_.per_second > 0 || !load_.due_us.empty(); }
  std::int64_t next_due_us() const {
    if (load_.due_us.empty()) return begin_us_ + due_us(load_.per_second, next_);
    return next_ < load_.due_us.size() ? begin_us_ + load_.due_us[next_] : std::numeric_limits<std::int64_t>::max();
  }

  // Until the next is due. What is due already waits for a connection, whose answer ends the wait.
  std::int64_t wait_us(std::int64_t now) const {
    if (now >= end_us_) return kIdleWaitUs;
    auto until_us = std::min(now + kIdleWaitUs, end_us_);
    if (is_open_loop() && next_due_us() > now) until_us = std::min(until_us, next_due_us());
    return until_us - now;
  }

  void open(std::size_t index) {
    auto& connection = connections_[index];
    connection.close();
    auto socket = dialler_.connect();
    connection.tls = dialler_.secure(socket.get());
    ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
    connection.socket = std::move(socket);
    connection.writes_too = false;
    watch(index, EPOLL_CTL_ADD);
  }

  void watch(std::size_t index, int how) {
    epoll_event event{};
    event.events = connections_[index].writes_too ? EPOLLIN | EPOLLOUT : EPOLLIN;
    event.data.u64 = index;
    CHECK(::epoll_ctl(poll_.get(), how, connections_[index].socket.get(), &event) == 0, "no epoll");
  }

  // A connection on which a request may be sent now.
  std::optional<std::size_t> take_free(std::int64_t now) {
    // The one that rested longest: all are used, and with them all threads of the server.
    for (std::size_t tries = free_.size(); tries > 0; --tries) {
      const auto index = free_.front();
      free_.pop_front();
      if (connections_[index].rest_until_us <= now) return index;
      free_.push_back(index);
    }
    return std::nullopt;
  }

  void send_due(std::int64_t now) {
    while (now < end_us_ && (!is_open_loop() || next_due_us() <= now)) {
      const auto index = take_free(now);
      if (!index) return;
      auto& connection = connections_[*index];
      connection.number = next_;
      connection.due_us = is_open_loop() ? next_due_us() : now;
      connection.tardy_us = is_open_loop() ? now - std::max(connection.due_us, connection.freed_us) : 0;
      ++next_;
      ++under_way_;
      connection.asking = true;
      connection.sent_us = now;
      connection.sent = 0;
      connection.request.clear();
      connection.received.clear();
      connection.head.reset();
      if (connection.socket || reopen(*index)) {
        talk_.ask(connection.number, connection.request);
        push(*index);
      }
      now = now_us();
    }
  }

  // Whether it could. What was to be sent is lost otherwise.
  bool reopen(std::size_t index) {
    try {
      open(index);
      return true;
    } catch (const Error& e) {
      connections_[index].rest_until_us = now_us() + kRestUs;
      lose(index, Heard::What::broken, e.what());
      return false;
    }
  }

  void push(std::size_t index) {
    auto& connection = connections_[index];
    while (connection.sent < connection.request.size()) {
      const auto n = connection.write(std::string_view(connection.request).substr(connection.sent));
      if (n > 0) {
        connection.sent += static_cast<std::size_t>(n);
      } else if (errno == EAGAIN || errno == EINTR) {
        break;
      } else {
        return lose(index, Heard::What::broken, "the server closed the connection");
      }
    }
    const bool more = connection.sent < connection.request.size();
    if (more == connection.writes_too) return;
    connection.writes_too = more;
    watch(index, EPOLL_CTL_MOD);
  }

  void wait(std::int64_t us) {
    std::array<epoll_event, 128> ready{};
    const timespec longest{us / 1'000'000, us % 1'000'000 * 1000};
    const int n = ::epoll_pwait2(poll_.get(), ready.data(), static_cast<int>(ready.size()), &longest, nullptr);
    for (int i = 0; i < n; ++i) {
      const auto& event = ready[static_cast<std::size_t>(i)];
      const auto index = static_cast<std::size_t>(event.data.u64);
      if (connections_[index].writes_too && (event.events & EPOLLOUT) != 0) push(index);
      if (connections_[index].socket && (event.events & ~static_cast<unsigned>(EPOLLOUT)) != 0) receive(index);
    }
  }

  void receive(std::size_t index) {
    auto& connection = connections_[index];
    for (;;) {  // TLS may hold more than the socket tells of
      const auto got = connection.read(buffer_.data(), buffer_.size());
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (got <= 0 || !connection.asking) {
        if (connection.asking) return lose(index, Heard::What::broken, "the server closed the connection");
        return connection.close();  // it was kept for nothing long enough
      }
      connection.received.append(buffer_.data(), static_cast<std::size_t>(got));
      if (!connection.head) connection.head = read_head(connection.received);
      if (connection.head && connection.received.size() >= connection.head->bytes + connection.head->body_bytes)
        return answered(index);
      if (!connection.tls && static_cast<std::size_t>(got) < buffer_.size()) return;
    }
  }

  void answered(std::size_t index) {
    auto& connection = connections_[index];
    last_us_ = now_us();
    const auto body = std::string_view(connection.received).substr(connection.head->bytes, connection.head->body_bytes);
    talk_.hear({connection.number, Heard::What::answer, last_us_ - connection.due_us, connection.tardy_us,
                connection.head->status, body});
    if (connection.head->last) connection.close();
    set_free(index, last_us_);
  }

  void lose(std::size_t index, Heard::What what, std::string_view why) {
    auto& connection = connections_[index];
    last_us_ = now_us();
    connection.close();
    talk_.hear({connection.number, what, last_us_ - connection.due_us, connection.tardy_us, 0, why});
    set_free(index, last_us_);
  }

  void set_free(std::size_t index, std::int64_t now) {
    connections_[index].asking = false;
    connections_[index].freed_us = now;
    free_.push_back(index);
    --under_way_;
  }

  void give_up_late(std::int64_t now) {
    for (std::size_t i = 0; i < connections_.size(); ++i)
      if (connections_[i].asking && now - connections_[i].sent_us > load_.answer_wait_us)
        lose(i, Heard::What::late, "no answer in time");
  }

  void tell_unsent() {
    if (!is_open_loop()) return;
    for (; next_due_us() < end_us_; ++next_)
      talk_.hear({next_, Heard::What::unsent, end_us_ - next_due_us(), 0, 0, "no connection was free"});
  }

  const Load load_;
  const Talk& talk_;
  const sys::Clock& clock_;
  const Dialler dialler_;
  const sys::Descriptor poll_;
  std::deque<LoadConnection> connections_;
  std::deque<std::size_t> free_;
  std::int64_t begin_us_ = 0, end_us_ = 0, last_us_ = 0;
  std::uint64_t next_ = 0, under_way_ = 0;
  std::string buffer_;
};

}  // namespace

LoadTarget load_target(const std::string& url, std::string ca_file) {
  LoadTarget out;
  out.ca_file = std::move(ca_file);
  std::string_view rest = url;
  if (rest.starts_with("https://")) {
    out.tls = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    throw Error(Code::invalid, fmt::format("'{}': must begin with http:// or https://", url));
  }
  rest = rest.substr(0, rest.find('/'));
  const auto bracket = rest.find(']');  // of an IPv6 address
  const auto colon = rest.find(':', bracket == std::string_view::npos ? 0 : bracket);
  auto host = rest.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const auto port = colon == std::string_view::npos ? std::optional<std::int64_t>(out.tls ? 443 : 80)
                                                    : parse_int(rest.substr(colon + 1));
  if (host.empty() || !port || *port < 1 || *port > 65535)
    throw Error(Code::invalid, fmt::format("'{}': must be a scheme, a host and perhaps a port", url));
  out.host = std::string(host);
  out.port = static_cast<std::uint16_t>(*port);
  return out;
}

std::int64_t due_us(double per_second, std::uint64_t number) {
  return static_cast<std::int64_t>(static_cast<double>(number) * 1e6 / per_second);
}

LoadTook offer_load(const LoadTarget& target, const Load& load, const Talk& talk, const sys::Clock& clock) {
  return Offering(target, load, talk, clock).run();
}

}  // namespace falaj::net
