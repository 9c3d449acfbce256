// SPDX-License-Identifier: Apache-2.0
#include "compute/protocol/testing.h"

#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include "compute/protocol/grpc_library.h"
#include "compute/protocol/tensors.h"
#include "foundation/base/text.h"
#include "foundation/sys/testing.h"

extern char** environ;

namespace falaj::protocol {
namespace {

using graph::Element;

graph::Port port(std::string name, Element element, std::vector<graph::Dimension> shape) {
  return {std::move(name), element, std::move(shape)};
}

std::vector<Description> models() {
  const graph::Dimension rows = std::string(graph::kRows);
  Description add{"add_one",
                  {"1", "2"},
                  "fake_add",
                  {port("x", Element::float32, {rows, 4})},
                  {port("y", Element::float32, {rows, 4})},
                  true,
                  32,
                  200,
                  2,
                  {{"owner", "tests"}}};
  Description scores = add;
  scores.model = "scores";
  scores.inputs = {port("x", Element::float32, {rows, 3})};
  scores.outputs = {port("scores", Element::float32, {rows, 3})};
  Description words = add;
  words.model = "words";
  words.inputs = {port("text", Element::text, {rows, 1})};
  words.outputs = {port("reversed", Element::text, {rows, 1})};
  Description echo{"echo", {"1"}, "fake_echo", {}, {}, false, 0, 0, 1, {}};
  for (const auto element : graph::kElements) {
    const std::string name(datatype(element));
    echo.inputs.push_back(port(name, element, {std::string()}));
    echo.outputs.push_back(port("out_" + name, element, {std::string()}));
  }
  std::vector<Description> all{add, scores, words, echo};
  for (const auto* failing : {"busy", "slow", "gone", "secret", "broken"}) {
    all.push_back(add);
    all.back().model = failing;
  }
  return all;
}

const Description& find_model(const std::string& name, const std::string& version) {
  static const auto kAll = models();
  const auto found = std::find_if(kAll.begin(), kAll.end(), [&](const auto& m) { return m.model == name; });
  if (found == kAll.end()) throw Error(Code::not_found, "no model is called " + name);
  const auto& versions = found->versions;
  if (!version.empty() && std::find(versions.begin(), versions.end(), version) == versions.end())
    throw Error(Code::not_found, "model " + name + " has no version " + version);
  return *found;
}

void fail_as_named(const std::string& model) {
  if (model == "busy") throw Error(Code::exhausted, "the queue is full");
  if (model == "slow") throw Error(Code::deadline, "not in time");
  if (model == "gone") throw Error(Code::unavailable, "the model is being loaded");
  if (model == "secret") throw Error(Code::denied, "not for you");
  if (model == "broken") throw Error(Code::internal, "it broke");
}

graph::Tensor tensor_of(const Input& input) {
  return {input.element, input.sizes, Bytes(input.bytes.begin(), input.bytes.end()), input.texts};
}

graph::Tensor computed(const std::string& model, const Input& input) {
  auto tensor = tensor_of(input);
  if (model == "add_one")
    for (auto& value : tensor.values<float>()) value += 1;
  for (auto& text : tensor.texts)
    if (model == "words") std::reverse(text.begin(), text.end());
  return tensor;
}

}  // namespace

void FakeInference::admit(const Caller& caller) const {
  if (caller.headers->find("Authorization") == "Bearer wrong") throw Error(Code::unauthenticated, "who are you?");
}

Answer FakeInference::run(const Ask& ask) const {
  const auto& model = find_model(ask.model, ask.version);
  Answer answer{model.model, ask.version.empty() ? model.versions.back() : ask.version, {}, ask.parameters};
  if (const auto name = ask.parameters.find("call_it"); name != ask.parameters.end())
    answer.prediction_id = std::get<std::string>(name->second);
  for (const auto& input : ask.inputs) {
    const auto at =
        std::find_if(model.inputs.begin(), model.inputs.end(), [&](const auto& p) { return p.name == input.name; });
    if (at == model.inputs.end()) throw Error(Code::invalid, "no input is called " + input.name);
    if (at->element != input.element || at->shape.size() != input.sizes.size())
      throw Error(Code::invalid, "input " + input.name + " is not as the model has it");
    const auto& output = model.outputs[static_cast<std::size_t>(at - model.inputs.begin())];
    const auto& wanted = ask.outputs;
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), output.name) != wanted.end())
      answer.outputs.push_back({output.name, computed(model.model, input)});
  }
  return answer;
}

