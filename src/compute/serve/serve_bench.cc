// SPDX-License-Identifier: Apache-2.0
// The whole way of a request (HTTP, token, routing, queue, model, answer) against a bare loop around ONNX Runtime on
// the same rows, one thread each; and one row at a time against the same HTTP server answering a constant. By processor
// time of the server's threads, because machines are shared. Inputs rotate.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <inference.pb.h>

#include "compute/infer/testing.h"
#include "compute/protocol/grpc_server.h"
#include "compute/protocol/rest.h"
#include "compute/protocol/testing.h"
#include "compute/serve/host.h"
#include "foundation/crypto/hash.h"
#include "foundation/crypto/token.h"
#include "foundation/net/testing.h"

namespace falaj::serve {
namespace {

constexpr std::size_t kWidth = 64;
constexpr int kRounds = 7, kGrpcRounds = 3, kRequests = 64;

double worked_now() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double process_worked() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void claim(const std::string& what, double ours, const std::string& unit, const std::string& against, double limit,
           double goal, bool lower = false) {
  fmt::print(R"({{"claim":"{}","ours":{:.1f},"unit":"{}","against":"{}","limit":{:.1f},"ratio":{:.3f},"goal":{}{}}})"
             "\n",
             what, ours, unit, against, limit, ours / limit, goal, lower ? R"(,"better":"lower")" : "");
  std::fflush(stdout);
}

// A model behind an HTTP server of one thread, as falaj-serve has them, without its processes.
class Served {
 public:
  // `log`: the share of requests that are written down; without one predictions have no names either.
  // `watch`: whether somebody watches what it is asked and answers.
  // `slow`: another model, as endpoint "slow".
  explicit Served(const Bytes& model, std::optional<double> log = std::nullopt, bool watch = false,
                  const Bytes* slow = nullptr)
      : host_(clock_, nullptr, &predictions_), rest_(host_, {}, metrics_) {
    sys::RealRandom random;
    crypto::Credential credential;
    random.fill(credential.secret);
    credential.id.bits = {random.next(), random.next()};
    token_ = crypto::format_credential(crypto::CredentialKind::token, credential);
    const auto digest = crypto::sha256(model).hex();
    traffic::Plan plan;
    traffic::Endpoint endpoint;
    endpoint.tenant = endpoint.project = "default";
    endpoint.name = "m";
    endpoint.variants = {{"a", "m", 1, digest, 1, false, "", ""}};
    endpoint.names = log.has_value();
    if (log) endpoint.log.emplace().share = *log;
    if (watch) endpoint.watch.emplace();
    plan.endpoints = {endpoint};
    if (slow) {
      endpoint.name = "slow";
      endpoint.variants[0].sha256 = crypto::sha256(*slow).hex();
      plan.endpoints.push_back(endpoint);
    }
    plan.callers = {{credential.id.str(),
                     crypto::sha256(BytesView(credential.secret)).hex(),
                     clock_.wall().count() + 3'600'000'000,
                     {0, 1}}};
    Loader loader(infer::runtime(), {}, clock_);
    Loader::Source source;
    source.bytes = [&](const std::string& sha256) { return sha256 == digest ? model : *slow; };
    host_.publish(loader.make(plan, nullptr, source));
    net::ServerLimits limits;
    limits.io_threads = limits.worker_threads = 1;
    server_.emplace("127.0.0.1", 0, std::nullopt, limits, rest_, clock_, ids_, metrics_);
    protocol::GrpcLimits one;
    one.first_loop = limits.io_threads;
    grpc_.emplace("127.0.0.1", 0, std::nullopt, one, host_, clock_, ids_, metrics_);
  }
  ~Served() {
    server_->stop(1'000'000);
    grpc_->stop(1'000'000);
    host_.close();
  }
  std::uint16_t port() const { return server_->port(); }
  std::uint16_t grpc_port() const { return grpc_->port(); }
  void settle() { predictions_.flush(); }
  void tell_watched() { watcher_.turn(*host_.catalogue()); }
  std::uint64_t watched_bytes() const { return watched_bytes_; }  // of the last segment
  std::size_t watched_columns() const { return host_.catalogue()->endpoints[0].variants[0].watched->cells().size(); }
  double rows_a_call() const {
    const auto& counts = *host_.catalogue()->endpoints[0].variants[0].counts;
    return static_cast<double>(counts.rows) / static_cast<double>(std::max<std::uint64_t>(1, counts.calls));
  }
  Predictions::Tally tally() const { return predictions_.tally("default.default.m"); }
  const std::string& token() const { return token_; }

