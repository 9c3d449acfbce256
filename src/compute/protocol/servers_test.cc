// SPDX-License-Identifier: Apache-2.0
// Both servers as clients meet them: HTTP byte by byte, gRPC by a channel.
#include <atomic>
#include <cstring>
#include <span>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <health.pb.h>
#include <inference.pb.h>

#include "compute/protocol/coding.h"
#include "compute/protocol/grpc_library.h"
#include "compute/protocol/testing.h"
#include "foundation/base/json.h"
#include "foundation/net/testing.h"

namespace falaj::protocol {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string bytes_of(const std::vector<float>& values) {
  return std::string(as_text(std::as_bytes(std::span(values))));
}
std::vector<float> floats_of(std::string_view bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  return out;
}

class Http {
 public:
  explicit Http(const TestServers& servers) : connection_(servers.http.port()) {}
  net::RawConnection::Answer get(const std::string& path, const std::string& headers = "") {
    return connection_.ask(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, headers));
  }
  net::RawConnection::Answer post(const std::string& path, const std::string& body, const std::string& headers = "") {
    return connection_.ask(fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{}\r\n{}", path,
                                       body.size(), headers, body));
  }

 private:
  net::RawConnection connection_;
};

const std::string kRow = R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]})";

TEST(RestServer, AnswersJson) {
  TestServers servers;
  Http http(servers);
  const auto answer = http.post("/v2/models/add_one/infer", kRow);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(
      answer.body,
      R"({"model_name":"add_one","model_version":"2","outputs":[{"name":"y","datatype":"FP32","shape":[1,4],"data":[2,3,4,5]}]})");
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
  EXPECT_THAT(http.post("/v2/models/add_one/versions/1/infer", kRow).body, HasSubstr(R"("model_version":"1")"));
  EXPECT_EQ(http.post("/v2/models/add_one/versions/9/infer", kRow).status, 404);
}

TEST(RestServer, AHeaderSaysHowThePredictionIsCalled) {
  TestServers servers;
  Http http(servers);
  const auto named = http.post(
      "/v2/models/add_one/infer",
      R"({"parameters":{"call_it":"p:a:1:1"},"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]})");
  EXPECT_EQ(named.headers.at(kPredictionHeader), "p:a:1:1");
  EXPECT_EQ(http.post("/v2/models/add_one/infer", kRow).headers.count(kPredictionHeader), 0u);
}

TEST(RestServer, AnswersBinaryAndRawBodies) {
  TestServers servers;
  Http http(servers);
  const std::string json =
      R"({"inputs":[{"name":"x","shape":[2,4],"datatype":"FP32","parameters":{"binary_data_size":32}}],)"
      R"("outputs":[{"name":"y","parameters":{"binary_data":true}}]})";
  const auto sent = bytes_of({0, 1, 2, 3, 4, 5, 6, 7});
  const auto answer = http.post("/v2/models/add_one/infer", json + sent,
                                fmt::format("Inference-Header-Content-Length: {}\r\n", json.size()));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.headers.at("content-type"), "application/octet-stream");
  const auto split = std::stoul(answer.headers.at("inference-header-content-length"));
  EXPECT_THAT(floats_of(answer.body.substr(split)), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  const auto raw =
      http.post("/v2/models/add_one/infer", bytes_of({1, 2, 3, 4}), "Inference-Header-Content-Length: 0\r\n");
  ASSERT_EQ(raw.status, 200) << raw.body;
  EXPECT_THAT(floats_of(raw.body.substr(std::stoul(raw.headers.at("inference-header-content-length")))),
              ElementsAre(2, 3, 4, 5));
  const auto words = http.post("/v2/models/words/infer", "abc", "Inference-Header-Content-Length: 0\r\n");
  EXPECT_THAT(words.body, HasSubstr(std::string("\3\0\0\0cba", 7)));
}