void FakeInference::infer(const Caller& caller, Ask ask, net::Loop& loop, Done done) {
  admit(caller);
  find_model(ask.model, ask.version);
  fail_as_named(ask.model);
  if (!ask.parameters.empty() || ask.priority != 0 || ask.timeout_us != 0) {
    Lock lock(mu_);
    last_ = {ask.model, ask.version, {}, ask.outputs, ask.parameters, ask.priority, ask.timeout_us};
  }
  auto held = std::make_shared<std::pair<Ask, Done>>(std::move(ask), std::move(done));
  loop.post([this, held] {
    ++answered_;
    try {
      held->second(run(held->first));
    } catch (const Error& error) {
      held->second(error);
    }
  });
}

void FakeInference::predict(const Caller& caller, Predict ask, net::Loop& loop,
                            std::function<void(std::variant<Predicted, Error>)> done) {
  admit(caller);
  find_model(ask.model, ask.version);
  fail_as_named(ask.model);
  auto held = std::make_shared<std::pair<Predict, decltype(done)>>(std::move(ask), std::move(done));
  loop.post([held] {
    Predicted out{held->first.model, "2", {}, {{"variant", "champion"}}};
    for (const auto& row : held->first.rows) out.rows.push_back(json::object{{"fields", row.as_object().size()}});
    held->second(std::move(out));
  });
}

bool FakeInference::ready(const Caller& caller, const std::string& model, const std::string& version) const {
  describe(caller, model, version);
  return model != "gone" && !(model == "scores" && unloaded_);
}

Description FakeInference::describe(const Caller& caller, const std::string& model, const std::string& version) const {
  admit(caller);
  auto out = find_model(model, version);
  if (!version.empty()) out.versions = {version};
  return out;
}

std::vector<Statistics> FakeInference::statistics(const Caller& caller, const std::string& model,
                                                  const std::string& version) const {
  admit(caller);
  std::vector<Statistics> out;
  for (const auto& each : models()) {
    if (!model.empty() && each.model != model) continue;
    Statistics s;
    s.model = each.model;
    s.version = version.empty() ? each.versions.back() : version;
    s.inference_count = s.execution_count = s.success.count = answered_;
    s.batches = {{32, {1, 10}, {1, 20}, {1, 30}}};
    s.memory_bytes = 4096;
    out.push_back(std::move(s));
  }
  if (out.empty()) throw Error(Code::not_found, "no model is called " + model);
  return out;
}

std::vector<IndexEntry> FakeInference::index(const Caller& caller, bool only_ready) const {
  admit(caller);
  std::vector<IndexEntry> out;
  for (const auto& model : models()) {
    const bool is_ready = ready(caller, model.model, "");
    if (is_ready || !only_ready)
      out.push_back(
          {model.model, model.versions.back(), is_ready ? "READY" : "UNAVAILABLE", is_ready ? "" : "unloaded"});
  }
  return out;
}

void FakeInference::load(const Caller& caller, const std::string& model) {
  describe(caller, model, "");
  if (model == "scores") unloaded_ = false;
}

void FakeInference::unload(const Caller& caller, const std::string& model) {
  describe(caller, model, "");
  if (model == "scores") unloaded_ = true;
}

Ask FakeInference::last() const {
  Lock lock(mu_);
  return last_;
}

