// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/net/server.h"

namespace falaj::net {

// A blocking TCP connection to 127.0.0.1 that sends exactly the bytes it is told. Every wait ends after ten seconds.
class RawConnection {
 public:
  explicit RawConnection(std::uint16_t port);
  ~RawConnection();
  RawConnection(RawConnection&& other) noexcept;
  RawConnection& operator=(RawConnection&&) = delete;

  bool send(std::string_view bytes);  // false when the other end has closed
  void finish_sending();
  void receive_buffer(int bytes);                   // makes this a slow reader
  std::string read_some(std::size_t most = 65536);  // "" at the end
  std::string read_until_closed();
  int descriptor() const { return descriptor_; }

  struct Answer {
    int status = 0;                              // 0: the connection ended before a whole answer came
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;
  };
  Answer read_answer(bool to_head = false);  // by Content-Length, chunks or until closed
  Answer ask(std::string_view request) { return send(request), read_answer(); }

 private:
  bool fill();
  std::string take(std::size_t bytes);
  std::string take_line();
  int descriptor_;
  std::string pending_;
};

// A service made of one function.
class TestService final : public Service {
 public:
  std::function<Admission(const Head&)> on_admit;
  std::function<void(const Head&, int status)> on_finished;

  Admission admit(const Head& head) override { return on_admit(head); }
  void finished(const Head& head, int status, std::int64_t, std::uint64_t, std::uint64_t) override {
    if (on_finished) on_finished(head, status);
  }
};

Response text_response(int status, std::string body, std::string_view type = "text/plain");
Admission run(Place place, std::uint64_t body_bytes_max, std::function<Response(Request&)> handle);

// A server on a port of the kernel's choosing with everything it needs.
struct TestServer {
  explicit TestServer(ServerLimits limits = {}, std::optional<TlsFiles> tls = std::nullopt);
  sys::RealClock clock;
  sys::RealRandom random;
  sys::Ids ids{clock, random};
  Metrics metrics;
  TestService service;
  Server server;
  std::uint16_t port() const { return server.port(); }
  RawConnection connect() const { return RawConnection(server.port()); }
};

std::size_t resident_bytes();  // of this process

// ---- for benchmarks
// The smallest server that Beast allows: one thread, a coroutine a connection, always the same JSON, no checks. What
// ours are compared with.
class BareBeast {
 public:
  explicit BareBeast(std::string body);
  ~BareBeast();
  std::uint16_t port() const;

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

// Keeps `request` under way on each of 32 connections for a while. By time, which other programs on the machine
// stretch, and by the processor time of every thread of this process but the caller's, which they hardly do.
// Requires: the server is in this process and answers with the same number of bytes each time.
struct Throughput {
  double per_second, per_cpu_second, answers, cpu_seconds;
};
Throughput measure_requests(std::uint16_t port, std::string_view request, const sys::Clock& clock);
Throughput measure_requests(std::uint16_t port, const std::vector<std::string>& in_turn, const sys::Clock& clock,
                            std::int64_t for_us = 500'000);

}  // namespace falaj::net
