// SPDX-License-Identifier: Apache-2.0
// The whole way of a request (HTTP, token, routing, queue, model, answer) against a bare loop around ONNX Runtime on
// the same rows, one thread each; and one row at a time against the same HTTP server answering a constant. By processor
// time of the server's threads, because machines are shared. Inputs rotate.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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
constexpr double kMeasuredSeconds = 0.5;  // of net::measure_requests

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
  explicit Served(const Bytes& model, std::optional<double> log = std::nullopt, bool watch = false)
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
    plan.callers = {{credential.id.str(),
                     crypto::sha256(BytesView(credential.secret)).hex(),
                     clock_.wall().count() + 3'600'000'000,
                     {0}}};
    Loader loader(infer::runtime(), {});
    Loader::Source source;
    source.bytes = [&](const std::string&) { return model; };
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
  Predictions::Tally tally() const { return predictions_.tally("default.default.m"); }
  const std::string& token() const { return token_; }

  // `rows` of `values` from `first` on, as bytes behind a JSON head.
  std::string request(const std::vector<float>& values, std::size_t first, std::size_t rows) const {
    const auto bytes = rows * kWidth * sizeof(float);
    const auto head = fmt::format(
        R"({{"inputs":[{{"name":"x","shape":[{},{}],"datatype":"FP32","parameters":{{"binary_data_size":{}}}}}],"parameters":{{"binary_data_output":true}}}})",
        rows, kWidth, bytes);
    auto out = fmt::format(
        "POST /v2/models/m/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\n"
        "Inference-Header-Content-Length: {}\r\nContent-Length: {}\r\n\r\n{}",
        token_, head.size(), head.size() + bytes, head);
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

// Of one request at a time over one connection.
double idle_p50_us(const Served& served, const std::vector<float>& values) {
  net::RawConnection connection(served.port());
  const sys::RealClock clock;
  std::vector<double> took;
  for (std::size_t i = 0; i < 4'000; ++i) {
    const auto request = served.request(values, i % 64, 1);
    const auto began = clock.now();
    CHECK(connection.ask(request).status == 200, "asked for what is there");
    took.push_back(static_cast<double>((clock.now() - began).count()));
  }
  return median(took);
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
  net::ServerLimits limits;
  limits.io_threads = limits.worker_threads = 1;
  net::TestServer constant(limits);
  constant.service.on_admit = [](const net::Head&) {
    return net::run(net::Place::here, 1 << 20, [](net::Request& request) {
      request.body.read_all();
      return net::text_response(200, std::string(180, 'x'), "application/octet-stream");
    });
  };
  const sys::RealClock clock;
  std::vector<std::string> requests;
  for (std::size_t i = 0; i < kRequests; ++i) requests.push_back(served.request(values, i, 1));
  double most = 0;
  for (int round = 0; round < kRounds; ++round)
    most = std::max(most, net::measure_requests(constant.port(), requests, clock).per_cpu_second);
  claim(name + ", requests of one row", served_rate(served, values, 1), "requests/cpu s",
        "the same HTTP server answering a constant", most, 0.6);
  claim(name + ", one row at a time, p50", idle_p50_us(served, values), "us", "60 us above the bare call",
        60 + 1e6 / bare1, 1.0, true);
}

// One row at a time with nothing, a hundredth and all of it written down, in turns; the thread that writes counts too.
void compare_logs(const std::string& name, const Bytes& model) {
  const auto values = infer::random_numbers(kWidth * kRequests, 7);
  Served none(model), some(model, 0.01), all(model, 1.0);
  const sys::RealClock clock;
  std::vector<double> rates[3], ratios[3];
  for (int round = 0; round < 2 * kRounds; ++round) {
    int at = 0;
    for (auto* served : {&none, &some, &all}) {
      std::vector<std::string> requests;
      for (std::size_t i = 0; i < kRequests; ++i) requests.push_back(served->request(values, i, 1));
      const auto measured = net::measure_requests(served->port(), requests, clock);
      const double before = process_worked();
      served->settle();  // what is left to write is a cost of those requests, too
      const double left = (process_worked() - before) / (measured.per_second * kMeasuredSeconds);
      rates[at].push_back(1 / (1 / measured.per_cpu_second + left));
      ratios[at].push_back(rates[at].back() / rates[0].back());
      ++at;
    }
  }
  const auto plain = median(rates[0]);
  claim(name + ", one row, 1 % of it logged", plain * median(ratios[1]), "requests/cpu s", "nothing logged", plain,
        0.98);
  claim(name + ", one row, all of it logged", plain * median(ratios[2]), "requests/cpu s", "nothing logged", plain,
        0.5);
  const auto kept = all.tally();
  fmt::print(stderr, "of the last, {} rows were written and {} dropped\n", kept.rows, kept.dropped);
}

// One row at a time with and without a watcher, in turns; making sketches and telling of them counts too.
void compare_watched(const std::string& name, const Bytes& model) {
  const auto values = infer::random_numbers(kWidth * kRequests, 7);
  Served alone(model), watched(model, std::nullopt, true);
  const sys::RealClock clock;
  std::vector<double> plain, ratios;
  for (int round = 0; round < 3 * kRounds; ++round) {
    double rates[2] = {};
    int at = 0;
    for (auto* served : {&alone, &watched}) {
      std::vector<std::string> requests;
      for (std::size_t i = 0; i < kRequests; ++i) requests.push_back(served->request(values, i, 1));
      const auto measured = net::measure_requests(served->port(), requests, clock);
      const double before = process_worked();
      if (served == &watched) served->tell_watched();
      const double left = (process_worked() - before) / (measured.per_second * kMeasuredSeconds);
      rates[at++] = 1 / (1 / measured.per_cpu_second + left);
    }
    plain.push_back(rates[0]);
    ratios.push_back(rates[1] / rates[0]);
  }
  claim(name + fmt::format(", one row, {} columns watched", watched.watched_columns()), median(plain) * median(ratios),
        "requests/cpu s", "nothing watched", median(plain), 0.98);
  fmt::print(stderr, "a segment takes {} bytes a column\n", watched.watched_bytes() / watched.watched_columns());
}

void one_row() {
  const Served served(infer::network_model());
  fmt::print("{:.0f} requests/cpu s\n", served_rate(served, infer::random_numbers(kWidth * kRequests, 7), 1));
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
  if (argc > 1 && std::string_view(argv[1]) == "watched")
    return serve::compare_watched("network 64-256-256-10", infer::network_model()), 0;
  serve::compare("network 64-256-256-10", infer::network_model());
  serve::compare_logs("network 64-256-256-10", infer::network_model());
  serve::compare_watched("network 64-256-256-10", infer::network_model());
  serve::compare("200 trees of depth 6", infer::trees_model(infer::random_trees(200, 6, 64, 1, 3)));
}
