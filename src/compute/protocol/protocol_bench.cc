// SPDX-License-Identifier: Apache-2.0
// Claims about the protocol, one JSON line each: what decoding and encoding cost beside a copy of the same bytes or the
// library's own classes, and what an inference costs a server beside a constant answer of the same kind of server. The
// model is nothing (echo), so that only the protocol is seen. By processor time, which other programs hardly stretch.
//   protocol_bench [codec | http | grpc]
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>

#include <fmt/format.h>
#include <inference.pb.h>

#include "compute/protocol/grpc_codec.h"
#include "compute/protocol/grpc_library.h"
#include "compute/protocol/rest_codec.h"
#include "compute/protocol/testing.h"
#include "foundation/net/testing.h"

namespace falaj::protocol {
namespace {

constexpr int kRounds = 5;
constexpr std::size_t kColumns = 64, kOutputs = 10;

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class F>
double nanoseconds(F&& f) {
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    int times = 0;
    const auto before = cpu_seconds();
    double spent = 0;
    while ((spent = cpu_seconds() - before) < 0.05) {
      for (int i = 0; i < 200; ++i) f();
      times += 200;
    }
    rounds.push_back(spent / times * 1e9);
  }
  return median(rounds);
}

void report(std::string_view claim, double ours, std::string_view unit, std::string_view against, double limit,
            double ratio) {
  fmt::print(R"({{"claim":"{}","ours":{:.0f},"unit":"{}","against":"{}","limit":{:.0f},"ratio":{:.3f}}})"
             "\n",
             claim, ours, unit, against, limit, ratio);
  std::fflush(stdout);
}

std::vector<float> numbers(std::size_t rows) {
  std::vector<float> values(rows * kColumns);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 997) * 0.37F;
  return values;
}

struct Body {
  std::string text;
  std::size_t json_bytes;
};

Body binary_request(std::size_t rows) {
  const auto values = numbers(rows);
  auto json = fmt::format(
      R"({{"inputs":[{{"name":"FP32","shape":[{}],"datatype":"FP32","parameters":{{"binary_data_size":{}}}}}],"outputs":[{{"name":"out_FP32","parameters":{{"binary_data":true}}}}]}})",
      values.size(), values.size() * 4);
  const auto size = json.size();
  json += as_text(std::as_bytes(std::span(values)));
  return {std::move(json), size};
}

std::string json_request(std::size_t rows) {
  const auto values = numbers(rows);
  return fmt::format(R"({{"inputs":[{{"name":"FP32","shape":[{}],"datatype":"FP32","data":[{}]}}]}})", values.size(),
                     fmt::join(values, ","));
}

Answer answer_of(std::size_t rows) {
  Answer answer{"mlp", "1", {}, {}};
  answer.outputs.push_back(
      {"scores", graph::Tensor::empty(graph::Element::float32, {static_cast<std::int64_t>(rows), kOutputs})});
  auto values = answer.outputs[0].tensor.values<float>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 7;
  return answer;
}

volatile std::size_t sink;

void bench_rest_codec() {
  const auto body = binary_request(32);
  std::string copy(body.text.size(), '\0');
  const auto decode = nanoseconds([&] { sink = decode_infer(body.text, body.json_bytes).ask.inputs.size(); });
  const auto answer = answer_of(32);
  Asked asked;
  asked.binary_default = true;
  const auto encode = nanoseconds([&] { sink = encode_answer(asked, answer).body.size(); });
  const auto memcpy_ns = nanoseconds([&] {
    std::memcpy(copy.data(), body.text.data(), copy.size());
    sink = static_cast<std::size_t>(copy[sink % copy.size()]);
  });
  report("REST binary, 32 x 64 in and 32 x 10 out: decode and encode", decode + encode, "ns", "memcpy of the request",
         memcpy_ns, (decode + encode) / memcpy_ns);
  for (const std::size_t rows : {1, 32}) {
    const auto json = json_request(rows);
    const auto few = answer_of(rows);
    const auto read = nanoseconds([&] { sink = decode_infer(json, {}).ask.inputs.size(); });
    const auto written = nanoseconds([&] { sink = encode_answer({}, few).body.size(); });
    const auto document = nanoseconds([&] { sink = parse_json(json).as_object().size(); });
    report(fmt::format("REST JSON, {} x 64 in and {} x 10 out: decode and encode", rows, rows), read + written, "ns",
           "parsing the request into a document", document, (read + written) / document);
  }
}

void bench_grpc_codec() {
  inference::ModelInferRequest request;
  request.set_model_name("mlp");
  auto& input = *request.add_inputs();
  input.set_name("x");
  input.set_datatype("FP32");
  input.add_shape(32);
  input.add_shape(kColumns);
  const auto values = numbers(32);
  request.add_raw_input_contents(std::string(as_text(std::as_bytes(std::span(values)))));
  const auto message = request.SerializeAsString();
  const auto answer = answer_of(32);
  std::string out(1 << 16, '\0');
  const auto ours = nanoseconds([&] {
    const auto asked = decode_model_infer(as_bytes(message));
    const EncodedInfer encoded(asked, answer, false);
    encoded.write(reinterpret_cast<std::byte*>(out.data()));
    sink = encoded.size();
  });
  const auto theirs = nanoseconds([&] {
    inference::ModelInferRequest ask;
    ask.ParseFromString(message);
    inference::ModelInferResponse response;
    response.set_model_name("mlp");
    response.set_model_version("1");
    auto& output = *response.add_outputs();
    output.set_name("scores");
    output.set_datatype("FP32");
    output.add_shape(32);
    output.add_shape(kOutputs);
    response.add_raw_output_contents(std::string(as_text(answer.outputs[0].tensor.bytes)));
    sink = response.SerializeAsString().size();
  });
  report("gRPC, 32 x 64 in and 32 x 10 out: decode and encode", ours, "ns", "protobuf's classes", theirs,
         ours / theirs);
}