  // `rows` of `values` from `first` on, as bytes behind a JSON head.
  std::string request(const std::vector<float>& values, std::size_t first, std::size_t rows,
                      const char* endpoint = "m") const {
    const auto bytes = rows * kWidth * sizeof(float);
    const auto head = fmt::format(
        R"({{"inputs":[{{"name":"x","shape":[{},{}],"datatype":"FP32","parameters":{{"binary_data_size":{}}}}}],"parameters":{{"binary_data_output":true}}}})",
        rows, kWidth, bytes);
    auto out = fmt::format(
        "POST /v2/models/{}/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\n"
        "Inference-Header-Content-Length: {}\r\nContent-Length: {}\r\n\r\n{}",
        endpoint, token_, head.size(), head.size() + bytes, head);
    out.append(reinterpret_cast<const char*>(values.data() + first * kWidth), bytes);
    return out;
  }

 private:
  sys::RealClock clock_;
  sys::RealRandom random_;
  sys::Ids ids_{clock_, random_};
  Metrics metrics_;
  Predictions predictions_{clock_, random_, [](const LogSegment&) {}};
  std::uint64_t watched_bytes_ = 0;
  Watcher watcher_{clock_, [this](const json::object& segment) { watched_bytes_ = json::serialize(segment).size(); }};
  Host host_;
  protocol::Rest rest_;
  std::string token_;
  std::optional<net::Server> server_;
  std::optional<protocol::GrpcServer> grpc_;
};

// Calls of a bare session per second of its thread.
double bare_calls(const Bytes& model, const std::vector<float>& values, std::size_t rows) {
  const auto session = infer::Session::open(infer::runtime(), model);
  std::vector<std::vector<infer::NamedTensor>> inputs;
  for (int i = 0; i < kRequests; ++i) {
    const auto* at = values.data() + static_cast<std::size_t>(i) * rows * kWidth;
    inputs.push_back({{"x", graph::Tensor::of<float>({static_cast<std::int64_t>(rows), kWidth},
                                                     std::span<const float>(at, rows * kWidth))}});
  }
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double begin = worked_now();
    int calls = 0;
    while (worked_now() - begin < 0.2) {
      for (const auto& input : inputs) session.run(input);
      calls += kRequests;
    }
    best = std::max(best, calls / (worked_now() - begin));
  }
  return best;
}

double served_rate(const Served& served, const std::vector<float>& values, std::size_t rows) {
  std::vector<std::string> requests;
  for (std::size_t i = 0; i < kRequests; ++i) requests.push_back(served.request(values, i * rows, rows));
  const sys::RealClock clock;
  double best = 0;
  for (int round = 0; round < kRounds; ++round)
    best = std::max(best, net::measure_requests(served.port(), requests, clock).per_cpu_second);
  return best;
}

double grpc_rate(const Served& served, const std::vector<float>& values, std::size_t rows) {
  std::vector<std::string> messages;
  for (std::size_t i = 0; i < kRequests; ++i) {
    inference::ModelInferRequest request;
    request.set_model_name("m");
    auto& input = *request.add_inputs();
    input.set_name("x");
    input.set_datatype("FP32");
    input.add_shape(static_cast<std::int64_t>(rows));
    input.add_shape(kWidth);
    const auto some = std::span(values).subspan(i * rows * kWidth, rows * kWidth);
    request.add_raw_input_contents(std::string(as_text(std::as_bytes(some))));
    messages.push_back(request.SerializeAsString());
  }
  double best = 0;
  for (int round = 0; round < kGrpcRounds; ++round)
    best = std::max(best, protocol::grpc_calls_per_cpu_second(served.grpc_port(), messages, served.token()));
  return best;
}

// How the client waits for its answer. Asleep, it is woken by the kernel, which in a virtual machine takes longer than
// the whole request: that is the client's time, not the server's, which sleeps between requests in either case.
enum class Client { asleep, awake };

// Of one request at a time over one connection, in order.
std::vector<double> times_us(const Served& served, const std::vector<float>& values, Client client) {
  net::RawConnection connection(served.port());
  const sys::RealClock clock;
  std::vector<double> took;
  for (std::size_t i = 0; i < 4'000; ++i) {
    const auto request = served.request(values, i % 64, 1);
    const auto began = clock.now();
    connection.send(request);
    char first = 0;
    while (client == Client::awake && ::recv(connection.descriptor(), &first, 1, MSG_PEEK | MSG_DONTWAIT) < 0) {
    }
    CHECK(connection.read_answer().status == 200, "asked for what is there");
    took.push_back(static_cast<double>((clock.now() - began).count()));
  }
  std::sort(took.begin(), took.end());
  return took;
}

// One row of a fast model at a time while a slow one is asked without a pause, on the same I/O thread.
// What the same bytes take there and back between two sleeping threads with nothing in between: no server can be faster
// for a client that sleeps.
double echo_us(std::size_t bytes) {
  const int listening = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  CHECK(::bind(listening, reinterpret_cast<sockaddr*>(&at), size) == 0 && ::listen(listening, 1) == 0 &&
            ::getsockname(listening, reinterpret_cast<sockaddr*>(&at), &size) == 0,
        "a free port");
  std::thread other([&] {
    const int one = 1, connection = ::accept(listening, nullptr, nullptr);
    ::setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    std::string heard(bytes, ' ');
    while (::recv(connection, heard.data(), bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes))
      ::send(connection, heard.data(), bytes, MSG_NOSIGNAL);
    ::close(connection);
  });
  net::RawConnection connection(ntohs(at.sin_port));
  const sys::RealClock clock;
  const std::string said(bytes, 'x');
  std::vector<double> took;
  for (int i = 0; i < 4'000; ++i) {
    const auto began = clock.now();
    connection.send(said);
    for (std::size_t heard = 0; heard < bytes;) heard += connection.read_some().size();
    took.push_back(static_cast<double>((clock.now() - began).count()));
  }
  connection.finish_sending();
  other.join();
  ::close(listening);
  return median(std::move(took));
}

void compare_beside() {
  const auto fast = infer::network_model(), slow = infer::network_model(4096);
  const auto values = infer::random_numbers(kWidth * 32 * kRequests, 7);
  const Served served(fast, std::nullopt, false, &slow);
  const double call_us = 1e6 / bare_calls(slow, values, 1);
  const auto alone = times_us(served, values, Client::asleep);
  std::atomic<bool> stopping = false;
  std::thread other([&] {
    net::RawConnection connection(served.port());
    const auto request = served.request(values, 0, 1, "slow");
    while (!stopping) CHECK(connection.ask(request).status == 200, "asked for what is there");
  });
  const auto beside = times_us(served, values, Client::asleep);
  stopping = true;
  other.join();
  fmt::print(stderr,
             "a fast model alone: p50 {:.0f} us, p99 {:.0f} us; beside a slow one: p50 {:.0f} us, p99 {:.0f} us\n",
             alone[alone.size() / 2], alone[alone.size() * 99 / 100], beside[beside.size() / 2],
             beside[beside.size() * 99 / 100]);
  claim("one row beside a slow model on the same I/O thread, p99", beside[beside.size() * 99 / 100], "us",
        "one call of the slow model", call_us, 0.5, true);
}

// The same HTTP server, with an answer as long as a row's.
class Constant {
 public:
  Constant() : server_(limits()) {
    server_.service.on_admit = [](const net::Head&) {
      return net::run(net::Place::here, 1 << 20, [](net::Request& request) {
        request.body.read_all();
        return net::text_response(200, std::string(180, 'x'), "application/octet-stream");
      });
    };
  }
  std::uint16_t port() const { return server_.port(); }

