// SPDX-License-Identifier: Apache-2.0
#pragma once

// Asio as this directory uses it. Private: only the sources of the server include it.

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#if !defined(__clang__)
// g++ 12 pairs the frame's own operator delete with the global new it does not use.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace falaj::net {

namespace asio = boost::asio;
using boost::system::error_code;

// The concrete executor rather than any_io_executor: every operation copies it several times.
using Executor = asio::io_context::executor_type;
using Socket = asio::basic_stream_socket<asio::ip::tcp, Executor>;
using Acceptor = asio::basic_socket_acceptor<asio::ip::tcp, Executor>;
using Timer =
    asio::basic_waitable_timer<std::chrono::steady_clock, asio::wait_traits<std::chrono::steady_clock>, Executor>;
template <class T>
using Task = asio::awaitable<T, Executor>;
inline constexpr asio::use_awaitable_t<Executor> kAwait{};

// Lets a coroutine wait until `fire`, which also counts when it comes first. Both on the coroutine's thread.
class Signal {
 public:
  explicit Signal(const Executor& executor) : timer_(executor, Timer::time_point::max()) {}
  void fire() {
    fired_ = true;
    timer_.cancel();
  }
  Task<void> wait() {
    while (!fired_) co_await wait_for_next();
    fired_ = false;
  }
  // What was fired before does not count: for those who look by themselves, on the thread that fires.
  Task<void> wait_for_next() { return timer_.async_wait(asio::redirect_error(kAwait, ignored_)); }

 private:
  Timer timer_;
  error_code ignored_;  // always "cancelled": that is how the timer is told to fire
  bool fired_ = false;
};

// A connection's bytes, with or without TLS. Used on its I/O thread only.
class Stream {
 public:
  Stream(Socket socket, std::shared_ptr<asio::ssl::context> tls)
      : socket_(std::move(socket)), context_(std::move(tls)) {
    if (context_) tls_.emplace(socket_, *context_);
  }

  bool secured() const { return tls_.has_value(); }
  SSL* tls_handle() { return tls_->native_handle(); }
  Task<void> handshake(error_code& failed) {
    return tls_->async_handshake(asio::ssl::stream_base::server, asio::redirect_error(kAwait, failed));
  }
  Task<std::size_t> read_some(asio::mutable_buffer into, error_code& failed) {
    auto token = asio::redirect_error(kAwait, failed);
    return tls_ ? tls_->async_read_some(into, std::move(token)) : socket_.async_read_some(into, std::move(token));
  }
  template <class Buffers>
  Task<std::size_t> write_some(const Buffers& from, error_code& failed) {
    auto token = asio::redirect_error(kAwait, failed);
    return tls_ ? tls_->async_write_some(from, std::move(token)) : socket_.async_write_some(from, std::move(token));
  }
  Task<void> say_goodbye(error_code& failed) { return tls_->async_shutdown(asio::redirect_error(kAwait, failed)); }
  // Past TLS, when nothing is sent any more and what comes is dropped.
  Task<std::size_t> read_raw(asio::mutable_buffer into, error_code& failed) {
    return socket_.async_read_some(into, asio::redirect_error(kAwait, failed));
  }
  // Operations under way end with an error; later ones still work.
  void cancel() {
    error_code ignored;
    socket_.cancel(ignored);
  }
  void finish_sending() {
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
  }
  void close() {
    error_code ignored;
    socket_.close(ignored);
  }
  int descriptor() { return socket_.native_handle(); }
  Executor executor() { return socket_.get_executor(); }

 private:
  Socket socket_;
  std::shared_ptr<asio::ssl::context> context_;
  std::optional<asio::ssl::stream<Socket&>> tls_;
};

}  // namespace falaj::net
