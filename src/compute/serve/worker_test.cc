// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/worker.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compute/infer/testing.h"
#include "compute/serve/link.h"
#include "compute/serve/sandbox.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "foundation/crypto/token.h"
#include "foundation/net/testing.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "foundation/sys/testing.h"
#include "lifecycle/execute/local/restrict.h"

namespace falaj::serve {
namespace {

using testing::HasSubstr;

constexpr const char* kIsWorker = "FALAJ_TEST_IS_WORKER=1";

void write_file(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

// This program again, as a worker that we tell what a supervisor would: with its confinement and its bound of memory.
class StartedWorker {
 public:
  explicit StartedWorker(WorkerSettings settings) : link_(start()) {
    settings.runtime = infer::Runtime::path_beside_program();
    link_.send(encode(settings));
  }
  ~StartedWorker() {
    try {
      link_.send(json::object{{"stop", true}});
    } catch (const Error&) {
      // It ended before us.
    }
    ::waitpid(pid_, nullptr, 0);
  }
  void tell_plan(json::object unfetched = {}) {
    link_.send(json::object{{"plan", json::object{{"fingerprint", "f"},
                                                  {"quarantined", json::object()},
                                                  {"unfetched", std::move(unfetched)},
                                                  {"spaces", json::object()}}}});
  }
  // The variants of the next report that has some; nothing when the worker has ended.
  std::optional<json::array> next_report() {
    while (auto said = link_.receive())
      if (const auto* report = said->as_object().if_contains("report"))
        if (const auto& variants = report->at("variants").as_array(); !variants.empty()) return variants;
    return std::nullopt;
  }
  std::uint16_t port() const { return port_; }

 private:
  sys::Descriptor start() {
    auto [ours, theirs] = Link::pair();
    sys::Descriptor listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listening.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listening.get(), 16), 0);
    ::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    auto [dial_ours, dial_theirs] = Link::pair();
    dial_ = std::move(dial_ours);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const int given[] = {theirs.get(), listening.get(), dial_theirs.get()};
    for (int i = 0; i < 3; ++i) posix_spawn_file_actions_adddup2(&actions, given[i], 100 + i);
    char self[] = "/proc/self/exe", only[] = "--gtest_filter=WorkerProcess.DISABLED_Runs",
         also[] = "--gtest_also_run_disabled_tests";
    char* arguments[] = {self, only, also, nullptr};
    std::string is_worker = kIsWorker;
    char* environment[] = {is_worker.data(), nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, self, &actions, nullptr, arguments, environment), 0);
    posix_spawn_file_actions_destroy(&actions);
    return std::move(ours);
  }

  pid_t pid_ = -1;
  std::uint16_t port_ = 0;
  sys::Descriptor dial_;
  Link link_;
};

// Not a test: what StartedWorker starts.
TEST(WorkerProcess, DISABLED_Runs) {
  if (!std::getenv("FALAJ_TEST_IS_WORKER")) GTEST_SKIP();
  static CrashNote note{};
  std::_Exit(run_worker(sys::Descriptor(100), sys::Descriptor(101), sys::Descriptor(102), note));
}

class WorkerTest : public testing::Test {
 protected:
  WorkerTest() {
    sys::RealRandom random;
    random.fill(secret_.secret);
    secret_.id.bits = {random.next(), random.next()};
    settings_.models = directory_.path();
  }
  void SetUp() override {
#ifdef FALAJ_SANITIZED
    GTEST_SKIP() << "sanitizers take memory of their own, which a worker may not have";
#endif
  }
  std::string token() const { return crypto::format_credential(crypto::CredentialKind::token, secret_); }

  std::string add_model(const Bytes& model) {
    const auto digest = crypto::sha256(model).hex();
    write_file(directory_ / model_file(digest), as_text(model));
    return digest;
  }
  // Each an endpoint of one variant of that model.
  void write_plan(const std::vector<std::pair<std::string, std::string>>& endpoints, std::int64_t version = 1,
                  const char* file = kPlanFile) {
    traffic::Plan plan;
    traffic::Caller caller{
        secret_.id.str(), crypto::sha256(BytesView(secret_.secret)).hex(), std::int64_t{1} << 52, {}};
    for (const auto& [name, digest] : endpoints) {
      traffic::Endpoint endpoint;
      endpoint.tenant = "acme";
      endpoint.project = "flights";
      endpoint.name = name;
      endpoint.variants = {{"a", "m", version, digest, 1, false, "", ""}};
      caller.endpoints.push_back(static_cast<std::int64_t>(plan.endpoints.size()));
      plan.endpoints.push_back(std::move(endpoint));
    }
    plan.callers = {caller};
    write_file(directory_ / file, json::serialize(encode(plan)));
  }
  net::RawConnection::Answer get(StartedWorker& worker, const std::string& path) const {
    net::RawConnection connection(worker.port());
    return connection.ask(
        fmt::format("GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\n\r\n", path, token()));
  }