TestServers::TestServers(std::optional<net::TlsFiles> tls, RestLimits rest_limits, GrpcLimits grpc_limits)
    : rest(inference, rest_limits, metrics),
      http("127.0.0.1", 0, tls, {}, rest, clock, ids, metrics),
      grpc("127.0.0.1", 0, tls, grpc_limits, inference, clock, ids, metrics) {}

// ---- for benchmarks

namespace {

constexpr char kDrive[] = "--drive-grpc";

double process_cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// Keeps 32 calls under way on 4 connections until `calls` were answered. Returns how many failed.
int drive(const std::string& port, const std::vector<std::string>& messages, const std::string& token, int calls) {
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader;
    grpc::ByteBuffer answer;
    grpc::Status status;
    std::size_t stub = 0;
  };
  std::vector<grpc::ByteBuffer> requests;
  for (const auto& message : messages) {
    const grpc::Slice slice(message);
    requests.emplace_back(&slice, 1);
  }
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs;
  for (int i = 0; i < 4; ++i) {
    grpc::ChannelArguments own;
    own.SetInt("connection", i);
    stubs.push_back(std::make_unique<grpc::GenericStub>(
        grpc::CreateCustomChannel("127.0.0.1:" + port, grpc::InsecureChannelCredentials(), own)));
  }
  int asked = 0, answered = 0, failed = 0;
  const auto ask = [&](std::size_t stub) {
    auto* call = new Call;
    call->stub = stub;
    if (!token.empty()) call->context.AddMetadata("authorization", "Bearer " + token);
    call->reader = stubs[stub]->PrepareUnaryCall(&call->context, "/inference.GRPCInferenceService/ModelInfer",
                                                 requests[static_cast<std::size_t>(asked) % requests.size()], &queue);
    call->reader->StartCall();
    call->reader->Finish(&call->answer, &call->status, call);
    ++asked;
  };
  while (asked < std::min(32, calls)) ask(static_cast<std::size_t>(asked) % stubs.size());
  void* tag = nullptr;
  bool ok = false;
  while (answered < calls && queue.Next(&tag, &ok)) {
    auto* call = static_cast<Call*>(tag);
    ++answered;
    if (!call->status.ok() && failed++ == 0) std::fprintf(stderr, "%s\n", call->status.error_message().c_str());
    if (asked < calls) ask(call->stub);
    delete call;
  }
  return failed;
}

}  // namespace

double grpc_calls_per_cpu_second(std::uint16_t port, const std::vector<std::string>& messages,
                                 const std::string& token) {
  constexpr int kCalls = 20'000;
  const sys::TempDir dir;
  ByteWriter out;
  out.text(token);
  for (const auto& message : messages) out.text(message);
  std::ofstream(dir / "messages", std::ios::binary) << as_text(out.bytes());
  const auto run = [&](int calls) {
    std::string words[] = {"client", kDrive, std::to_string(port), std::to_string(calls), dir / "messages"};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), words[4].data(), nullptr};
    pid_t child = 0;
    CHECK(::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, argv, environ) == 0, "the client does not start");
    int status = 0;
    CHECK(::waitpid(child, &status, 0) == child && status == 0, "the client failed");
  };
  run(1'000);
  const auto before = process_cpu_seconds();
  run(kCalls);
  return kCalls / (process_cpu_seconds() - before);
}

std::optional<int> drive_if_asked(int argc, char** argv) {
  if (argc != 5 || std::string_view(argv[1]) != kDrive) return std::nullopt;
  std::ifstream in(argv[4], std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  const auto bytes = text.str();
  ByteReader reader(as_bytes(bytes));
  const auto token = reader.text();
  std::vector<std::string> messages;
  while (reader.left() > 0) messages.push_back(reader.text());
  return drive(argv[2], messages, token, static_cast<int>(parse_int(argv[3]).value_or(0))) == 0 ? 0 : 1;
}

}  // namespace falaj::protocol
