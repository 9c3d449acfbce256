// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/server.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/net/render.h"
#include "foundation/net/session.h"
#include "foundation/net/tls.h"

namespace falaj::net {
namespace {

using std::chrono::microseconds;

constexpr microseconds kTickLongest{250'000}, kTickShortest{5'000};
constexpr microseconds kAcceptPause{50'000};
constexpr std::size_t kTurnedAwayMax = 256;  // connections past the limit that we still take leave of

// Deadlines are looked at this often: a quarter of the shortest wait, so none is late by more than that.
microseconds tick_period(const ServerLimits& limits) {
  const auto shortest = std::min({limits.head_wait_us, limits.idle_wait_us, limits.body_wait_us});
  return std::clamp(microseconds(shortest / 4), kTickShortest, kTickLongest);
}

asio::ip::tcp::endpoint resolve(const std::string& host, std::uint16_t port) {
  error_code failed;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, failed);
  if (failed) throw Error(Code::invalid, fmt::format("listen: not an address: {}", host));
  return {address, port};
}

void rethrow_as_log(const char* where, const std::exception_ptr& failure) {
  if (!failure) return;
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    log::error("server_coroutine_failed", {{"where", where}, {"what", error.what()}});
  }
}

}  // namespace

// Where to listen: a port to open, or a socket that is open.
struct Listener {
  std::string host;
  std::uint16_t port = 0;
  std::optional<int> descriptor;
};

struct Server::Rep {
  Rep(const Listener& listener, std::optional<TlsFiles> tls_files, const ServerLimits& limits, Service& service,
      const sys::Clock& clock, sys::Ids& ids, Metrics& metrics);

  void open(const Listener& listener);
  Task<void> accept_all();
  void welcome(Socket socket, IoThread& home);
  Task<void> turn_away(Socket socket);
  Task<void> tick(IoThread& home, bool first);
  void on_every_session(void (Session::*act)());
  bool wait_for_none(std::optional<microseconds> at_most);

  std::optional<TlsKeeper> tls;
  Shared shared;
  std::vector<std::unique_ptr<IoThread>> threads;
  std::optional<Acceptor> acceptor;
  std::uint16_t port = 0;
  std::size_t turned_away = 0;  // on the first I/O thread
  bool stopped = false;
};

Server::Rep::Rep(const Listener& listener, std::optional<TlsFiles> tls_files, const ServerLimits& limits,
                 Service& service, const sys::Clock& clock, sys::Ids& ids, Metrics& metrics)
    : shared(listener.host, limits, service, clock, ids, metrics) {
  if (tls_files) tls.emplace(std::move(*tls_files));
  for (std::size_t i = 0; i < std::max<std::size_t>(1, limits.io_threads); ++i)
    threads.push_back(std::make_unique<IoThread>(i));
  open(listener);
  asio::co_spawn(threads[0]->context, accept_all(), [](std::exception_ptr e) { rethrow_as_log("accept", e); });
  for (auto& home : threads) {
    home->date = http_date(clock.wall().count() / 1'000'000);
    asio::co_spawn(home->context, tick(*home, home == threads[0]),
                   [](std::exception_ptr e) { rethrow_as_log("tick", e); });
    home->thread = std::thread([&context = home->context] { context.run(); });
  }
}

void Server::Rep::open(const Listener& listener) {
  const auto endpoint = resolve(listener.host, listener.port);
  error_code failed;
  const auto step = [&] {
    if (failed)
      throw Error(Code::unavailable,
                  fmt::format("listen on {}:{}: {}", listener.host, listener.port, failed.message()));
  };
  acceptor.emplace(threads[0]->context.get_executor());
  if (listener.descriptor) {
    acceptor->assign(endpoint.protocol(), *listener.descriptor, failed), step();
  } else {
    acceptor->open(endpoint.protocol(), failed), step();
    acceptor->set_option(Acceptor::reuse_address(true), failed), step();
    acceptor->bind(endpoint, failed), step();
    acceptor->listen(Acceptor::max_listen_connections, failed), step();
  }
  port = acceptor->local_endpoint(failed).port(), step();
}

Task<void> Server::Rep::accept_all() {
  Timer pause(threads[0]->context.get_executor());
  for (std::size_t next = 0;; ++next) {
    auto& home = *threads[next % threads.size()];
    error_code failed;
    auto socket = co_await acceptor->async_accept(home.context.get_executor(), asio::redirect_error(kAwait, failed));
    if (shared.draining) co_return;
    if (failed) {  // out of descriptors, most likely: trying again at once would only spin
      log::warn("accept_failed", {{"reason", failed.message()}});
      pause.expires_after(kAcceptPause);
      co_await pause.async_wait(asio::redirect_error(kAwait, failed));
      continue;
    }
    shared.probe.accepted.Increment();
    bool full = false;
    {
      Lock lock(shared.mu);
      full = shared.connections >= shared.limits.connections_max;
      if (!full) ++shared.connections;
    }
    if (!full) {
      welcome(std::move(socket), home);
      continue;
    }
    shared.probe.refused_connections.Increment();
    if (tls || turned_away >= kTurnedAwayMax) continue;  // a handshake is more than we can give now
    ++turned_away;
    // Its socket belongs to another thread's context: take the descriptor over to this one.
    const auto descriptor = socket.release(failed);
    if (failed) continue;
    Socket ours(threads[0]->context.get_executor(), acceptor->local_endpoint(failed).protocol(), descriptor);
    asio::co_spawn(threads[0]->context, turn_away(std::move(ours)), [this](std::exception_ptr e) {
      --turned_away;
      rethrow_as_log("turn_away", e);
    });
  }
}

