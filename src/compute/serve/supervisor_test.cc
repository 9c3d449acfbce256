// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/supervisor.h"

#include <condition_variable>
#include <filesystem>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "foundation/net/testing.h"
#include "foundation/sys/testing.h"

namespace falaj::serve {
namespace {

// What a supervisor asks of a control plane: the plan, and models by their digests.
class ControlPlane {
 public:
  ControlPlane() {
    server_.service.on_admit = [this](const net::Head& head) {
      if (head.path == "/v1/serving/plan")
        return net::run(net::Place::worker, 0, [this](net::Request& request) {
          Lock lock(mu_);
          if (request.head.parameter("after") == traffic::fingerprint(plan_)) return net::text_response(503, "");
          const json::object said{{"plan", encode(plan_)}, {"public_key", to_hex(signer_.public_key())}};
          return net::text_response(200, json::serialize(said), "application/json");
        });
      return net::run(net::Place::worker, 0, [this](net::Request& request) {
        const auto digest = request.head.path.substr(request.head.path.rfind('/') + 1);
        Lock lock(mu_);
        ++asked_[digest];
        changed_.notify_all();
        const auto found = models_.find(digest);
        return found == models_.end() ? net::text_response(404, "{}", "application/json")
                                      : net::text_response(200, found->second, "application/octet-stream");
      });
    };
  }

  std::string add_model(const std::string& bytes, bool is_signed = true) {
    Lock lock(mu_);
    const auto digest = crypto::sha256(as_bytes(bytes)).hex();
    models_[digest] = bytes;
    if (!is_signed) return digest;
    traffic::Statement statement{"acme", "flights", "m", 1, digest, static_cast<std::int64_t>(bytes.size())};
    const auto text = json::serialize(encode(statement));
    signed_.push_back({text, to_base64(signer_.sign(as_bytes(text)))});
    return digest;
  }
  void change_model(const std::string& digest, const std::string& bytes) {
    Lock lock(mu_);
    models_[digest] = bytes;
  }
  void serve(const std::vector<std::string>& digests) {
    Lock lock(mu_);
    plan_ = {};
    plan_.models = signed_;
    for (const auto& digest : digests) {
      auto& endpoint = plan_.endpoints.emplace_back();
      endpoint.tenant = "acme";
      endpoint.project = "flights";
      endpoint.name = "e" + std::to_string(plan_.endpoints.size());
      endpoint.variants = {{"a", "m", 1, digest, 1, false, "", ""}};
    }
  }
  void wait_until_asked_for(const std::string& digest, int times) {
    Lock lock(mu_);
    while (asked_[digest] < times) lock.wait(changed_);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }
  std::string public_key() const { return to_hex(signer_.public_key()); }

 private:
  crypto::Signer signer_{crypto::Key::random()};
  Mutex mu_;
  std::condition_variable changed_;
  traffic::Plan plan_ GUARDED_BY(mu_);
  std::vector<traffic::SignedStatement> signed_ GUARDED_BY(mu_);
  std::map<std::string, std::string> models_ GUARDED_BY(mu_);
  std::map<std::string, int> asked_ GUARDED_BY(mu_);
  net::TestServer server_;
};

class SupervisorTest : public testing::Test {
 protected:
  SupervisorSettings settings() {
    SupervisorSettings out;
    out.name = "here";
    out.control.url = control_.url();
    out.control.token = "t";
    out.state = directory_.path();
    out.public_key = control_.public_key();
    const auto files = sys::open_files(directory_.path());
    files->write_all(kLockFile, {});
    return out;
  }
  bool has(const std::string& file) const { return std::filesystem::exists(directory_ / file); }
  void wait_for(const std::string& file, bool there = true) const {
    while (has(file) != there) std::this_thread::yield();
  }
  traffic::Plan plan_here() const {
    const auto text = sys::open_files(directory_.path())->read_all(kPlanFile, kPlanBytesMax);
    return decode<traffic::Plan>(parse_json(as_text(text)), "plan");
  }

  sys::RealClock clock_;
  sys::TempDir directory_;
  ControlPlane control_;
};

TEST_F(SupervisorTest, AModelThatCannotBeHadKeepsNoPlanBack) {
  const auto first = control_.add_model("first");
  control_.serve({first});
  Supervisor supervisor(settings(), clock_);
  wait_for(model_file(first));
  wait_for(kPlanFile);
  const auto damaged = control_.add_model("second"), fine = control_.add_model("third"),
             foreign = control_.add_model("not ours", false);
  control_.change_model(damaged, "secand");
  control_.serve({damaged, fine, foreign});
  control_.wait_until_asked_for(damaged, 2);  // again only when the plan was taken
  EXPECT_EQ(plan_here().endpoints.size(), 3u);
  EXPECT_TRUE(has(model_file(fine)));
  EXPECT_FALSE(has(model_file(damaged)));
  EXPECT_FALSE(has(model_file(foreign)));
  EXPECT_TRUE(has(kPlanBefore)) << "what is not here goes on as it was";
  EXPECT_TRUE(has(model_file(first)));
  control_.change_model(damaged, "second");
  wait_for(model_file(damaged));
  EXPECT_TRUE(has(kPlanBefore)) << "one is not signed";
  control_.serve({damaged, fine});
  wait_for(kPlanBefore, false);
  EXPECT_EQ(plan_here().endpoints.size(), 2u);
}

TEST_F(SupervisorTest, ServesNoPlanFromDiskThatTheControlPlaneDidNotSign) {
  const auto model = control_.add_model("first");
  control_.serve({model});
  {
    Supervisor supervisor(settings(), clock_);
    wait_for(kPlanFile);
    wait_for(model_file(model));
  }
  auto plan = plan_here();
  const auto other = crypto::sha256(as_bytes("evil")).hex();
  const auto files = sys::open_files(directory_.path());
  files->write_all(model_file(other), as_bytes("evil"));
  plan.endpoints[0].variants[0].sha256 = other;
  files->write_all(kPlanFile, as_bytes(json::serialize(encode(plan))));
  auto away = settings();
  away.control.url = "http://127.0.0.1:1";
  Supervisor supervisor(std::move(away), clock_);
  EXPECT_EQ(supervisor.unfetched().count(other), 1u);
}

}  // namespace
}  // namespace falaj::serve