std::string http_request(std::string_view path, const std::string& body, std::string_view headers) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n{}\r\n{}", path, body.size(),
                     headers, body);
}

void bench_http() {
  net::ServerLimits one_thread;
  one_thread.io_threads = 1;
  one_thread.worker_threads = 1;
  TestServers ours;
  const net::Server server("127.0.0.1", 0, std::nullopt, one_thread, ours.rest, ours.clock, ours.ids, ours.metrics);
  net::TestServer constant(one_thread);
  std::string answer;
  constant.service.on_admit = [&](const net::Head&) {
    return net::run(net::Place::here, 1 << 20,
                    [&](net::Request&) { return net::text_response(200, answer, "application/json"); });
  };
  const auto binary = binary_request(32), binary_row = binary_request(1);
  const std::pair<std::string, std::string> kinds[] = {
      {"one-row JSON requests", http_request("/v2/models/echo/infer", json_request(1), "")},
      {"one-row binary requests",
       http_request("/v2/models/echo/infer", binary_row.text,
                    fmt::format("Inference-Header-Content-Length: {}\r\n", binary_row.json_bytes))},
      {"32-row binary requests",
       http_request("/v2/models/echo/infer", binary.text,
                    fmt::format("Inference-Header-Content-Length: {}\r\n", binary.json_bytes))}};
  for (const auto& [kind, request] : kinds) {
    net::RawConnection once(server.port());
    answer = once.ask(request).body;
    std::vector<double> rates, limits;
    for (int round = 0; round < kRounds; ++round) {
      rates.push_back(net::measure_requests(server.port(), request, ours.clock).per_cpu_second);
      limits.push_back(net::measure_requests(constant.port(), request, ours.clock).per_cpu_second);
    }
    report("HTTP, " + kind + " to a model that copies", median(rates), "requests/cpu s",
           "the same server giving a constant answer", median(limits), median(rates) / median(limits));
  }
}

// ---- gRPC: the client is another process, so that this one's processor time is the server's.

// Answers every call with the same bytes: what gRPC itself takes.
class ConstantGrpc {
 public:
  explicit ConstantGrpc(const std::string& answer) : slice_(answer) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterAsyncGenericService(&service_);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    for (int i = 0; i < 64; ++i) await();
    thread_ = std::thread([this] { run(); });
  }
  ~ConstantGrpc() {
    stopping_ = true;
    server_->Shutdown(gpr_inf_past(GPR_CLOCK_MONOTONIC));
    queue_->Shutdown();
    thread_.join();
  }
  int port() const { return port_; }

 private:
  struct Call {
    grpc::GenericServerContext context;
    grpc::GenericServerAsyncReaderWriter stream{&context};
    grpc::ByteBuffer message;
    int step = 0;
  };
  void await() {
    auto* call = new Call;
    service_.RequestCall(&call->context, &call->stream, queue_.get(), queue_.get(), call);
  }
  void run() {
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) {
      auto* call = static_cast<Call*>(tag);
      if (!ok || call->step == 2) {
        delete call;
      } else if (call->step++ == 0) {
        if (!stopping_) await();
        call->stream.Read(&call->message, call);
      } else {
        call->stream.WriteAndFinish(grpc::ByteBuffer(&slice_, 1), grpc::WriteOptions(), grpc::Status::OK, call);
      }
    }
  }

  grpc::Slice slice_;
  int port_ = 0;
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

std::string grpc_request(std::size_t rows) {
  inference::ModelInferRequest request;
  request.set_model_name("echo");
  auto& input = *request.add_inputs();
  input.set_name("FP32");
  input.set_datatype("FP32");
  input.add_shape(static_cast<std::int64_t>(rows * kColumns));
  const auto values = numbers(rows);
  request.add_raw_input_contents(std::string(as_text(std::as_bytes(std::span(values)))));
  return request.SerializeAsString();
}

void bench_grpc() {
  TestServers ours;
  for (const std::size_t rows : {1, 32}) {
    const std::string sized(rows * kColumns * 4 + 60, 'x');
    const ConstantGrpc constant(sized);
    std::vector<double> rates, limits;
    for (int round = 0; round < 3; ++round) {
      rates.push_back(grpc_calls_per_cpu_second(ours.grpc.port(), {grpc_request(rows)}));
      limits.push_back(grpc_calls_per_cpu_second(static_cast<std::uint16_t>(constant.port()), {grpc_request(rows)}));
    }
    report(fmt::format("gRPC, {}-row calls to a model that copies", rows), median(rates), "calls/cpu s",
           "gRPC giving a constant answer of that length", median(limits), median(rates) / median(limits));
  }
}

}  // namespace
}  // namespace falaj::protocol

int main(int argc, char** argv) {
  using namespace falaj::protocol;
  if (const auto status = drive_if_asked(argc, argv)) return *status;
  const std::string_view only = argc > 1 ? argv[1] : "";
  if (only.empty() || only == "codec") bench_rest_codec(), bench_grpc_codec();
  if (only.empty() || only == "http") bench_http();
  if (only.empty() || only == "grpc") bench_grpc();
}
