// SPDX-License-Identifier: Apache-2.0
// Claims about the server, one JSON line each. Two servers in this process, one thread each, asked in turn by the same
// client: ours, and the smallest that Beast allows (a coroutine a connection, the same body, no checks).
//   server_bench [bytes to stream, 1 GiB unless given]
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "foundation/net/testing.h"

namespace falaj::net {
namespace {

constexpr int kRounds = 9;
const std::string kBody =
    R"({"kind":"Project","metadata":{"name":"demo","revision":7},"spec":{"zone":"ae-1","quota":12}})";
const std::string kRequest =
    "GET /v1/projects/demo HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench\r\nAccept: application/json\r\n"
    "Authorization: Bearer 0123456789abcdef0123456789abcdef0123456789a\r\n\r\n";

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// The median of the rounds, and how far they lay apart: on a busy machine that is the more telling figure.
void report(const std::string& claim, const std::vector<double>& ours, const std::string& unit,
            const std::string& against, const std::vector<double>& limit, double goal) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / limit[i]);
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  fmt::print(
      R"({{"claim":"{}","ours":{:.0f},"unit":"{}","against":"{}","limit":{:.0f},"ratio":{:.3f},"goal":{},"ratio_min":{:.3f},"ratio_max":{:.3f}}})"
      "\n",
      claim, median(ours), unit, against, median(limit), median(ratios), goal, *low, *high);
  std::fflush(stdout);
}

ServerLimits one_thread() {
  ServerLimits limits;
  limits.io_threads = 1;
  limits.worker_threads = 4;
  return limits;
}

void bench_small_reads() {
  TestServer ours(one_thread());
  ours.service.on_admit = [](const Head&) {
    return run(Place::here, 0, [](Request&) { return text_response(200, kBody, "application/json"); });
  };
  const BareBeast bare(kBody);
  std::vector<double> our_rates, bare_rates, our_efficiency, bare_efficiency;
  for (int round = 0; round < kRounds; ++round) {
    const auto our = measure_requests(ours.port(), kRequest, ours.clock);
    const auto theirs = measure_requests(bare.port(), kRequest, ours.clock);
    our_rates.push_back(our.per_second);
    bare_rates.push_back(theirs.per_second);
    our_efficiency.push_back(our.per_cpu_second);
    bare_efficiency.push_back(theirs.per_cpu_second);
  }
  report("small JSON reads, one I/O thread", our_rates, "requests/s", "bare Beast, one thread, same client", bare_rates,
         0.8);
  report("small JSON reads, by processor time", our_efficiency, "requests/cpu s", "bare Beast, same client",
         bare_efficiency, 0.8);
}

// One thread sends pieces through a loopback socket, another receives them. `buffer`: what each end of the socket
// holds; 0 leaves it to the kernel, which lets it grow past the processor's caches.
double raw_copy_mb_per_second(std::uint64_t bytes, const sys::Clock& clock, int buffer) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  CHECK(::bind(listener, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0 && ::listen(listener, 1) == 0 &&
            ::getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size) == 0,
        "cannot listen");
  if (buffer > 0) ::setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  RawConnection sender(ntohs(at.sin_port));
  if (buffer > 0) ::setsockopt(sender.descriptor(), SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
  const int receiver = ::accept(listener, nullptr, nullptr);
  const auto start = clock.now();
  std::thread sending([&] {
    const std::string piece(kPieceBytes, 'x');
    for (std::uint64_t sent = 0; sent < bytes; sent += piece.size()) sender.send(piece);
  });
  std::vector<char> into(kPieceBytes);
  for (std::uint64_t got = 0; got < bytes;)
    got += static_cast<std::uint64_t>(::recv(receiver, into.data(), into.size(), 0));
  const auto us = (clock.now() - start).count();
  sending.join();
  ::close(receiver);
  ::close(listener);
  return static_cast<double>(bytes) / static_cast<double>(us);
}

double upload_mb_per_second(TestServer& server, std::uint64_t bytes) {
  auto c = server.connect();
  const std::string piece(kPieceBytes, 'x');
  const auto start = server.clock.now();
  c.send(fmt::format("PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", bytes));
  for (std::uint64_t sent = 0; sent < bytes; sent += piece.size()) c.send(piece);
  CHECK(c.read_answer().status == 200, "the upload failed");
  return static_cast<double>(bytes) / static_cast<double>((server.clock.now() - start).count());
}