 private:
  static net::ServerLimits limits() {
    net::ServerLimits out;
    out.io_threads = out.worker_threads = 1;
    return out;
  }
  net::TestServer server_;
};

// One row at a time, both in turns: a machine that is slower for a while is so for both.
void compare_with_constant(const std::string& name, const Served& served, const std::vector<float>& values) {
  const Constant constant;
  const sys::RealClock clock;
  std::vector<std::string> requests;
  for (std::size_t i = 0; i < kRequests; ++i) requests.push_back(served.request(values, i, 1));
  std::vector<double> ours, most, ratios;
  for (int round = 0; round < 3 * kRounds; ++round) {
    ours.push_back(net::measure_requests(served.port(), requests, clock).per_cpu_second);
    most.push_back(net::measure_requests(constant.port(), requests, clock).per_cpu_second);
    ratios.push_back(ours.back() / most.back());
  }
  claim(name + ", requests of one row", median(most) * median(ratios), "requests/cpu s",
        "the same HTTP server answering a constant", median(most), 0.6);
}

void compare(const std::string& name, const Bytes& model) {
  const auto values = infer::random_numbers(kWidth * 32 * kRequests, 7);
  const Served served(model);
  const auto bare32 = bare_calls(model, values, 32), bare1 = bare_calls(model, values, 1);
  const auto ours32 = served_rate(served, values, 32);
  claim(name + ", requests of 32 rows, binary over HTTP", ours32, "requests/cpu s", "bare ONNX Runtime, batches of 32",
        bare32, 0.5);
  claim(name + ", requests of 32 rows over gRPC", grpc_rate(served, values, 32), "requests/cpu s",
        "bare ONNX Runtime, batches of 32", bare32, 0.5);
  compare_with_constant(name, served, values);
  claim(name + ", one row at a time, p50, client awake", median(times_us(served, values, Client::awake)), "us",
        "60 us above the bare call", 60 + 1e6 / bare1, 1.0, true);
  fmt::print(
      stderr,
      "{}, one row at a time: p50 {:.0f} us for a client that sleeps until its answer is there; {:.0f} us for an "
      "echo of the same bytes\n",
      name, median(times_us(served, values, Client::asleep)), echo_us(served.request(values, 0, 1).size()));
}

// Several servers by turns, so short that a machine that is slower for a while is so for all of them; each turn is a
// block of about a second, after which `settle` does what is left to do for it, which counts too. Answers for a second
// of a processor, of the first; and of the others against the first in the same block: the middle of all blocks.
struct Compared {
  double first = 0;
  std::vector<double> ratios;
};
Compared in_turns(const std::vector<Served*>& all, const std::function<void(Served&)>& settle, int blocks) {
  constexpr int kTurns = 10;
  constexpr std::int64_t kTurnUs = 100'000;
  const auto values = infer::random_numbers(kWidth * kRequests, 7);
  const sys::RealClock clock;
  std::vector<std::vector<double>> ratios(all.size());
  std::vector<double> firsts;
  for (int block = 0; block < blocks; ++block) {
    std::vector<double> answers(all.size()), worked(all.size());
    for (int turn = 0; turn < kTurns; ++turn)
      for (std::size_t i = 0; i < all.size(); ++i) {
        const auto at = turn % 2 == 0 ? i : all.size() - 1 - i;
        std::vector<std::string> requests;
        for (std::size_t r = 0; r < kRequests; ++r) requests.push_back(all[at]->request(values, r, 1));
        const auto measured = net::measure_requests(all[at]->port(), requests, clock, kTurnUs);
        answers[at] += measured.answers;
        worked[at] += measured.cpu_seconds;
      }
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double before = process_worked();
      settle(*all[i]);
      worked[i] += process_worked() - before;
    }
    firsts.push_back(answers[0] / worked[0]);
    for (std::size_t i = 1; i < all.size(); ++i) ratios[i].push_back(answers[i] / worked[i] / firsts.back());
  }
  Compared out{median(firsts), {}};
  for (std::size_t i = 1; i < all.size(); ++i) out.ratios.push_back(median(ratios[i]));
  return out;
}