TEST(RestServer, UnpacksAndPacks) {
  TestServers servers(std::nullopt, {.body_bytes_max = 100'000});
  Http http(servers);
  std::string row = R"({"inputs":[{"name":"FP32","shape":[4000],"datatype":"FP32","data":[0)";
  for (int i = 1; i < 4000; ++i) row += ",0";
  row += "]}]}";
  for (const auto coding : {Coding::gzip, Coding::deflate}) {
    const auto headers = fmt::format("Content-Encoding: {0}\r\nAccept-Encoding: {0}\r\n", name(coding));
    const auto answer = http.post("/v2/models/echo/infer", packed(row, coding), headers);
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.headers.at("content-encoding"), name(coding));
    EXPECT_THAT(unpacked(answer.body, coding, 1 << 20), HasSubstr(R"("datatype":"FP32","shape":[4000],"data":[0,0,)"));
    EXPECT_THAT(http.post("/v2/models/echo/infer", packed(std::string(200'000, ' '), coding), headers).body,
                HasSubstr("more than 100000 bytes long"));
    EXPECT_THAT(http.post("/v2/models/echo/infer", packed(row, coding).substr(0, 50), headers).body,
                HasSubstr("not whole"));
  }
  EXPECT_EQ(http.post("/v2/models/echo/infer", row, "Content-Encoding: br\r\n").status, 400);
}

TEST(RestServer, SaysWhatThereIs) {
  TestServers servers;
  Http http(servers);
  EXPECT_EQ(http.get("/v2/health/live").status, 200);
  EXPECT_EQ(http.get("/v2/health/ready").status, 200);
  servers.inference.set_ready(false);
  EXPECT_EQ(http.get("/v2/health/ready").status, 503);
  EXPECT_EQ(http.get("/v2/models/add_one/ready").status, 200);
  EXPECT_EQ(http.get("/v2/models/gone/ready").status, 503);
  EXPECT_EQ(http.get("/v2/models/none/ready").status, 404);
  EXPECT_THAT(http.get("/v2").body, HasSubstr(R"({"name":"falaj-serve","version":)"));
  EXPECT_EQ(
      http.get("/v2/models/add_one/versions/1").body,
      R"({"name":"add_one","versions":["1"],"platform":"fake_add","inputs":[{"name":"x","datatype":"FP32","shape":[-1,4]}],)"
      R"("outputs":[{"name":"y","datatype":"FP32","shape":[-1,4]}],"properties":{"owner":"tests"}})");
  EXPECT_EQ(
      http.get("/v2/models/add_one/config").body,
      R"({"name":"add_one","platform":"fake_add","backend":"fake","version_policy":{"latest":{"num_versions":1}},)"
      R"("max_batch_size":32,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[4]}],)"
      R"("output":[{"name":"y","data_type":"TYPE_FP32","dims":[4]}],)"
      R"("instance_group":[{"name":"add_one","kind":"KIND_CPU","count":2,"gpus":[]}],)"
      R"("model_transaction_policy":{"decoupled":false},)"
      R"("dynamic_batching":{"preferred_batch_size":[32],"max_queue_delay_microseconds":200},)"
      R"("parameters":{"owner":{"string_value":"tests"}}})");
  const auto stats = parse_json(http.get("/v2/models/add_one/stats").body);
  EXPECT_EQ(stats.at("model_stats").as_array().size(), 1);
  EXPECT_EQ(stats.at_pointer("/model_stats/0/batch_stats/0/batch_size"), 32);
  EXPECT_GT(parse_json(http.get("/v2/models/stats").body).at("model_stats").as_array().size(), 5);
  EXPECT_THAT(http.get("/v2/models").body, HasSubstr(R"({"models":["add_one",)"));
  EXPECT_THAT(http.get("/v1/models").body, HasSubstr(R"({"models":["add_one",)"));
  EXPECT_EQ(http.get("/v1/models/add_one").body, R"({"name":"add_one","ready":true})");
}

TEST(RestServer, DescribesAModelInOpenApi) {
  TestServers servers;
  const auto document = parse_json(Http(servers).get("/v2/models/add_one/openapi.json").body);
  EXPECT_EQ(document.at("openapi"), "3.1.0");
  const auto& infer = document.at("paths").at("/v2/models/add_one/infer").at("post");
  const auto& inputs = infer.at_pointer("/requestBody/content/application~1json/schema/properties/inputs/items/anyOf");
  EXPECT_EQ(inputs.at_pointer("/0/properties/name/const"), "x");
  EXPECT_EQ(inputs.at_pointer("/0/required").as_array().size(), 3);
  EXPECT_TRUE(infer.at("responses").as_object().contains("429"));
  EXPECT_EQ(document.at_pointer("/security/0/token").as_array().size(), 0);
  EXPECT_EQ(
      document.at("paths")
          .at("/v2/models/add_one/predict")
          .at_pointer("/post/requestBody/content/application~1json/schema/properties/rows/items/properties/x/type"),
      "array");
}

TEST(RestServer, KeepsTheRepository) {
  TestServers servers;
  Http http(servers);
  EXPECT_EQ(http.post("/v2/repository/models/scores/unload", R"({"parameters":{"unload_dependents":false}})").status,
            200);
  EXPECT_THAT(http.post("/v2/repository/index", "").body,
              HasSubstr(R"({"name":"scores","version":"2","state":"UNAVAILABLE","reason":"unloaded"})"));
  EXPECT_THAT(http.post("/v2/repository/index", R"({"ready":true})").body, testing::Not(HasSubstr("scores")));
  EXPECT_EQ(http.post("/v2/repository/models/scores/load", "").status, 200);
  EXPECT_EQ(http.get("/v2/models/scores/ready").status, 200);
  EXPECT_EQ(http.post("/v2/repository/models/none/load", "").status, 404);
  EXPECT_EQ(http.post("/v2/repository/models/scores/load", R"({"parameters":{"config":"{}"}})").status, 400);
}

TEST(RestServer, AnswersRowsOfFieldsAndVersionOne) {
  TestServers servers;
  Http http(servers);
  EXPECT_EQ(http.post("/v2/models/add_one/predict", R"({"rows":[{"a":1,"b":"x"},{}],"timeout_us":5})").body,
            R"({"model":"add_one","version":"2","rows":[{"fields":2},{"fields":0}],"variant":"champion"})");
  EXPECT_EQ(http.post("/v2/models/add_one/predict", R"({"rows":[1]})").status, 400);
  EXPECT_EQ(http.post("/v2/models/add_one/predict", R"({"rows":[],"row":1})").status, 400);
  EXPECT_EQ(http.post("/v1/models/words:predict", R"({"instances":[["ab"],["cd"]]})").body,
            R"({"predictions":[["ba"],["dc"]]})");
  EXPECT_EQ(http.post("/v1/models/add_one:predict", R"({"instances":[{"x":1}]})").body,
            R"({"predictions":[{"fields":1}]})");
  const auto numbers = parse_json(http.post("/v1/models/add_one:predict", R"({"instances":[[1,2,3,4]]})").body);
  EXPECT_EQ(numbers.at_pointer("/predictions/0/3"), 5.0);
  for (const auto* wrong : {R"({"instances":[[1],[1,2]]})", R"({"instances":[1,[1]]})", R"({"instances":["a"]})",
                            R"({"instances":3})", R"([])", ""})
    EXPECT_EQ(http.post("/v1/models/add_one:predict", wrong).status, 400) << wrong;
}

TEST(RestServer, SaysWhyNot) {
  TestServers servers;
  Http http(servers);
  const auto status = [&](const std::string& model) { return http.post("/v2/models/" + model + "/infer", kRow); };
  EXPECT_EQ(status("busy").status, 429);
  EXPECT_EQ(status("busy").headers.at("retry-after"), "1");
  EXPECT_EQ(status("slow").status, 504);
  EXPECT_EQ(status("gone").status, 503);
  EXPECT_EQ(status("secret").status, 403);
  EXPECT_EQ(status("broken").status, 500);
  EXPECT_EQ(status("none").body, R"({"error":"no model is called none"})");
  EXPECT_EQ(http.post("/v2/models/add_one/infer", kRow, "Authorization: Bearer wrong\r\n").status, 401);
  EXPECT_EQ(http.get("/v2/health/live", "Authorization: Bearer wrong\r\n").status, 200);
  EXPECT_EQ(http.get("/v2/nothing").body, R"({"error":"Not Found"})");
  const auto wrong = Http(servers).get("/v2/models/add_one/infer");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
  EXPECT_EQ(http.post("/v2/models/add_one/infer", kRow, "Inference-Header-Content-Length: x\r\n").status, 400);
  EXPECT_EQ(http.post("/v2/models/add_one/infer", kRow, "Content-Encoding: \xff\r\n").body,
            R"({"error":"the request is not UTF-8"})");
}

TEST(RestServer, AModelsNameMayHoldSlashes) {
  const auto target = parse_target("/v2/models/team/flights/versions/3/infer");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->model, "team/flights");
  EXPECT_EQ(target->version, "3");
  EXPECT_EQ(parse_target("/v2/models/infer")->model, "infer");
  EXPECT_EQ(parse_target("/v2/models/stats")->route, Route::all_statistics);
  for (const auto* path : {"/v2/models/", "/v2/models/x/", "/v2/models/x/versions//infer", "/"})
    EXPECT_FALSE(parse_target(path)) << path;
}

// One channel, and calls by name.
class Channel {
 public:
  explicit Channel(const TestServers& servers) : Channel(servers.grpc.port()) {}
  explicit Channel(std::uint16_t port)
      : channel_(grpc::CreateChannel(fmt::format("127.0.0.1:{}", port), grpc::InsecureChannelCredentials())) {}

  template <class Out, class In>
  grpc::Status call(const std::string& method, const In& in, Out* out, const std::string& token = "",
                    std::optional<grpc_compression_algorithm> packing = std::nullopt, int seconds = 0,
                    std::string* prediction = nullptr) {
    grpc::ClientContext context;
    if (seconds > 0) context.set_deadline(gpr_time_from_seconds(seconds, GPR_TIMESPAN));
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    if (packing) context.set_compression_algorithm(*packing);
    const auto path = method.starts_with("/") ? method : "/inference.GRPCInferenceService/" + method;
    const grpc::internal::RpcMethod rpc(path.c_str(), grpc::internal::RpcMethod::NORMAL_RPC, channel_);
    const auto status = grpc::internal::BlockingUnaryCall<In, Out>(channel_.get(), rpc, &context, in, out);
    const auto& metadata = context.GetServerInitialMetadata();
    if (const auto name = metadata.find(kPredictionHeader); prediction && name != metadata.end())
      prediction->assign(name->second.data(), name->second.size());
    return status;
  }
  auto stream(grpc::ClientContext& context) {
    const grpc::internal::RpcMethod rpc("/inference.GRPCInferenceService/ModelStreamInfer",
                                        grpc::internal::RpcMethod::BIDI_STREAMING, channel_);
    return std::unique_ptr<grpc::ClientReaderWriter<inference::ModelInferRequest, inference::ModelStreamInferResponse>>(
        grpc::internal::ClientReaderWriterFactory<inference::ModelInferRequest,
                                                  inference::ModelStreamInferResponse>::Create(channel_.get(), rpc,
                                                                                               &context));
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;
};

inference::ModelInferRequest ask_add_one(const std::vector<float>& values, const std::string& model = "add_one") {
  inference::ModelInferRequest ask;
  ask.set_model_name(model);
  ask.set_id("7");
  auto& input = *ask.add_inputs();
  input.set_name("x");
  input.set_datatype("FP32");
  input.add_shape(static_cast<std::int64_t>(values.size() / 4));
  input.add_shape(4);
  ask.add_raw_input_contents(bytes_of(values));
  return ask;
}

TEST(GrpcServer, AnswersModelInfer) {
  TestServers servers;
  Channel channel(servers);
  inference::ModelInferResponse answer;
  const auto status = channel.call("ModelInfer", ask_add_one({1, 2, 3, 4}), &answer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(answer.id(), "7");
  EXPECT_THAT(floats_of(answer.raw_output_contents(0)), ElementsAre(2, 3, 4, 5));
  std::string prediction;
  auto named = ask_add_one({1, 2, 3, 4});
  (*named.mutable_parameters())["call_it"].set_string_param("p:a:1:1");
  ASSERT_TRUE(channel.call("ModelInfer", named, &answer, "", {}, 0, &prediction).ok());
  EXPECT_EQ(prediction, "p:a:1:1");
  // A message of many pieces.
  const std::vector<float> many(400'000, 1);
  ASSERT_TRUE(channel.call("ModelInfer", ask_add_one(many), &answer).ok());
  EXPECT_EQ(floats_of(answer.raw_output_contents(0)), std::vector<float>(400'000, 2));
}

TEST(GrpcServer, SaysWhatThereIs) {
  TestServers servers;
  Channel channel(servers);
  inference::ServerLiveResponse live;
  EXPECT_TRUE(channel.call("ServerLive", inference::ServerLiveRequest(), &live, "wrong").ok());
  EXPECT_TRUE(live.live());
  inference::ServerReadyResponse ready;
  EXPECT_TRUE(channel.call("ServerReady", inference::ServerReadyRequest(), &ready).ok());
  EXPECT_TRUE(ready.ready());
  inference::ServerMetadataResponse server;
  EXPECT_TRUE(channel.call("ServerMetadata", inference::ServerMetadataRequest(), &server).ok());
  EXPECT_EQ(server.name(), "falaj-serve");
  inference::ModelReadyRequest which;
  which.set_name("gone");
  inference::ModelReadyResponse model_ready;
  EXPECT_TRUE(channel.call("ModelReady", which, &model_ready).ok());
  EXPECT_FALSE(model_ready.ready());
  inference::ModelMetadataRequest about;
  about.set_name("add_one");
  inference::ModelMetadataResponse metadata;
  EXPECT_TRUE(channel.call("ModelMetadata", about, &metadata).ok());
  EXPECT_THAT(metadata.inputs(0).shape(), ElementsAre(-1, 4));
  inference::ModelConfigRequest configured;
  configured.set_name("add_one");
  inference::ModelConfigResponse config;
  EXPECT_TRUE(channel.call("ModelConfig", configured, &config).ok());
  EXPECT_EQ(config.config().max_batch_size(), 32);
  EXPECT_EQ(config.config().input(0).data_type(), inference::TYPE_FP32);
  inference::ModelStatisticsResponse statistics;
  EXPECT_TRUE(channel.call("ModelStatistics", inference::ModelStatisticsRequest(), &statistics).ok());
  EXPECT_GT(statistics.model_stats_size(), 5);
  inference::RepositoryIndexResponse index;
  EXPECT_TRUE(channel.call("RepositoryIndex", inference::RepositoryIndexRequest(), &index).ok());
  EXPECT_EQ(index.models(0).state(), "READY");
  inference::RepositoryModelUnloadRequest unload;
  unload.set_model_name("scores");
  inference::RepositoryModelUnloadResponse nothing;
  EXPECT_TRUE(channel.call("RepositoryModelUnload", unload, &nothing).ok());
  grpc::health::v1::HealthCheckResponse health;
  EXPECT_TRUE(channel.call("/grpc.health.v1.Health/Check", grpc::health::v1::HealthCheckRequest(), &health).ok());
  EXPECT_EQ(health.status(), grpc::health::v1::HealthCheckResponse::SERVING);
}

TEST(GrpcServer, SaysWhyNot) {
  TestServers servers(std::nullopt, {}, {.message_bytes_max = 100'000});
  Channel channel(servers);
  inference::ModelInferResponse answer;
  const auto code = [&](const std::string& model, const std::string& token = "") {
    return channel.call("ModelInfer", ask_add_one({1, 2, 3, 4}, model), &answer, token).error_code();
  };
  EXPECT_EQ(code("busy"), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(code("slow"), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(code("gone"), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(code("secret"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(code("broken"), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(code("none"), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(code("add_one", "wrong"), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(channel.call("TraceSetting", inference::ServerLiveRequest(), &answer).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  auto lying = ask_add_one({1, 2, 3, 4});
  lying.mutable_inputs(0)->set_shape(0, 2);
  EXPECT_EQ(channel.call("ModelInfer", lying, &answer).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto large = ask_add_one(std::vector<float>(50'000, 0));
  EXPECT_EQ(channel.call("ModelInfer", large, &answer).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (const auto packing : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    const auto status = channel.call("ModelInfer", large, &answer, "", packing);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("more than 100000 bytes long when unpacked"));
    const std::vector<float> many(4'000, 1);
    EXPECT_TRUE(channel.call("ModelInfer", ask_add_one(many), &answer, "", packing).ok());
    EXPECT_EQ(floats_of(answer.raw_output_contents(0)), std::vector<float>(4'000, 2));
  }
}

TEST(GrpcServer, StreamsAnswersAndFailures) {
  TestServers servers;
  Channel channel(servers);
  grpc::ClientContext context;
  const auto stream = channel.stream(context);
  constexpr int kRequests = 300;
  std::thread writing([&] {
    for (int i = 0; i < kRequests; ++i) {
      auto ask = ask_add_one({1, 2, 3, static_cast<float>(i)}, i % 10 == 9 ? "busy" : "add_one");
      ask.set_id(std::to_string(i));
      stream->Write(ask);
    }
    stream->WritesDone();
  });
  int answers = 0, failures = 0;
  inference::ModelStreamInferResponse response;
  while (stream->Read(&response)) {
    const auto id = std::stoi(response.infer_response().id());
    EXPECT_TRUE(response.infer_response().parameters().at("triton_final_response").bool_param());
    if (!response.error_message().empty()) {
      ++failures;
      EXPECT_EQ(id % 10, 9);
      continue;
    }
    ++answers;
    EXPECT_EQ(floats_of(response.infer_response().raw_output_contents(0))[3], static_cast<float>(id + 1));
  }
  writing.join();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(answers, kRequests * 9 / 10);
  EXPECT_EQ(failures, kRequests / 10);
}

TEST(GrpcServer, EndsAStreamWithItsErrorWhenAsked) {
  TestServers servers;
  Channel channel(servers);
  grpc::ClientContext context;
  context.AddMetadata("triton_grpc_error", "true");
  const auto stream = channel.stream(context);
  stream->Write(ask_add_one({1, 2, 3, 4}));
  inference::ModelStreamInferResponse response;
  EXPECT_TRUE(stream->Read(&response));
  stream->Write(ask_add_one({1, 2, 3, 4}, "busy"));
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(GrpcServer, OutlivesClientsThatLeave) {
  TestServers servers;
  for (int i = 0; i < 20; ++i) {
    Channel channel(servers);
    grpc::ClientContext context;
    const auto stream = channel.stream(context);
    for (int n = 0; n < 5; ++n) stream->Write(ask_add_one({1, 2, 3, 4}));
    context.TryCancel();
  }
  Channel channel(servers);
  inference::ModelInferResponse answer;
  EXPECT_TRUE(channel.call("ModelInfer", ask_add_one({1, 2, 3, 4}), &answer).ok());
}

TEST(GrpcServer, TheDeadlineOfACallIsThatOfItsQuestion) {
  TestServers servers;
  Channel channel(servers);
  inference::ModelInferResponse answer;
  auto ask = ask_add_one({1, 2, 3, 4});
  (*ask.mutable_parameters())["priority"].set_uint64_param(3);
  EXPECT_TRUE(channel.call("ModelInfer", ask, &answer).ok());
  EXPECT_EQ(servers.inference.last().priority, 3);
  EXPECT_EQ(servers.inference.last().timeout_us, 0);
  (*ask.mutable_parameters())["timeout"].set_int64_param(40'000'000);
  EXPECT_TRUE(channel.call("ModelInfer", ask, &answer, "", std::nullopt, 30).ok());
  EXPECT_GT(servers.inference.last().timeout_us, 1'000'000);
  EXPECT_LE(servers.inference.last().timeout_us, 32'000'000);  // gRPC rounds up
}

// Before it answers, sends work to its loop from outside and after a while.
class ThroughTheLoop final : public FakeInference {
 public:
  void infer(const Caller& caller, Ask ask, net::Loop& loop, Done done) override {
    EXPECT_EQ(loop.index(), 5);
    home_ = std::this_thread::get_id();
    loop.post([this] { note("posted"); });
    std::thread([&] {
      for (int i = 0; i < 100; ++i) loop.post([this] { ++outside_; });
    }).join();
    loop.after(3'000, [this] { note("later"); });
    loop.after(200, [this] { note("soon"); });
    loop.after(20'000, [this, caller, &loop, ask = std::move(ask), done = std::move(done)] {
      note("last");
      FakeInference::infer(caller, ask, loop, done);
    });
  }
  std::vector<std::string> notes;
  int outside() const { return outside_; }

 private:
  void note(const std::string& what) {
    EXPECT_EQ(std::this_thread::get_id(), home_);
    notes.push_back(what);
  }
  std::thread::id home_;
  int outside_ = 0;
};

TEST(GrpcServer, ItsThreadIsALoop) {
  sys::RealClock clock;
  sys::RealRandom random;
  sys::Ids ids(clock, random);
  Metrics metrics;
  ThroughTheLoop inference;
  GrpcServer server("127.0.0.1", 0, std::nullopt, {.first_loop = 5}, inference, clock, ids, metrics);
  inference::ModelInferResponse answer;
  EXPECT_TRUE(Channel(server.port()).call("ModelInfer", ask_add_one({1, 2, 3, 4}), &answer).ok());
  server.stop(0);
  EXPECT_THAT(inference.notes, ElementsAre("posted", "soon", "later", "last"));
  EXPECT_EQ(inference.outside(), 100);
}

TEST(GrpcServer, StopsWhileAsked) {
  TestServers servers(std::nullopt, {}, {.threads = 2});
  std::vector<std::thread> clients;
  std::atomic<int> answered{0};
  std::atomic<bool> stopping{false};
  for (int i = 0; i < 4; ++i)
    clients.emplace_back([&] {
      Channel channel(servers);
      inference::ModelInferResponse answer;
      while (!stopping) answered += channel.call("ModelInfer", ask_add_one({1, 2, 3, 4}), &answer).ok();
    });
  while (answered < 100) std::this_thread::yield();
  servers.grpc.stop(1'000'000);
  stopping = true;
  for (auto& client : clients) client.join();
  Channel late(servers);
  inference::ModelInferResponse answer;
  EXPECT_FALSE(late.call("ModelInfer", ask_add_one({1, 2, 3, 4}), &answer).ok());
}

}  // namespace
}  // namespace falaj::protocol
