// SPDX-License-Identifier: Apache-2.0
// Every door of a serving program x every credential that must not open it.
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <inference.pb.h>

#include "compute/infer/testing.h"
#include "compute/protocol/grpc_library.h"
#include "compute/protocol/grpc_methods.h"
#include "compute/protocol/grpc_server.h"
#include "compute/serve/front.h"
#include "compute/serve/host.h"
#include "foundation/crypto/hash.h"
#include "foundation/crypto/token.h"
#include "foundation/net/testing.h"
#include "foundation/sys/random.h"

namespace falaj::serve {
namespace {

using protocol::Route;

constexpr std::int64_t kHourOfUs = 3'600'000'000;

class DoorsTest : public testing::Test {
 protected:
  DoorsTest() {
    traffic::Plan plan;
    const auto model = infer::affine_model();
    for (const auto* name : {"hidden", "open"}) {
      auto& endpoint = plan.endpoints.emplace_back();
      endpoint.tenant = endpoint.project = "default";
      endpoint.name = name;
      endpoint.variants = {{"a", "m", 1, crypto::sha256(model).hex(), 1, false, "", ""}};
    }
    add(plan, "good", {0}, kHourOfUs);
    add(plan, "expired", {0}, -1);
    add(plan, "revoked", {0}, kHourOfUs);
    add(plan, "another's", {1}, kHourOfUs);
    tokens_["none"] = "";
    tokens_["wrong"] = tokens_["good"].substr(0, tokens_["good"].size() - 2) + "00";
    tokens_["garbage"] = "falaj_\xff";
    Loader::Source source;
    source.bytes = [&](const std::string&) { return model; };
    host_.publish(loader_.make(plan, nullptr, source));
    host_.revoke({{plan.callers[2].credential, ""}});
    net::ServerLimits limits;
    limits.io_threads = limits.worker_threads = 1;
    http_.emplace("127.0.0.1", 0, std::nullopt, limits, front_, clock_, ids_, metrics_);
    protocol::GrpcLimits one;
    one.first_loop = limits.io_threads;
    grpc_.emplace("127.0.0.1", 0, std::nullopt, one, host_, clock_, ids_, metrics_);
    channel_ = grpc::CreateChannel(fmt::format("127.0.0.1:{}", grpc_->port()), grpc::InsecureChannelCredentials());
  }
  ~DoorsTest() override {
    http_->stop(1'000'000);
    grpc_->stop(1'000'000);
    host_.close();
  }

  void add(traffic::Plan& plan, const std::string& name, std::vector<std::int64_t> endpoints, std::int64_t for_us) {
    crypto::Credential credential;
    random_.fill(credential.secret);
    credential.id.bits = {random_.next(), random_.next()};
    tokens_[name] = crypto::format_credential(crypto::CredentialKind::token, credential);
    plan.callers.push_back({credential.id.str(), crypto::sha256(BytesView(credential.secret)).hex(),
                            clock_.wall().count() + for_us, std::move(endpoints)});
  }