// One row at a time with nothing, a hundredth and all of it written down; the thread that writes counts too. Each
// beside nothing alone: what is still being written when a turn ends is charged to the next.
void compare_logs(const std::string& name, const Bytes& model) {
  Served none(model), some(model, 0.01), all(model, 1.0);
  const auto settle = [](Served& served) { served.settle(); };
  const auto little = in_turns({&none, &some}, settle, kRounds), much = in_turns({&none, &all}, settle, kRounds);
  claim(name + ", one row, 1 % of it logged", little.first * little.ratios[0], "requests/cpu s", "nothing logged",
        little.first, 0.98);
  claim(name + ", one row, all of it logged", much.first * much.ratios[0], "requests/cpu s", "nothing logged",
        much.first, 0.5);
  const auto kept = all.tally();
  fmt::print(stderr, "of the last, {} rows were written and {} dropped\n", kept.rows, kept.dropped);
}

// One row at a time with and without a watcher; making sketches and telling of them counts too.
void compare_watched(const std::string& name, const Bytes& model) {
  Served alone(model), watched(model, std::nullopt, true), both(model, 0.01, true);
  const auto settle = [&](Served& served) {
    served.settle();
    if (&served != &alone) served.tell_watched();
  };
  const auto got = in_turns({&alone, &watched, &both}, settle, kRounds);
  claim(name + fmt::format(", one row, {} columns watched", watched.watched_columns()), got.first * got.ratios[0],
        "requests/cpu s", "nothing watched", got.first, 0.98);
  claim(name + fmt::format(", one row, {} columns watched and 1 % logged", watched.watched_columns()),
        got.first * got.ratios[1], "requests/cpu s", "neither", got.first, 0.98);
  fmt::print(stderr, "a segment takes {} bytes a column\n", watched.watched_bytes() / watched.watched_columns());
}