void Server::Rep::welcome(Socket socket, IoThread& home) {
  error_code ignored;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  const auto peer = socket.remote_endpoint(ignored);
  auto start = [this, &home, address = peer.address().to_string(), s = std::move(socket)]() mutable {
    auto session =
        std::make_unique<Session>(std::move(s), tls ? tls->current() : nullptr, std::move(address), shared, home);
    asio::co_spawn(home.context, Session::run(std::move(session)),
                   [](std::exception_ptr e) { rethrow_as_log("session", e); });
  };
  asio::post(home.context, std::move(start));
}

// Answers a connection past the limit without reading it, and waits a moment for its end to close.
Task<void> Server::Rep::turn_away(Socket socket) {
  auto response =
      error_response(503, Error(Code::exhausted, "too many connections"), shared.ids.next<RequestTag>().str());
  response.headers.add("Retry-After", "1");
  std::string text;
  render_head(response, {"", threads[0]->date, true, false}, text);
  text += std::get<std::string>(response.body);
  error_code failed;
  Timer patience(threads[0]->context.get_executor(), std::chrono::seconds(1));
  patience.async_wait([&socket](const error_code& cancelled) {
    error_code ignored;
    if (!cancelled) socket.close(ignored);
  });
  co_await socket.async_write_some(asio::buffer(text), asio::redirect_error(kAwait, failed));
  if (!failed) socket.shutdown(Socket::shutdown_send, failed);
  std::array<char, 4096> dropped{};
  while (!failed) co_await socket.async_read_some(asio::buffer(dropped), asio::redirect_error(kAwait, failed));
}

Task<void> Server::Rep::tick(IoThread& home, bool first) {
  const auto period = tick_period(shared.limits);
  Timer timer(home.context.get_executor());
  for (error_code ignored;;) {
    timer.expires_after(period);
    co_await timer.async_wait(asio::redirect_error(kAwait, ignored));
    const auto now = shared.now_us();
    for (auto* session : home.sessions) session->expire_if_due(now);
    home.date = http_date(shared.clock.wall().count() / 1'000'000);
    if (first && tls) tls->reload_if_changed();
  }
}

void Server::Rep::on_every_session(void (Session::*act)()) {
  for (auto& home : threads)
    asio::post(home->context, [&sessions = home->sessions, act] {
      for (auto* session : sessions) (session->*act)();
    });
}

bool Server::Rep::wait_for_none(std::optional<microseconds> at_most) {
  const auto until = shared.clock.now() + at_most.value_or(microseconds(0));
  Lock lock(shared.mu);
  while (shared.connections > 0) {
    if (!at_most)
      lock.wait(shared.none_left);
    else if (lock.wait_for(shared.none_left, until - shared.clock.now()) == std::cv_status::timeout)
      break;
  }
  return shared.connections == 0;
}

Server::Server(const std::string& listen_host, std::uint16_t listen_port, std::optional<TlsFiles> tls,
               ServerLimits limits, Service& service, const sys::Clock& clock, sys::Ids& ids, Metrics& metrics)
    : rep_(std::make_unique<Rep>(Listener{listen_host, listen_port, std::nullopt}, std::move(tls), limits, service,
                                 clock, ids, metrics)) {}

Server::Server(int listening, const std::string& listen_host, std::optional<TlsFiles> tls, ServerLimits limits,
               Service& service, const sys::Clock& clock, sys::Ids& ids, Metrics& metrics)
    : rep_(std::make_unique<Rep>(Listener{listen_host, 0, listening}, std::move(tls), limits, service, clock, ids,
                                 metrics)) {}

Server::~Server() { stop(0); }

std::uint16_t Server::port() const { return rep_->port; }

void Server::stop(std::int64_t drain_us) {
  auto& rep = *rep_;
  if (std::exchange(rep.stopped, true)) return;
  rep.shared.draining = true;
  asio::post(rep.threads[0]->context, [&rep] {
    error_code ignored;
    rep.acceptor->close(ignored);
  });
  rep.on_every_session(&Session::close_if_idle);
  if (!rep.wait_for_none(microseconds(drain_us))) {
    rep.on_every_session(&Session::kill);
    rep.wait_for_none(std::nullopt);
  }
  for (auto& home : rep.threads) home->context.stop();
  for (auto& home : rep.threads) home->thread.join();
}

}  // namespace falaj::net