double download_mb_per_second(TestServer& server, std::uint64_t bytes) {
  auto c = server.connect();
  std::vector<char> into(kPieceBytes);
  const auto start = server.clock.now();
  c.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  for (std::uint64_t got = 0; got < bytes;) {
    const auto n = ::recv(c.descriptor(), into.data(), into.size(), 0);
    CHECK(n > 0, "the download broke off");
    got += static_cast<std::uint64_t>(n);
  }
  return static_cast<double>(bytes) / static_cast<double>((server.clock.now() - start).count());
}

double peak_bytes() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_maxrss) * 1024;
}

// What a copy takes: time, which other programs on the machine stretch, and the processor's share of it, which they
// hardly do. Both ends are in this process.
struct Cost {
  double mb_per_second, mb_per_cpu_second;
};
template <class F>
Cost cost_of(std::uint64_t bytes, F&& copy) {
  const auto cpu_us = [] {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    const auto us = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_usec);
    };
    return us(used.ru_utime) + us(used.ru_stime);
  };
  const auto before = cpu_us();
  const double rate = copy();
  return {rate, static_cast<double>(bytes) / (cpu_us() - before)};
}

void bench_streams(std::uint64_t bytes) {
  TestServer server(one_thread());
  server.service.on_admit = [bytes](const Head&) {
    return run(Place::worker, bytes, [bytes](Request& request) {
      Response response;
      if (request.head.method == Method::put) {
        std::vector<std::byte> piece(kPieceBytes);
        while (request.body.read(piece) > 0) {
        }
        return response;
      }
      response.body = StreamBody{[left = bytes]() mutable {
                                   const auto n = std::min<std::uint64_t>(left, kPieceBytes);
                                   left -= n;
                                   return Bytes(n);
                                 },
                                 bytes};
      return response;
    });
  };
  upload_mb_per_second(server, 64 << 20);
  const auto memory = peak_bytes();
  const int rounds = bytes > (std::uint64_t{2} << 30) ? 1 : 5;
  struct Series {
    std::vector<double> rate, efficiency;
    void add(const Cost& c) { rate.push_back(c.mb_per_second), efficiency.push_back(c.mb_per_cpu_second); }
  } raw, up, down;
  for (int i = 0; i < rounds; ++i) {
    // The limit is the best of several: with buffers of the kernel's own choosing a plain copy can be beaten.
    Cost best{};
    for (const int buffer : {0, 64 << 10, 512 << 10}) {
      const auto cost = cost_of(bytes, [&] { return raw_copy_mb_per_second(bytes, server.clock, buffer); });
      best.mb_per_second = std::max(best.mb_per_second, cost.mb_per_second);
      best.mb_per_cpu_second = std::max(best.mb_per_cpu_second, cost.mb_per_cpu_second);
    }
    raw.add(best);
    up.add(cost_of(bytes, [&] { return upload_mb_per_second(server, bytes); }));
    down.add(cost_of(bytes, [&] { return download_mb_per_second(server, bytes); }));
  }
  const std::string against = "send and recv over a loopback socket, best of three buffer sizes",
                    of = fmt::format("of {} MiB", bytes >> 20);
  report("upload " + of, up.rate, "MB/s", against, raw.rate, 0.5);
  report("download " + of, down.rate, "MB/s", against, raw.rate, 0.5);
  report("upload " + of + ", by processor time", up.efficiency, "MB/cpu s", against, raw.efficiency, 0.5);
  report("download " + of + ", by processor time", down.efficiency, "MB/cpu s", against, raw.efficiency, 0.5);
  const auto grown = peak_bytes() - memory;
  report("growth of the peak memory by these streams", {grown}, "bytes", "the allowance", {16 << 20}, 1);
}

}  // namespace
}  // namespace falaj::net

int main(int argc, char** argv) {
  falaj::net::bench_small_reads();
  falaj::net::bench_streams(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::uint64_t{1} << 30);
}