// What is counted of every request, by itself: it cannot be turned off.
void compare_counts(const std::string& name, const Bytes& model) {
  const Served served(model);
  const auto rate = served_rate(served, infer::random_numbers(kWidth * kRequests, 7), 1);
  Metrics metrics;
  auto& seconds = metrics.histogram("seconds", "", Metrics::seconds_buckets(), {});
  auto& answers = metrics.counter("answers", "", {});
  Counts counts;
  constexpr std::int64_t kMany = 1'000'000;
  const double before = worked_now();
  for (std::int64_t i = 0; i < kMany; ++i) {
    counts.success.add(i & 1023);
    counts.queue.add(i & 255);
    counts.infer.add(i & 127);
    counts.latency.add(i & 1023);
    seconds.Observe(static_cast<double>(i & 1023) / 1e6);
    answers.Increment();
  }
  const double each = (worked_now() - before) / kMany;
  claim(name + ", one row: all but its counts and histograms", 1e6 / rate - 1e6 * each, "us", "with them", 1e6 / rate,
        0.98);
}

void one_row() {
  const Served served(infer::network_model());
  const auto rate = served_rate(served, infer::random_numbers(kWidth * kRequests, 7), 1);
  fmt::print("{:.0f} requests/cpu s, {:.1f} rows a call\n", rate, served.rows_a_call());
}

void constant() {
  const Served served(infer::network_model());
  const Constant same;
  const auto request = served.request(infer::random_numbers(kWidth, 7), 0, 1);
  const sys::RealClock clock;
  for (int round = 0; round < kRounds; ++round)
    fmt::print("{:.0f} requests/cpu s\n", net::measure_requests(same.port(), request, clock).per_cpu_second);
}

void against_constant() {
  const auto values = infer::random_numbers(kWidth * kRequests, 7);
  compare_with_constant("network 64-256-256-10", Served(infer::network_model()), values);
  compare_with_constant("200 trees of depth 6", Served(infer::trees_model(infer::random_trees(200, 6, 64, 1, 3))),
                        values);
}

}  // namespace
}  // namespace falaj::serve

int main(int argc, char** argv) {
  using namespace falaj;
  if (!std::getenv("GLIBC_TUNABLES")) {  // as the supervisor starts its workers
    ::setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=64", 1);
    ::execv("/proc/self/exe", argv);
  }
  if (const auto status = protocol::drive_if_asked(argc, argv)) return *status;
  if (argc > 1 && std::string_view(argv[1]) == "one-row") return serve::one_row(), 0;  // to look at with perf
  if (argc > 1 && std::string_view(argv[1]) == "constant") return serve::constant(), 0;
  if (argc > 1 && std::string_view(argv[1]) == "against-constant") return serve::against_constant(), 0;
  if (argc > 1 && std::string_view(argv[1]) == "beside") return serve::compare_beside(), 0;
  const auto watch = [] {
    const auto network = infer::network_model();
    serve::compare_counts("network 64-256-256-10", network);
    serve::compare_logs("network 64-256-256-10", network);
    serve::compare_watched("network 64-256-256-10", network);
  };
  if (argc > 1 && std::string_view(argv[1]) == "watched") return watch(), 0;
  serve::compare("network 64-256-256-10", infer::network_model());
  watch();
  serve::compare_beside();
  serve::compare("200 trees of depth 6", infer::trees_model(infer::random_trees(200, 6, 64, 1, 3)));
}
