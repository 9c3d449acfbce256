// SPDX-License-Identifier: Apache-2.0
// A prediction by entity against one that is given the same values: one row over HTTP, the same model. Two views of 20
// features of the newest row and 4 windows each are looked up by one key, in LMDB, sealed; entities rotate. By
// processor time of the server's threads.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compute/infer/testing.h"
#include "compute/protocol/rest.h"
#include "compute/serve/host.h"
#include "foundation/crypto/hash.h"
#include "foundation/crypto/token.h"
#include "foundation/net/testing.h"
#include "foundation/sys/testing.h"
#include "lifecycle/lookup/record.h"

namespace falaj::serve {
namespace {

constexpr std::size_t kRowFeatures = 20, kWindowFeatures = 4, kViews = 2, kEntities = 20'000, kAsked = 512;
constexpr int kRounds = 7;
constexpr std::int64_t kHourOfBench = 3'600'000'000;
const std::string kKeyOfRows(64, '1'), kKeyOfNames(64, '2');

traffic::FeatureView planned(std::size_t number) {
  traffic::FeatureView view;
  view.name = fmt::format("view{}", number);
  view.space = fmt::format("{:032x}", number + 1);
  view.layout = 1;
  view.key = {{"customer", "text"}};
  view.tile_us = kHourOfBench / 6;
  for (std::size_t i = 0; i < kRowFeatures; ++i) view.rows.push_back({fmt::format("r{}_{}", number, i), "float64"});
  for (std::size_t i = 0; i < kWindowFeatures; ++i)
    view.windows.push_back(
        {fmt::format("w{}_{}", number, i), "mean", 0, static_cast<std::int64_t>(i + 1) * kHourOfBench});
  for (const auto& column : view.rows) view.features.push_back(column.name);
  for (const auto& window : view.windows) view.features.push_back(window.name);
  return view;
}

// What every entity has, but for its first number.
Bytes record_of(const lookup::View& view, std::size_t entity, std::int64_t now_us) {
  lookup::Part part(view);
  for (std::int64_t i = 0; i < 12; ++i) {
    online::RowWriter row(view.layout);
    for (std::size_t c = 0; c < kRowFeatures; ++c)
      row.set_real(c, static_cast<double>(entity % 1000) / 7 + static_cast<double>(c));
    const auto at = now_us - i * kHourOfBench / 4;
    part.add({{at, at, static_cast<std::uint64_t>(i), {static_cast<double>(i) + 0.5}}, row.finish()}, now_us);
  }
  lookup::Record record(view);
  record.set_base(1, 0, part, now_us);
  return record.encode();
}

// Whether the sum of all inputs is above -1, which it is: all answers are of one length.
Bytes sum_model(const std::vector<std::string>& inputs) {
  graph::Graph graph;
  const std::vector<graph::Dimension> one = {std::string("rows"), std::int64_t{1}};
  auto sum = graph.add_input(inputs[0], graph::Element::float32, one);
  for (std::size_t i = 1; i < inputs.size(); ++i)
    sum = graph.add_node("Add", {sum, graph.add_input(inputs[i], graph::Element::float32, one)});
  const auto least = graph.add_constant(graph::Tensor::of<float>({}, std::vector<float>{-1}));
  graph.add_output("y", graph.add_node("Greater", {sum, least}), graph::Element::boolean, one);
  return graph::serialise(graph);
}

class World {
 public:
  World() : host_(clock_, nullptr), rest_(host_, {}, metrics_) {
    traffic::Features features;
    features.service = "all";
    FeatureStore told;
    const std::shared_ptr<online::Store> store = online::open_lmdb(directory_ / "online", metrics_);
    told.reader = store;
    for (std::size_t v = 0; v < kViews; ++v) {
      features.views.push_back(planned(v));
      const auto& view = features.views.back();
      const auto space = space_of({view.space, kKeyOfNames, {{1, kKeyOfRows}}});
      told.spaces[view.space] = space;
      fill(*store, *space, view);
      names_.insert(names_.end(), view.features.begin(), view.features.end());
    }
    serve(features, told);
  }
  ~World() {
    server_->stop(1'000'000);
    host_.close();
  }
  std::uint16_t port() const { return server_->port(); }

  std::string request(const std::string& endpoint, const std::string& row) const {
    const auto body = fmt::format(R"({{"rows":[{}]}})", row);
    return fmt::format(
        "POST /v2/models/{}/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\nContent-Type: "
        "application/json\r\nContent-Length: {}\r\n\r\n{}",
        endpoint, token_, body.size(), body);
  }
  static std::string key(std::size_t entity) { return fmt::format(R"({{"customer":"customer-{}"}})", entity); }
  // What is looked up for it, as a caller would send it.
  std::string values(std::size_t entity) const {
    protocol::Predict ask;
    ask.rows = {parse_json(key(entity))};
    const auto catalogue = host_.catalogue();
    const auto& endpoint = catalogue->endpoints.at(0);
    const auto& inputs = endpoint.variants.at(0).held->inputs;
    endpoint.features->fill(ask, inputs, clock_, nullptr);
    json::object row;
    for (std::size_t i = 0; i < inputs.size(); ++i) row[inputs[i].name] = ask.columns[i].values<float>()[0];
    return json::serialize(row);
  }