  static std::string body_for(Route route) {
    if (route == Route::infer) return R"({"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]})";
    if (route == Route::predict) return R"({"rows":[{"x":[1,2]}]})";
    if (route == Route::v1_predict) return R"({"instances":[{"x":[1,2]}]})";
    return "";
  }
  net::RawConnection::Answer ask(net::Method method, const std::string& path, const std::string& body,
                                 const std::string& token) {
    net::RawConnection connection(http_->port());
    return connection.ask(
        fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: {}\r\n\r\n{}", net::name(method), path,
                    token.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", token), body.size(), body));
  }

  struct Said {
    grpc::Status status;
    std::string message;  // the last that came
  };
  // With a message that names the model in whatever field the call has for it.
  Said call(const protocol::GrpcMethod& method, const std::string& token) {
    inference::ModelInferRequest named;  // fields 1 and 2 are texts, as are those of the other requests
    if (!method.open) named.set_model_name("hidden");
    if (method.call.starts_with("RepositoryModel")) named.set_model_version("hidden");
    if (method.call.find("Infer") != method.call.npos) {
      auto& input = *named.add_inputs();
      input.set_name("x");
      input.set_datatype("FP32");
      input.add_shape(1);
      input.add_shape(2);
      named.add_raw_input_contents(std::string(8, '\0'));
    }
    grpc::Slice slice(named.SerializeAsString());
    const grpc::ByteBuffer asked(&slice, 1);
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    grpc::CompletionQueue events;
    const auto wait = [&] {
      void* tag = nullptr;
      bool ok = false;
      return events.Next(&tag, &ok) && ok;
    };
    const auto stream = stub.PrepareCall(&context, fmt::format("/{}/{}", method.service, method.call), &events);
    stream->StartCall(nullptr);
    Said out;
    if (wait()) {
      stream->Write(asked, nullptr);
      if (wait()) {
        stream->WritesDone(nullptr);
        wait();
      }
      for (grpc::ByteBuffer got;;) {
        stream->Read(&got, nullptr);
        if (!wait()) break;
        grpc::Slice whole;
        if (got.DumpToSingleSlice(&whole).ok())
          out.message.assign(reinterpret_cast<const char*>(whole.begin()), whole.size());
      }
    }
    stream->Finish(&out.status, nullptr);
    wait();
    return out;
  }

  sys::RealClock clock_;
  sys::RealRandom random_;
  sys::Ids ids_{clock_, random_};
  Metrics metrics_;
  std::map<std::string, std::string> tokens_;
  Loader loader_{infer::runtime(), {}, clock_};
  Host host_{clock_, nullptr};
  Front front_{host_, 1 << 20, metrics_};
  std::optional<net::Server> http_;
  std::optional<protocol::GrpcServer> grpc_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(DoorsTest, OfHttpAreShutToWhoMayNotCome) {
  auto doors = protocol::doors("hidden", "1");
  EXPECT_GE(doors.size(), 25u);
  doors.push_back({Route::all_statistics, net::Method::get, "/metrics", false});
  for (const auto& door : doors) {
    const bool is_open = door.route == Route::live || door.route == Route::ready;
    const bool is_order = door.route == Route::load || door.route == Route::unload;
    const auto body = body_for(door.route);
    for (const auto* credential : {"none", "wrong", "garbage", "expired", "revoked"})
      EXPECT_EQ(ask(door.method, door.path, body, tokens_[credential]).status, is_open ? 200 : 401)
          << door.path << " with " << credential;
    const auto others = ask(door.method, door.path, body, tokens_["another's"]);
    EXPECT_EQ(others.status, door.of_model ? 404 : 200) << door.path << others.body;
    EXPECT_EQ(!door.of_model && others.body.find("hidden") != std::string::npos, false) << door.path << others.body;
    EXPECT_EQ(ask(door.method, door.path, body, tokens_["good"]).status, is_order ? 403 : 200) << door.path;
  }
}

TEST_F(DoorsTest, OfGrpcAreShutToWhoMayNotCome) {
  EXPECT_GE(protocol::grpc_methods().size(), 13u);
  for (const auto& method : protocol::grpc_methods()) {
    for (const auto* credential : {"none", "wrong", "expired", "revoked"})
      EXPECT_EQ(call(method, tokens_[credential]).status.error_code(), method.open ? grpc::OK : grpc::UNAUTHENTICATED)
          << method.call << " with " << credential;
    const auto others = call(method, tokens_["another's"]);
    const bool of_model = method.call.starts_with("Model") || method.call.starts_with("RepositoryModel");
    if (method.kind == protocol::GrpcMethod::Kind::stream_infer) {  // each request of it is answered by itself
      EXPECT_TRUE(others.status.ok());
      EXPECT_NE(others.message.find("there is no endpoint"), std::string::npos);
    } else {
      EXPECT_EQ(others.status.error_code(), of_model ? grpc::NOT_FOUND : grpc::OK) << method.call;
      EXPECT_EQ(!of_model && others.message.find("hidden") != std::string::npos, false) << method.call;
    }
    const bool is_order = method.call.starts_with("RepositoryModel");
    EXPECT_EQ(call(method, tokens_["good"]).status.error_code(), is_order ? grpc::PERMISSION_DENIED : grpc::OK)
        << method.call;
  }
}

}  // namespace
}  // namespace falaj::serve
