// SPDX-License-Identifier: Apache-2.0
#include "api/testing.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <thread>

#include <fmt/format.h>

#include "api/call.h"
#include "api/modules.h"
#include "foundation/net/mail.h"
#include "foundation/net/parse.h"
#include "lifecycle/alerts/alerts.h"
#include "lifecycle/alerts/notifications.h"
#include "lifecycle/features/online.h"
#include "lifecycle/flow/flow.h"
#include "lifecycle/flow/steps.h"
#include "lifecycle/jobs/jobs.h"
#include "lifecycle/jobs/testing.h"
#include "lifecycle/loop/loop.h"
#include "lifecycle/watch/watch.h"
#include "storage/blob/memory_backend.h"
#include "storage/sql/testing.h"

namespace falaj::api {
namespace {

constexpr std::string_view kResources = R"(
{apiVersion: falaj/v1, kind: Zone, metadata: {name: uae}, spec: {residency: AE, backends: [local]}}
---
{apiVersion: falaj/v1, kind: Tenant, metadata: {name: acme}, spec: {zones: [uae]}}
---
{apiVersion: falaj/v1, kind: Project, metadata: {tenant: acme, name: flights}, spec: {zone: uae}}
---
{apiVersion: falaj/v1, kind: User, metadata: {name: ada}, spec: {}}
)";

// Runs what is posted at once, on whatever thread.
class Here final : public net::Loop {
 public:
  std::size_t index() const override { return 0; }
  void post(std::function<void()> work) override { work(); }
  void after(std::int64_t, std::function<void()> work) override { work(); }
};

// Hands a text out as the network would: a few bytes at a time, and not one past what was admitted.
class PiecesOf final : public net::BodyReader {
 public:
  PiecesOf(std::string_view text, std::uint64_t bytes_max) : text_(text), bytes_max_(bytes_max) {}
  std::size_t read(std::span<std::byte> out) override {
    const auto n = std::min({out.size(), text_.size() - at_, kPiece});
    if (at_ + n > bytes_max_) throw Error(Code::exhausted, "the body is longer than allowed");
    std::memcpy(out.data(), text_.data() + at_, n);
    at_ += n;
    return n;
  }
  std::optional<std::uint64_t> size() const override { return std::nullopt; }

 private:
  static constexpr std::size_t kPiece = 7;
  const std::string_view text_;
  const std::uint64_t bytes_max_;
  std::size_t at_ = 0;
};

net::Head read_head(const Question& question) {
  std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n", net::name(question.method), question.target);
  bool typed = false;
  for (const auto& [name, value] : question.headers) {
    text += fmt::format("{}: {}\r\n", name, value);
    typed |= name == "Content-Type";
  }
  if (!typed && !question.body.empty()) text += "Content-Type: application/json\r\n";
  net::Head head;
  net::Message message;
  const auto refused = net::parse_head(text + "\r\n", 100, head, message);
  CHECK(!refused, "a test asks what the server does not even read");
  static std::atomic<std::uint64_t> questions{0};
  head.request_id = fmt::format("question-{}", ++questions);
  head.peer.address = "127.0.0.1";
  head.peer.certificate = question.certificate;
  return head;
}

std::string text_of(net::Response& response) {
  if (auto* text = std::get_if<std::string>(&response.body)) return std::move(*text);
  std::string out;
  auto& stream = std::get<net::StreamBody>(response.body);
  for (Bytes piece; !(piece = stream.next()).empty();) out += as_text(piece);
  return out;
}

}  // namespace

Question Question::with(std::string name, std::string value) const {
  Question copy = *this;
  copy.headers.emplace_back(std::move(name), std::move(value));
  return copy;
}

Question Question::by(std::string_view token) const { return with("Authorization", fmt::format("Bearer {}", token)); }

std::string Answer::error() const {
  if (!body.starts_with("{\"error\"")) return "";
  return std::string(json().at("error").at("code").as_string());
}