 private:
  void fill(online::Store& store, const online::Space& space, const traffic::FeatureView& plan) {
    const auto now_us = clock_.wall().count();
    std::vector<lookup::WindowFeature> windows;
    std::vector<std::string> names;
    std::vector<lookup::Column> rows;
    for (const auto& window : plan.windows) {
      windows.push_back({lookup::Aggregate::mean, 0, window.window_us});
      names.push_back(window.name);
    }
    for (const auto& row : plan.rows) rows.push_back({row.name, online::Type::float64});
    const lookup::View view(1, {online::Type::text}, rows, lookup::Windows(plan.tile_us, windows), names, std::nullopt);
    std::vector<Bytes> keys, records;
    for (std::size_t i = 0; i < kEntities; ++i) {
      const lookup::Value name = fmt::format("customer-{}", i);
      keys.push_back(lookup::entity_key(view.key, std::span(&name, 1)));
      records.push_back(record_of(view, i, now_us));
    }
    std::vector<online::Write> writes{{lookup::kWholeMark, {now_us, now_us, as_bytes("whole")}, 0}};
    for (std::size_t i = 0; i < kEntities; ++i) writes.push_back({keys[i], {now_us, now_us, records[i]}, 0});
    CHECK(store.put(space, writes) == writes.size(), "all are stored");
  }

  void serve(const traffic::Features& features, const FeatureStore& told) {
    sys::RealRandom random;
    crypto::Credential credential;
    random.fill(credential.secret);
    credential.id.bits = {random.next(), random.next()};
    token_ = crypto::format_credential(crypto::CredentialKind::token, credential);
    const auto model = sum_model(names_);
    traffic::Plan plan;
    for (const auto* name : {"by-key", "by-value"}) {
      traffic::Endpoint endpoint;
      endpoint.tenant = endpoint.project = "default";
      endpoint.name = name;
      endpoint.variants = {{"a", "m", 1, crypto::sha256(model).hex(), 1, false, "", ""}};
      if (plan.endpoints.empty()) endpoint.features = features;
      plan.endpoints.push_back(endpoint);
    }
    plan.callers = {{credential.id.str(),
                     crypto::sha256(BytesView(credential.secret)).hex(),
                     clock_.wall().count() + kHourOfBench,
                     {0, 1}}};
    Loader loader(infer::runtime(), {}, clock_);
    Loader::Source source;
    source.bytes = [&](const std::string&) { return model; };
    source.features = told;
    host_.publish(loader.make(plan, nullptr, source));
    net::ServerLimits limits;
    limits.io_threads = limits.worker_threads = 1;
    server_.emplace("127.0.0.1", 0, std::nullopt, limits, rest_, clock_, ids_, metrics_);
  }

  sys::TempDir directory_;
  sys::RealClock clock_;
  sys::RealRandom random_;
  sys::Ids ids_{clock_, random_};
  Metrics metrics_;
  Host host_;
  protocol::Rest rest_;
  std::vector<std::string> names_;  // of all features
  std::string token_;
  std::optional<net::Server> server_;
};

void compare() {
  const World world;
  sys::SimRandom random(9);
  std::vector<std::string> by_key, by_value;
  for (std::size_t i = 0; i < kAsked; ++i) {
    const auto entity = random.below(kEntities);
    by_key.push_back(world.request("by-key", World::key(entity)));
    by_value.push_back(world.request("by-value", world.values(entity)));
  }
  {
    net::RawConnection connection(world.port());
    CHECK(connection.ask(by_key[0]).status == 200 && connection.ask(by_value[0]).status == 200, "both are answered");
  }
  const sys::RealClock clock;
  double key = 0, value = 0;
  for (int round = 0; round < kRounds; ++round) {
    key = std::max(key, net::measure_requests(world.port(), by_key, clock).per_cpu_second);
    value = std::max(value, net::measure_requests(world.port(), by_value, clock).per_cpu_second);
  }
  fmt::print(
      R"({{"claim":"predict one row by entity, {} features of {} views looked up","ours":{:.1f},"unit":"requests/cpu s","against":"the same row with its values given as JSON","limit":{:.1f},"ratio":{:.3f},"goal":{}}})"
      "\n",
      kViews * (kRowFeatures + kWindowFeatures), kViews, key, value, key / value, 0.9);
}

}  // namespace
}  // namespace falaj::serve

int main() { falaj::serve::compare(); }