  sys::TempDir directory_;
  crypto::Credential secret_;
  WorkerSettings settings_;
};

TEST_F(WorkerTest, AModelThatDoesNotFitInMemoryLeavesTheOthersAlone) {
  const std::string huge(64, 'a');
  const auto small = add_model(infer::affine_model());
  write_file(directory_ / model_file(huge), "");
  std::filesystem::resize_file(directory_ / model_file(huge), std::uintmax_t{1} << 30);
  write_plan({{"huge", huge}, {"small", small}});
  settings_.memory_bytes = std::int64_t{512} << 20;
  settings_.has_plan = true;
  StartedWorker worker(settings_);
  worker.tell_plan();
  const auto variants = worker.next_report();
  ASSERT_TRUE(variants) << "the worker ended";
  ASSERT_EQ(variants->size(), 2u);
  EXPECT_EQ(variants->at(0).at("state"), "failed");
  EXPECT_THAT(std::string(variants->at(0).at("reason").as_string()), HasSubstr("memory"));
  EXPECT_EQ(variants->at(1).at("state"), "ready");
  EXPECT_EQ(get(worker, "/v2/models/small/ready").status, 200);
  EXPECT_EQ(get(worker, "/v2/models/huge/ready").status, 503);
}

TEST_F(WorkerTest, APlanThatCannotBeReadDoesNotEndIt) {
  write_file(directory_ / kPlanFile, "{");
  settings_.has_plan = true;
  StartedWorker worker(settings_);
  worker.tell_plan();
  EXPECT_EQ(get(worker, "/v2/health/live").status, 200);
  EXPECT_EQ(get(worker, "/v2/health/ready").status, 503);
  write_plan({{"small", add_model(infer::affine_model())}});
  worker.tell_plan();
  const auto variants = worker.next_report();
  ASSERT_TRUE(variants);
  EXPECT_EQ(variants->at(0).at("state"), "ready");
}

TEST_F(WorkerTest, GoesOnWithWhatIsHereWhileAModelIsNot) {
  const auto old = add_model(infer::affine_model());
  const std::string absent(64, 'b');
  write_plan({{"m", old}}, 1, kPlanBefore);
  write_plan({{"m", absent}}, 2);
  settings_.has_plan = true;
  StartedWorker worker(settings_);
  worker.tell_plan({{absent, "not fetched: the disk is full"}});
  const auto variants = worker.next_report();
  ASSERT_TRUE(variants);
  EXPECT_EQ(variants->at(0).at("state"), "unfetched");
  EXPECT_EQ(variants->at(0).at("reason"), "not fetched: the disk is full");
  const auto metadata = get(worker, "/v2/models/m");
  EXPECT_EQ(metadata.status, 200);
  EXPECT_THAT(metadata.body, HasSubstr(R"("versions":["1"])"));
}

TEST_F(WorkerTest, ItsMetricsAreOfModelsAndOfTheProcess) {
  write_plan({{"m", add_model(infer::affine_model())}});
  settings_.has_plan = true;
  StartedWorker worker(settings_);
  worker.tell_plan();
  EXPECT_EQ(get(worker, "/v2/models/m/ready").status, 200);
  const auto metrics = get(worker, "/metrics");
  EXPECT_EQ(metrics.status, 200);
  for (const auto* name : {"nv_inference_pending_request_count{", "nv_inference_compute_input_duration_us{",
                           "falaj_protocol_http_requests_total{", "falaj_net_", "falaj_serve_isolation{"})
    EXPECT_THAT(metrics.body, HasSubstr(name));
}

TEST(WorkersFiles, AreTheCertificateAndNotWhatLiesBesideIt) {
  if (execute::local::landlock_version() == 0) GTEST_SKIP() << "this kernel has no Landlock";
  const sys::TempDir directory;
  for (const auto* file : {"tls.pem", "tls.key", "serve.token"}) write_file(directory / file, "x");
  std::filesystem::create_directory(directory / "models");
  WorkerSettings settings;
  settings.models = directory / "models";
  settings.certificate_file = directory / "tls.pem";
  settings.key_file = directory / "tls.key";
  settings.runtime = "/proc/self/exe";
  const auto can_read = [&](const char* file) { return ::open((directory / file).c_str(), O_RDONLY) >= 0; };
  EXPECT_EXIT(
      {
        confine_files(readable_for(settings));
        std::_Exit((can_read("tls.pem") ? 1 : 0) + (can_read("tls.key") ? 2 : 0) + (can_read("serve.token") ? 4 : 0));
      },
      testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace falaj::serve