Answer ask(net::Service& service, const Question& question) {
  net::Head head = read_head(question);
  Answer answer;
  answer.request_id = head.request_id;
  net::Admission admission = service.admit(head);
  net::Response response;
  if (admission.refusal) {
    response = std::move(*admission.refusal);
  } else if (admission.begin) {
    Here loop;
    const auto replied = std::make_shared<std::promise<net::Response>>();
    admission.begin(head, question.body, loop, [replied](net::Response&& r) { replied->set_value(std::move(r)); });
    response = replied->get_future().get();
  } else {
    const auto handle = [&](bool must_not_wait) {
      PiecesOf body(question.body, admission.body_bytes_max);
      net::Request request{head, body, must_not_wait};
      response = admission.handle(request);
    };
    try {
      handle(admission.place == net::Place::here_first);
    } catch (const net::MustWait&) {
      handle(false);
    }
  }
  answer.status = response.status;
  answer.headers = response.headers;
  answer.body = text_of(response);
  return answer;
}

TestApi::TestApi(CallLimits limits, const std::string& engine)
    : files(sys::open_files(dir.path())),
      roots(vault::RootKeys::open(*files, "root.key", std::nullopt)),
      signer(roots.platform_key(vault::kAuditSignatures)),
      answer_key(roots.platform_key(vault::kKeptAnswers)),
      watch_key(roots.platform_key(vault::kWatched)),
      scratch(engine == "sqlite" ? nullptr : sql::make_scratch(engine)),
      database(scratch ? scratch->open(metrics) : sql::open_sqlite(dir / "falaj.db", metrics)) {
  database->migrate(all_migrations());
  audit = std::make_unique<audit::AuditLog>(*database, clock, signer);
  database->set_ledger(*audit);
  iam::DirectoryOptions options;
  options.password_cost = {.memory_bytes = 8192, .passes = 1};
  directory =
      std::make_unique<iam::Directory>(*database, clock, random, roots.platform_key(vault::kWorkloadTokens), options);
  const auto bell = std::make_shared<jobs::Bell>();
  registry = std::make_unique<resource::Registry>(all_kinds(*directory, *files, bell));
  resources = std::make_unique<resource::Resources>(*database, *registry, clock);
  keys = std::make_unique<vault::KeyStore>(*database, vault::RootKeys::decode(roots.encode()),
                                           [](const vault::RootKeys&) {});
  vault = std::make_unique<vault::Vault>(
      *database, *directory, *keys, [this](const iam::Zone&) { return std::make_unique<blob::MemoryBackend>(clock); },
      clock, metrics);
  datasets = std::make_unique<data::Datasets>(*database, *resources, *vault, *files, clock, random, metrics);
  erasures = std::make_unique<data::Erasures>(data::Erasures::Parts{*database, *resources, *datasets, clock, random},
                                              roots.platform_key(vault::kErasures), descendants);
  online_store = online::open_lmdb(dir / "online", metrics);
  online = std::make_unique<features::Online>(*database, *resources, *datasets, *online_store,
                                              roots.platform_key(vault::kOnlineFeatures), clock, metrics);
  erasures->add(*online);
  online->start();
  track = std::make_unique<track::Track>(*database, *directory, clock, random, metrics);
  logged_models = std::make_unique<track::LoggedModels>(*database, clock, random, metrics);
  webhooks = std::make_unique<models::Webhooks>(*database, roots.platform_key(vault::kWebhookSecrets), clock, random);
  models = std::make_unique<models::Registry>(*database, *directory, *vault, *webhooks, signer, clock, metrics);
  promotions = std::make_unique<models::Promotions>(*database, *webhooks, clock);
  deliveries = std::make_unique<models::Deliveries>(*database, *webhooks, outgoing, clock, random, metrics);
  execute::Node node;
  node.name = "node";
  node.cpu_millis = 4000;
  node.memory_bytes = std::int64_t{16} << 30;
  executor = std::make_unique<jobs::FakeExecutor>(clock, 1, std::vector{node});
  jobs::JobsOptions job_options;
  job_options.launch.directory = dir / "jobs";
  job_options.secrets_key = std::make_shared<const crypto::Key>(roots.platform_key(vault::kJobSecrets));
  jobs = std::make_unique<jobs::Jobs>(
      jobs::Jobs::Parts{*database, *resources, *directory, *vault, *track, clock, random, metrics, bell},
      jobs::Jobs::Executors{{"local", executor.get()}}, job_options);
  predictions = std::make_unique<serving::PredictionLog>(
      serving::PredictionLog::Parts{*database, *resources, *datasets, clock}, metrics);
  endpoints = std::make_unique<serving::Endpoints>(
      serving::Endpoints::Parts{*database, *resources, *directory, *models, *promotions, *vault, *online, *predictions,
                                clock},
      [this] { return audit->head().head.size; }, metrics);
  watch = std::make_unique<watch::Watch>(
      watch::Watch::Parts{*database, *resources, *models, *vault, *datasets, *predictions, clock, watch_key}, metrics);
  endpoint_signals = std::make_unique<EndpointSignals>(*endpoints);
  finding_signals = std::make_unique<FindingSignals>(*watch);
  loop_signals = std::make_unique<LoopSignals>();
  job_signals = std::make_unique<JobSignals>(*jobs);
  metric_signals = std::make_unique<MetricSignals>(metrics);
  const alerts::Alerts::Parts alert_parts{*database, *resources, clock, random, metrics};
  alerts = std::make_unique<alerts::Alerts>(
      alert_parts, alert_sources(*endpoint_signals, *finding_signals, *job_signals, *loop_signals, *metric_signals));
  mailer = std::make_unique<net::Mailer>(net::ClientOptions{}, net::OutgoingRules{}, resolver);
  notifications = std::make_unique<alerts::Notifications>(alert_parts, *alerts, outgoing, *mailer, reveal_of(*jobs));
  steps =
      std::make_unique<flow::Steps>(flow::Steps::Parts{*database, *resources, *directory, *vault, *datasets, *online,
                                                       *track, *models, *promotions, *jobs, *endpoints, clock},
                                    asks_of(*watch, *models, *vault), "0.0.0");
  flow::FlowOptions flow_options;
  flow_options.workers = 0;
  flow = std::make_unique<flow::Flow>(flow::Flow::Parts{*database, *resources, *directory, *datasets, *promotions,
                                                        *track, *steps, *alerts, clock, random, metrics},
                                      flow_options);
  loop = std::make_unique<loop::Loop>(
      loop::Loop::Parts{*database, *resources, *alerts, *flow, *endpoints, clock, metrics});
  loop_signals->tell_of(*loop);
  admin = directory->bootstrap(iam::kTokenLifeMaxUs)->text;
  apply(kResources);
  platform.reset(new Platform{*database,
                              *directory,
                              *audit,
                              *resources,
                              *vault,
                              *keys,
                              *track,
                              *logged_models,
                              *models,
                              *promotions,
                              *webhooks,
                              *deliveries,
                              *datasets,
                              *erasures,
                              *online,
                              *jobs,
                              *endpoints,
                              *predictions,
                              *watch,
                              *alerts,
                              *notifications,
                              *flow,
                              *loop,
                              clock,
                              random,
                              metrics,
                              answer_key,
                              limits,
                              "0.0.0",
                              "http://localhost",
                              clock.now(),
                              {},
                              [] { return true; }});
  add_all_routes(routes, *platform);
  service = std::make_unique<ApiService>(*platform, routes, metrics);
  ada = token_of("user/ada");
}

TestApi::~TestApi() {
  flow->stop();
  jobs->stop();
  online->stop();
  database->stop();
}

void TestApi::apply(std::string_view yaml) {
  const auto documents = resource::read_documents("test.yaml", yaml);
  resources->apply({"user/test", "", "", ""}, documents,
                   [](std::string_view, const iam::Scope&) { return std::nullopt; });
  plan();
}

traffic::Plan TestApi::plan() {
  auto now = endpoints->current();
  for (; !now.awaited.empty(); now = endpoints->current()) std::this_thread::yield();
  return *now.plan;
}

std::string TestApi::token_of(const std::string& principal, std::int64_t ttl_us,
                              std::vector<iam::Restriction> restrictions) {
  return database
      ->write({"user/test", "token.create", "/", ""},
              [&](sql::Writer& w) {
                return directory->issue_token(w, {iam::Principal::parse(principal), "test", restrictions, ttl_us});
              })
      .text;
}

std::size_t TestApi::audited(std::string_view verb, std::string_view outcome) {
  audit::Filter filter;
  filter.verb = verb;
  filter.outcome = outcome;
  return audit->log(filter, std::nullopt, 1000).records.size();
}

}  // namespace falaj::api
