// SPDX-License-Identifier: Apache-2.0
#pragma once

// The API without a socket, for tests of this directory and of those above it.

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/alert_sources.h"
#include "api/platform.h"
#include "api/route.h"
#include "api/service.h"
#include "foundation/base/metrics.h"
#include "foundation/crypto/sign.h"
#include "foundation/net/client.h"
#include "foundation/net/http.h"
#include "foundation/sys/sim_net.h"
#include "foundation/sys/testing.h"
#include "governance/resource/kind.h"

namespace falaj::alerts {
class Alerts;
class Notifications;
}  // namespace falaj::alerts
namespace falaj::net {
class Mailer;
}
namespace falaj::flow {
class Steps;
}
namespace falaj::loop {
class Loop;
}
namespace falaj::online {
class Store;
}
namespace falaj::sql {
class Scratch;
}
namespace falaj::jobs {
class FakeExecutor;
class Jobs;
}  // namespace falaj::jobs

namespace falaj::api {

inline const std::string kProject = "scope=/t/acme/p/flights";  // the query of most questions

struct Question {
  Method method = Method::get;
  std::string target;  // as on the request line: "/v1/tokens?principal=user/ada"
  std::string body{};  // sent as application/json unless headers say otherwise
  std::vector<std::pair<std::string, std::string>> headers{};
  std::optional<Digest> certificate{};  // of the client

  Question with(std::string name, std::string value) const;
  Question by(std::string_view token) const;  // as a bearer
};

struct Answer {
  int status = 0;
  net::Headers headers;
  std::string body, request_id;
  json::value json() const { return parse_json(body); }
  std::string error() const;  // the code of an error body; "" when there is none
};

// What the server would do with the question: the head is read by the server's own parser, the body is handed out in
// small pieces and never past what was admitted.
Answer ask(net::Service& service, const Question& question);

// A whole platform in a temporary directory, with time in the hands of the test. It has a zone `uae`, the tenant `acme`
// with the project `flights`, the user `admin`, and the user `ada`, who holds no role.
class TestApi {
 public:
  explicit TestApi(CallLimits limits = {}, const std::string& engine = "sqlite");
  ~TestApi();

  Answer call(const Question& question) { return ask(*service, question); }
  Answer get(const std::string& target) { return call(Question{Method::get, target}.by(admin)); }
  Answer del(const std::string& target) { return call(Question{Method::del, target}.by(admin)); }
  Answer post(const std::string& target, const std::string& body) {
    return call(Question{Method::post, target, body}.by(admin));
  }
  void apply(std::string_view yaml);
  traffic::Plan plan();  // what serving programs are told, once the files of all versions were read
  std::string token_of(const std::string& principal, std::int64_t ttl_us = 3'600'000'000,
                       std::vector<iam::Restriction> restrictions = {});
  std::size_t audited(std::string_view verb, std::string_view outcome = "ok");

  sys::TempDir dir;
  Metrics metrics;
  sys::SimClock clock;
  sys::RealRandom random;
  std::unique_ptr<sys::Files> files;
  vault::RootKeys roots;
  const crypto::Signer signer;
  const crypto::Key answer_key, watch_key;
  std::unique_ptr<sql::Scratch> scratch;  // of another engine than SQLite
  std::unique_ptr<sql::Database> database;
  std::unique_ptr<audit::AuditLog> audit;
  std::unique_ptr<iam::Directory> directory;
  std::unique_ptr<resource::Registry> registry;
  std::unique_ptr<resource::Resources> resources;
  std::unique_ptr<vault::KeyStore> keys;
  std::unique_ptr<vault::Vault> vault;
  std::unique_ptr<data::Datasets> datasets;
  std::unique_ptr<data::Erasures> erasures;
  std::unique_ptr<online::Store> online_store;
  std::unique_ptr<features::Online> online;
  std::unique_ptr<track::Track> track;
  std::unique_ptr<track::LoggedModels> logged_models;
  std::unique_ptr<models::Webhooks> webhooks;
  std::unique_ptr<models::Registry> models;
  std::unique_ptr<models::Promotions> promotions;
  net::Client outgoing{net::ClientOptions{}};
  sys::SimResolver resolver;
  std::unique_ptr<models::Deliveries> deliveries;  // not started: a test delivers when it wants to
  std::unique_ptr<jobs::FakeExecutor> executor;    // runs nothing; ends when the clock says so
  std::unique_ptr<jobs::Jobs> jobs;                // not started
  std::unique_ptr<serving::PredictionLog> predictions;
  std::unique_ptr<watch::Watch> watch;
  std::unique_ptr<serving::Endpoints> endpoints;
  std::unique_ptr<EndpointSignals> endpoint_signals;
  std::unique_ptr<FindingSignals> finding_signals;
  std::unique_ptr<LoopSignals> loop_signals;
  std::unique_ptr<JobSignals> job_signals;
  std::unique_ptr<MetricSignals> metric_signals;
  std::unique_ptr<alerts::Alerts> alerts;  // looks when a test wants it to
  std::unique_ptr<net::Mailer> mailer;
  std::unique_ptr<alerts::Notifications> notifications;  // not started
  std::unique_ptr<flow::Steps> steps;
  std::unique_ptr<flow::Flow> flow;  // not started: a test looks when it wants to
  std::unique_ptr<loop::Loop> loop;  // the same
  std::unique_ptr<Platform> platform;
  Routes routes;
  std::unique_ptr<ApiService> service;
  std::string admin, ada;  // their tokens
};

}  // namespace falaj::api
