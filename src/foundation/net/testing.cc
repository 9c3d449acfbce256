// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/testing.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <thread>
#include <utility>

#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "foundation/base/text.h"
#include "foundation/net/asio.h"

namespace falaj::net {

RawConnection::RawConnection(std::uint16_t port) : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  CHECK(descriptor_ >= 0, "no socket");
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval wait{10, 0};
  const int on = 1;
  ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  ::setsockopt(descriptor_, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
  ::setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  CHECK(::connect(descriptor_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0, "cannot connect");
}
RawConnection::~RawConnection() {
  if (descriptor_ >= 0) ::close(descriptor_);
}
RawConnection::RawConnection(RawConnection&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), pending_(std::move(other.pending_)) {}

bool RawConnection::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto n = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}
void RawConnection::finish_sending() { ::shutdown(descriptor_, SHUT_WR); }
void RawConnection::receive_buffer(int bytes) {
  ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

std::string RawConnection::read_some(std::size_t most) {
  if (!pending_.empty()) return take(std::min(most, pending_.size()));
  std::string out(most, '\0');
  const auto n = ::recv(descriptor_, out.data(), most, 0);
  out.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return out;
}
std::string RawConnection::read_until_closed() {
  while (fill()) {
  }
  return std::exchange(pending_, {});
}

bool RawConnection::fill() {
  std::array<char, 65536> piece;  // not in pending_ itself: thousands of these may be idle
  const auto n = ::recv(descriptor_, piece.data(), piece.size(), 0);
  if (n > 0) pending_.append(piece.data(), static_cast<std::size_t>(n));
  return n > 0;
}
std::string RawConnection::take(std::size_t bytes) {
  while (pending_.size() < bytes && fill()) {
  }
  auto out = pending_.substr(0, bytes);
  pending_.erase(0, out.size());
  if (pending_.empty()) std::string().swap(pending_);
  return out;
}
std::string RawConnection::take_line() {
  std::size_t end = 0;
  while ((end = pending_.find("\r\n")) == std::string::npos)
    if (!fill()) return {};
  auto line = pending_.substr(0, end);
  pending_.erase(0, end + 2);
  return line;
}

RawConnection::Answer RawConnection::read_answer(bool to_head) {
  Answer answer;
  const auto first = take_line();
  if (first.size() < 12) return answer;
  answer.status = static_cast<int>(parse_int(first.substr(9, 3)).value_or(0));
  for (std::string line; !(line = take_line()).empty();) {
    const auto colon = line.find(':');
    answer.headers[lower(line.substr(0, colon))] = std::string(trim(line.substr(colon + 1)));
  }
  if (to_head || answer.status < 200 || answer.status == 204 || answer.status == 304) return answer;
  if (answer.headers.contains("content-length")) {
    const auto length = static_cast<std::size_t>(parse_int(answer.headers["content-length"]).value_or(0));
    answer.body = take(length);
    if (answer.body.size() < length) answer.status = 0;
  } else if (answer.headers["transfer-encoding"] == "chunked") {
    for (;;) {
      const auto line = take_line();
      std::size_t size = 0;
      if (line.empty() || std::from_chars(line.data(), line.data() + line.size(), size, 16).ec != std::errc()) {
        answer.status = 0;
        return answer;
      }
      answer.body += take(size);
      take_line();
      if (size == 0) break;
    }
  } else {
    answer.body = read_until_closed();
  }
  return answer;
}

Response text_response(int status, std::string body, std::string_view type) {
  Response response;
  response.status = status;
  response.headers.add("Content-Type", type);
  response.body = std::move(body);
  return response;
}

Admission run(Place place, std::uint64_t body_bytes_max, std::function<Response(Request&)> handle) {
  Admission admission;
  admission.place = place;
  admission.body_bytes_max = body_bytes_max;
  admission.handle = std::move(handle);
  return admission;
}

TestServer::TestServer(ServerLimits limits, std::optional<TlsFiles> tls)
    : server("127.0.0.1", 0, std::move(tls), limits, service, clock, ids, metrics) {}

std::size_t resident_bytes() {
  std::size_t pages = 0, ignored = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%zu %zu", &ignored, &pages) != 2) pages = 0;
    std::fclose(file);
  }
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// ---- for benchmarks

namespace {

namespace beast = boost::beast;
namespace http = beast::http;

asio::awaitable<void> beast_session(beast::tcp_stream stream, const std::string& body) {
  beast::flat_buffer buffer;
  try {
    for (;;) {
      http::request<http::string_body> request;
      co_await http::async_read(stream, buffer, request, asio::use_awaitable);
      http::response<http::string_body> response(http::status::ok, request.version());
      response.set(http::field::content_type, "application/json");
      response.keep_alive(request.keep_alive());
      response.body() = body;
      response.prepare_payload();
      co_await http::async_write(stream, response, asio::use_awaitable);
    }
  } catch (const boost::system::system_error&) {
  }
}

asio::awaitable<void> beast_accept(asio::ip::tcp::acceptor& acceptor, const std::string& body) {
  for (;;) {
    auto socket = co_await acceptor.async_accept(asio::use_awaitable);
    socket.set_option(asio::ip::tcp::no_delay(true));
    asio::co_spawn(acceptor.get_executor(), beast_session(beast::tcp_stream(std::move(socket)), body),
                   [](std::exception_ptr) {});
  }
}

}  // namespace

struct BareBeast::Rep {
  explicit Rep(std::string text) : body(std::move(text)) {
    asio::co_spawn(context, beast_accept(acceptor, body), [](std::exception_ptr) {});
    thread = std::thread([this] { context.run(); });
  }
  ~Rep() {
    context.stop();
    thread.join();
  }
  const std::string body;  // outlives the sessions that send it
  asio::io_context context{1};
  asio::ip::tcp::acceptor acceptor{context, {asio::ip::make_address("127.0.0.1"), 0}};
  std::thread thread;
};

BareBeast::BareBeast(std::string body) : rep_(std::make_unique<Rep>(std::move(body))) {}
BareBeast::~BareBeast() = default;
std::uint16_t BareBeast::port() const { return rep_->acceptor.local_endpoint().port(); }

namespace {
double cpu_seconds_of_others() {
  rusage all{}, mine{};
  ::getrusage(RUSAGE_SELF, &all);
  ::getrusage(RUSAGE_THREAD, &mine);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(all.ru_utime) + seconds(all.ru_stime) - seconds(mine.ru_utime) - seconds(mine.ru_stime);
}
}  // namespace

Throughput measure_requests(std::uint16_t port, std::string_view request, const sys::Clock& clock) {
  return measure_requests(port, std::vector<std::string>{std::string(request)}, clock);
}

Throughput measure_requests(std::uint16_t port, const std::vector<std::string>& in_turn, const sys::Clock& clock,
                            std::int64_t for_us) {
  std::size_t turn = 0;
  const auto next = [&]() -> const std::string& { return in_turn[turn++ % in_turn.size()]; };
  constexpr int kConnections = 32;
  // All answers are as long as the first, so the client need not parse: it is never the slower side.
  std::vector<RawConnection> connections;
  std::vector<std::size_t> left(kConnections);
  const int poll = ::epoll_create1(EPOLL_CLOEXEC);
  std::size_t length = 0;
  for (int i = 0; i < kConnections; ++i) {
    auto& c = connections.emplace_back(port);
    c.send(next());
    while (length == 0 || left[static_cast<std::size_t>(i)] < length) {
      const auto piece = c.read_some();
      if (length == 0) length = piece.size();
      left[static_cast<std::size_t>(i)] += piece.size();
    }
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = static_cast<std::uint32_t>(i);
    ::epoll_ctl(poll, EPOLL_CTL_ADD, c.descriptor(), &event);
  }
  const auto start = clock.now();
  const double cpu_before = cpu_seconds_of_others();
  for (std::size_t i = 0; i < connections.size(); ++i) {
    connections[i].send(next());
    left[i] = length;
  }
  std::uint64_t answers = 0;
  std::array<epoll_event, kConnections> ready{};
  std::array<char, 4096> piece{};
  while ((clock.now() - start).count() < for_us) {
    const int n = ::epoll_wait(poll, ready.data(), kConnections, 1000);
    for (int k = 0; k < n; ++k) {
      const auto i = ready[static_cast<std::size_t>(k)].data.u32;
      const auto got = ::recv(connections[i].descriptor(), piece.data(), piece.size(), 0);
      CHECK(got > 0, "the server closed a connection");
      left[i] -= static_cast<std::size_t>(got);
      if (left[i] > 0) continue;
      ++answers;
      left[i] = length;
      connections[i].send(next());
    }
  }
  const auto seconds = static_cast<double>((clock.now() - start).count()) / 1e6;
  const double cpu_seconds = cpu_seconds_of_others() - cpu_before;
  ::close(poll);
  const auto count = static_cast<double>(answers);
  return {count / seconds, count / cpu_seconds, count, cpu_seconds};
}

}  // namespace falaj::net
