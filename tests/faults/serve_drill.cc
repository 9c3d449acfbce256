// SPDX-License-Identifier: Apache-2.0
// serve_drill [--rounds N] FALAJ_BINARY
//
// Clients ask an endpoint without a pause, each over a connection of its own, while
//   - its versions are swapped, its shares shifted and rolled back,
//   - a version that is no model is promoted,
//   - the control plane is killed with -9 and started again,
//   - the worker of falaj-serve is killed with -9, then falaj-serve itself,
//   - canaries begin whose models predict otherwise, are slow, crash their process, or take ever more memory,
//   - tokens are revoked, also while a large model is fetched and loaded.
// Every answer must be the one of a version that was served then. A switch must cost no request at all; a kill of the
// worker or of falaj-serve only those in flight, and it must be back within a second; so must a token be refused. The
// times are printed; five seconds fail.

#include <signal.h>
#include <stdlib.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "compute/graph/graph.h"
#include "foundation/base/error.h"
#include "foundation/base/mutex.h"
#include "foundation/base/text.h"
#include "foundation/client/api_client.h"
#include "foundation/sys/clock.h"
#include "tests/program.h"

namespace falaj::tests {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLookUs = 2'000;
constexpr sys::Micros kPatience = std::chrono::seconds(30);
constexpr std::int64_t kBackUsMax = 5'000'000;  // a second is what is meant; machines that run tests are busy
constexpr std::size_t kClients = 4;
const client::Query kProject{{"scope", "/t/default/p/default"}};
const std::string kMlflow = "/mlflow/default/default/api/2.0/";

constexpr std::int64_t kOff = 5, kSlow = 6, kCrashing = 7, kGreedy = 8;  // versions of the bad models
constexpr int kRevoked = 3;
constexpr std::int64_t kLargeRows = 4096, kLargeColumns = 2048;  // of a model that takes long to load: 32 MiB

std::string number(graph::Graph& graph, float value) {
  return graph.add_constant(graph::Tensor::of<float>({}, std::vector<float>{value}));
}
std::string whole(graph::Graph& graph, const std::string& value) {
  return graph.add_node("Cast", {value}, {{"to", std::int64_t{7}}});
}
std::string real(graph::Graph& graph, const std::string& value) {
  return graph.add_node("Cast", {value}, {{"to", std::int64_t{1}}});
}

// Nothing, in the form of x, as a model that is bad in its way comes to it.
std::string nothing_by(graph::Graph& graph, const std::string& x, std::int64_t version) {
  const auto none = number(graph, 0);
  const auto nil = graph.add_node("Mul", {x, none});
  if (version == kSlow) {  // some milliseconds of multiplying
    constexpr std::int64_t kWide = 1'000;
    const auto into = graph.add_constant(graph::Tensor::of<float>({1, kWide}, std::vector<float>(kWide, 0)));
    const auto by = graph.add_constant(
        graph::Tensor::of<float>({kWide, kWide}, std::vector<float>(static_cast<std::size_t>(kWide * kWide), 0)));
    auto wide = graph.add_node("MatMul", {x, into});
    for (int i = 0; i < 20; ++i) wide = graph.add_node("MatMul", {wide, by});
    const auto back = graph.add_constant(graph::Tensor::of<float>({kWide, 1}, std::vector<float>(kWide, 0)));
    return graph.add_node("MatMul", {wide, back});
  }
  if (version == kCrashing) {  // the least whole number by -1 when x is 50, which no processor can say
    const auto off = whole(graph, graph.add_node("Sub", {x, number(graph, 51)}));
    const auto least = graph.add_constant(
        graph::Tensor::of<std::int64_t>({}, std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min()}));
    const auto some = graph.add_node("Add", {off, graph.add_node("Mul", {off, off})});  // 0 only where off is -1 or 0
    const auto by = graph.add_node(
        "Sub", {some, graph.add_constant(graph::Tensor::of<std::int64_t>({}, std::vector<std::int64_t>{1}))});
    const auto divided = graph.add_node("Div", {least, by});
    return graph.add_node("Mul", {real(graph, divided), none});
  }
  if (version == kGreedy) {  // x times 16 MiB
    const auto most = graph.add_node("ReduceMax", {x}, {{"keepdims", std::int64_t{0}}});
    const auto many = graph.add_node("Mul", {most, number(graph, 4 << 20)});
    const auto one = graph.add_constant(graph::Tensor::of<std::int64_t>({1}, std::vector<std::int64_t>{1}));
    const auto size = graph.add_node("Reshape", {whole(graph, many), one});
    const auto filled = graph.add_node("ConstantOfShape", {size});
    const auto sum = graph.add_node("ReduceMax", {filled}, {{"keepdims", std::int64_t{0}}});
    return graph.add_node("Mul", {x, sum});
  }
  return nil;
}

// y = x * version, so that an answer tells who gave it; one model adds a thousand.
Bytes model_of(std::int64_t version) {
  graph::Graph graph;
  const auto x = graph.add_input("x", graph::Element::float32, {std::string("rows"), std::int64_t{1}});
  auto y = graph.add_node("Mul", {x, number(graph, static_cast<float>(version))});
  if (version > 4) y = graph.add_node("Add", {y, nothing_by(graph, x, version)});
  if (version == kOff) y = graph.add_node("Add", {y, number(graph, 1'000)});
  graph.add_output("y", y, graph::Element::float32, {std::string("rows"), std::int64_t{1}});
  return graph::serialise(graph);
}

// x times a matrix; `seed` makes it another.
Bytes large_model(std::uint32_t seed) {
  std::vector<float> values(static_cast<std::size_t>(kLargeRows * kLargeColumns));
  for (auto& value : values) value = static_cast<float>((seed = seed * 1'664'525 + 1'013'904'223) >> 8) * 0x1.0p-24f;
  graph::Graph graph;
  const auto x = graph.add_input("x", graph::Element::float32, {std::string("rows"), kLargeRows});
  const auto by = graph.add_constant(graph::Tensor::of<float>({kLargeRows, kLargeColumns}, values));
  graph.add_output("y", graph.add_node("MatMul", {x, by}), graph::Element::float32,
                   {std::string("rows"), kLargeColumns});
  return graph::serialise(graph);
}

// What the clients saw since it was last asked.
struct Seen {
  std::int64_t answers = 0, refused = 0, broken = 0, wrong = 0;
  std::map<std::string, std::int64_t> by_version;
  std::string first_trouble;
};

class Clients {
 public:
  Clients(std::function<client::Target()> target) : target_(std::move(target)) {
    for (std::size_t i = 0; i < kClients; ++i) threads_.emplace_back([this, i] { ask(i); });
  }
  ~Clients() {
    stopping_ = true;
    for (auto& thread : threads_) thread.join();
  }
  Seen take() {
    Lock lock(mu_);
    return std::exchange(seen_, {});
  }
  // How often each of them was answered: who was since has told what happened to it before.
  std::array<std::int64_t, kClients> answered() {
    Lock lock(mu_);
    return answered_;
  }

 private:
  void ask(std::size_t client) {
    std::unique_ptr<client::ApiClient> api;
    for (std::int64_t i = 0; !stopping_; ++i) {
      try {
        if (!api || api->target().url != target_().url) api = std::make_unique<client::ApiClient>(target_(), 1);
        const auto x = static_cast<double>(1 + i % 100);
        const auto answer =
            api->post("/v2/models/scale/predict", json::object{{"rows", json::array{json::object{{"x", x}}}}});
        const auto version = std::string(answer.at("version").as_string());
        const auto y = answer.at("rows").at(0).at("y").to_number<double>();
        Lock lock(mu_);
        ++seen_.answers;
        ++answered_[client];
        ++seen_.by_version[version];
        if (y != x * std::stod(version) + (version == std::to_string(kOff) ? 1'000 : 0)) ++seen_.wrong;
      } catch (const Error& e) {
        Lock lock(mu_);
        const bool told = std::string_view(e.what()).find("request to") == std::string_view::npos;
        ++(told ? seen_.refused : seen_.broken);
        if (seen_.first_trouble.empty()) seen_.first_trouble = e.what();
        api.reset();
      }
    }
  }

  const std::function<client::Target()> target_;
  std::atomic<bool> stopping_ = false;
  Mutex mu_;
  Seen seen_ GUARDED_BY(mu_);
  std::array<std::int64_t, kClients> answered_ GUARDED_BY(mu_){};
  std::vector<std::thread> threads_;
};

class Drill {
 public:
  explicit Drill(std::string binary) {
    std::string pattern = (fs::temp_directory_path() / "falaj-serve-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw Error(Code::unavailable, "no temporary directory");
    directory_ = pattern;
    program_ =
        std::make_unique<Program>(std::move(binary), data(), directory_ + "/log",
                                  std::vector<std::string>{"--set", "log_level=error", "--set", "serving.memory=1GiB"});
    connect();
  }
  ~Drill() {
    clients_.reset();
    program_->stop();
    program_.reset();
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }

  void run(int rounds) {
    for (std::int64_t version = 1; version <= 3; ++version) register_version(model_of(version));
    register_version(to_bytes("no model at all"));
    for (const auto bad : {kOff, kSlow, kCrashing, kGreedy}) register_version(model_of(bad));
    declare(1);
    clients_ = std::make_unique<Clients>([this] {
      Lock lock(mu_);
      return client::Target{serve_url_, token_, "", ""};
    });
    wait_for("1", "the first version");
    for (int round = 0; round < rounds; ++round) {
      swap();
      share();
      promote_rubbish();
      revoke(round);
      kill_control_plane();
      kill_worker();
      kill_serving();
      for (const auto bad : {kOff, kSlow, kGreedy, kCrashing}) try_canary(bad);
    }
  }

  std::int64_t answers = 0, swaps = 0, cut_off = 0, own_failures = 0;
  std::int64_t worker_back_us = 0, serving_back_us = 0, swap_us = 0;
  std::int64_t revoked_us = 0, revoked_beside_us = 0;  // the slowest; beside: while a large model is brought
  int revoked_beside = 0;                              // of those, before it was ready
  std::string canaries;                                // what became of them, in words

  void refuse_slowness() const {
    for (const auto& [what, us] : {std::pair{"the worker was back", worker_back_us},
                                   {"falaj-serve was back", serving_back_us},
                                   {"a revoked token was refused", revoked_us},
                                   {"a revoked token was refused beside a large model", revoked_beside_us}})
      if (us > kBackUsMax) throw Error(Code::deadline, fmt::format("{} after {} ms only", what, us / 1000));
  }

 private:
  std::string data() const { return directory_ + "/data"; }

  void connect() {
    api_ = std::make_unique<client::ApiClient>(client::Target{program_->url(), program_->token(), "", ""});
    Lock lock(mu_);
    token_ = program_->token();
  }

  void register_version(const Bytes& bytes, const std::string& model = "scale") {
    const auto run = api_->post(kMlflow + "mlflow/runs/create", json::object{{"experiment_id", "0"}});
    const auto& info = run.at("run").at("info");
    const auto id = std::string(info.at("run_id").as_string());
    bool sent = false;
    api_->upload(
        kMlflow + fmt::format("mlflow-artifacts/artifacts/0/{}/artifacts/model/model.onnx", id), {},
        [&]() -> Bytes { return std::exchange(sent, true) ? Bytes() : bytes; }, bytes.size(), net::Method::put);
    try {
      api_->post(kMlflow + "mlflow/registered-models/create", json::object{{"name", model}});
    } catch (const Error& e) {
      if (e.code() != Code::exists && e.code() != Code::invalid) throw;
    }
    api_->post(kMlflow + "mlflow/model-versions/create",
               json::object{{"name", model}, {"source", fmt::format("runs:/{}/model", id)}, {"run_id", id}});
  }

  void apply(const std::string& variants, const std::string& more = "", const std::string& name = "scale") {
    const auto text = fmt::format(
        "{{apiVersion: falaj/v1, kind: Endpoint, metadata: {{name: {}, tenant: default, project: default}}, spec: "
        "{{variants: [{}]{}}}}}",
        name, variants, more);
    api_->post("/v1/apply", json::object{{"sources", json::array{json::object{{"file", "drill"}, {"text", text}}}},
                                         {"dry_run", false}});
  }
  void declare(std::int64_t version) {
    apply(fmt::format("{{name: champion, model: scale, version: {}}}", version));
    wait_ready();
  }

  json::value view() { return api_->get("/v1/serving/endpoints/scale", kProject); }
  void wait_ready() {
    json::value seen;
    try {
      until("the endpoint is ready", [&] { return (seen = view()).at("ready").as_bool(); });
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("{}: {}", e.what(), json::serialize(seen)));
    }
    Lock lock(mu_);
    serve_url_ = std::string(view().at("urls").at(0).as_string());
  }
  void until(const std::string& what, const std::function<bool()>& holds) {
    const auto end = clock_.now() + kPatience;
    while (!holds()) {
      if (clock_.now() > end) throw Error(Code::deadline, "waited too long until " + what);
      pause(kLookUs);
    }
  }

  // Adds what was seen; throws unless nothing was refused and nobody was wrong.
  Seen look(const std::string& during, bool may_break) {
    auto seen = clients_->take();
    answers += seen.answers;
    cut_off += seen.broken + (may_break ? seen.refused : 0);
    if (seen.wrong > 0) throw Error(Code::corrupt, fmt::format("{}: {} answers were wrong", during, seen.wrong));
    if (!may_break && seen.refused + seen.broken > 0)
      throw Error(Code::corrupt, fmt::format("{}: {} requests refused, {} cut off; the first: {}", during, seen.refused,
                                             seen.broken, seen.first_trouble));
    return seen;
  }
  // Until clients get this version, and at last only this one.
  void wait_for(const std::string& version, const std::string& during, bool may_break = false) {
    until(during, [&] { return look(during, may_break).by_version.contains(version); });
  }

  void swap() {
    for (const std::int64_t version : {2, 3, 1}) {
      const auto began = clock_.now();
      declare(version);
      wait_for(std::to_string(version), "a swap");
      swap_us = std::max(swap_us, (clock_.now() - began).count());
      ++swaps;
    }
  }

  void share() {
    apply("{name: a, model: scale, version: 1}, {name: b, model: scale, version: 2}");
    wait_ready();
    wait_for("2", "sharing");
    api_->post("/v1/serving/endpoints/scale/shift", json::object{{"weights", json::object{{"a", 0}}}}, kProject);
    wait_ready();
    api_->post("/v1/serving/endpoints/scale/rollback", json::object{}, kProject);
    wait_ready();
    wait_for("1", "a rollback");
    declare(1);
    swaps += 4;
  }

  void promote_rubbish() {
    apply("{name: champion, model: scale, version: 4}");
    until("the server says that it cannot be loaded", [&] {
      const auto variants = view().at("variants").as_array();
      const auto& servers = variants.at(0).at("servers").as_array();
      return !servers.empty() && servers[0].at("state").as_string() == "failed";
    });
    wait_for("1", "what is no model was promoted");
    declare(1);
  }

  // How long a token that is taken back is still good for.
  std::int64_t revoke_one() {
    const auto made = api_->post("/v1/tokens", json::object{{"name", "drill"}});
    std::string url;
    {
      Lock lock(mu_);
      url = serve_url_;
    }
    client::ApiClient asking(client::Target{url, std::string(made.at("token").as_string()), "", ""}, 1);
    const auto answers = [&] {
      try {
        asking.post("/v2/models/scale/predict", json::object{{"rows", json::array{json::object{{"x", 1.0}}}}});
        return true;
      } catch (const Error& e) {
        if (e.code() != Code::unauthenticated) throw;
        return false;
      }
    };
    until("a new token is known", answers);
    if (before_revoking_) before_revoking_();
    const auto began = clock_.now();
    api_->del("/v1/tokens/" + std::string(made.at("id").as_string()));
    until("a revoked token is refused", [&] { return !answers(); });
    return (clock_.now() - began).count();
  }

  void revoke(int round) {
    for (int i = 0; i < kRevoked; ++i) revoked_us = std::max(revoked_us, revoke_one());
    register_version(large_model(static_cast<std::uint32_t>(round)), "large");
    before_revoking_ = [&] { apply(fmt::format("{{name: only, model: large, version: {}}}", round + 1), "", "large"); };
    revoked_beside_us = std::max(revoked_beside_us, revoke_one());
    before_revoking_ = nullptr;
    const auto is_ready = [&] { return api_->get("/v1/serving/endpoints/large", kProject).at("ready").as_bool(); };
    revoked_beside += !is_ready();
    until("the large model is ready", is_ready);
    look("tokens are revoked", false);
  }

  void kill_control_plane() {
    program_->kill();
    for (int i = 0; i < 50; ++i) {
      pause(kLookUs);
      look("the control plane is dead", false);
    }
    program_->start();
    connect();
    wait_ready();
    declare(2);
    wait_for("2", "the control plane is back");
    declare(1);
  }

  // The process that has this one as its parent.
  static int child_of(int parent) {
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const auto pid = parse_int(entry.path().filename().string());
      if (!pid) continue;
      const auto stat = read_text(entry.path().string() + "/stat");
      const auto end = stat.rfind(')');
      if (end == std::string::npos) continue;
      const auto words = split(std::string_view(stat).substr(end + 2), ' ');
      if (words.size() > 1 && parse_int(words[1]) == parent) return static_cast<int>(*pid);
    }
    return 0;
  }
  int supervisor() const { return static_cast<int>(parse_int(trim(read_text(data() + "/serve/lock"))).value_or(0)); }

  void kill_worker() {
    const int worker = child_of(supervisor());
    if (worker <= 0) throw Error(Code::internal, "falaj-serve has no worker");
    look("before the worker is killed", false);
    const auto began = clock_.now();
    ::kill(worker, SIGKILL);
    clients_->take();
    wait_for("1", "the worker was killed", true);
    worker_back_us = std::max(worker_back_us, (clock_.now() - began).count());
    wait_ready();
    wait_for_all("the worker is back");
  }
  // Until every client was answered again: what was cut off is told by then, however busy the machine.
  void wait_for_all(const std::string& during) {
    const auto before = clients_->answered();
    until("all are answered: " + during, [&] {
      const auto now = clients_->answered();
      for (std::size_t i = 0; i < now.size(); ++i)
        if (now[i] == before[i]) return false;
      return true;
    });
    look(during, true);
  }

  void kill_serving() {
    const int before = supervisor();
    const auto began = clock_.now();
    ::kill(before, SIGKILL);
    until("falaj-serve is started again", [&] { return supervisor() != before && supervisor() > 0; });
    look("falaj-serve was killed", true);  // what the old one had answered is no sign of the new one
    until("it answers", [&] {
      const auto reported = view().at("urls").as_array();
      for (const auto& url : reported) {
        Lock lock(mu_);
        serve_url_ = std::string(url.as_string());
      }
      return look("falaj-serve was killed", true).answers > 0;
    });
    serving_back_us = std::max(serving_back_us, (clock_.now() - began).count());
    wait_ready();
    wait_for_all("falaj-serve is back");
  }

  // A bad model begins as a canary and is taken back by itself. Requests that it answered wrongly or not at all are its
  // own; nobody else's may be touched, unless it ends the process.
  void try_canary(std::int64_t bad) {
    const auto guard = bad == kOff ? ", shiftMax: 0.2" : "";
    const auto began = clock_.now();
    apply("{name: champion, model: scale, version: 1}, {name: new, model: scale, version: " + std::to_string(bad) +
              ", weight: 0}",
          fmt::format(", canary: {{variant: new, steps: [20, 100], every: 1m, requestsMin: 50{}}}", guard));
    json::value last;
    until(fmt::format("canary {} is rolled back", bad), [&] {
      const auto history = api_->get("/v1/serving/endpoints/scale/history", kProject);
      last = history.at("items").at(0);
      look_aside(bad);
      return last.at("why").as_string().find(bad == kCrashing ? "cannot be served" : "rolled back") !=
             std::string_view::npos;
    });
    const auto took = (clock_.now() - began).count();
    fmt::format_to(std::back_inserter(canaries), "; {} ms: {}", took / 1000, std::string(last.at("why").as_string()));
    declare(1);
    wait_for("1", "a canary was taken back", true);
  }
  void look_aside(std::int64_t bad) {
    const auto seen = clients_->take();
    answers += seen.answers;
    cut_off += seen.broken;
    own_failures += seen.refused;
    if (seen.wrong > 0) throw Error(Code::corrupt, fmt::format("{} answers were wrong", seen.wrong));
    if (bad != kGreedy && bad != kCrashing && seen.refused + seen.broken > 0)
      throw Error(Code::corrupt, fmt::format("canary {}: {} refused, {} cut off: {}", bad, seen.refused, seen.broken,
                                             seen.first_trouble));
  }

  sys::RealClock clock_;
  std::string directory_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<client::ApiClient> api_;
  Mutex mu_;  // guards what the clients read
  std::string serve_url_ GUARDED_BY(mu_), token_ GUARDED_BY(mu_);
  std::unique_ptr<Clients> clients_;
  std::function<void()> before_revoking_;
};

}  // namespace
}  // namespace falaj::tests

int main(int argc, char** argv) {
  int rounds = 1;
  std::string binary;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--rounds" && i + 1 < argc)
      rounds = std::atoi(argv[++i]);
    else
      binary = argv[i];
  }
  try {
    falaj::tests::Drill drill(binary);
    drill.run(rounds);
    fmt::print(
        "result {} requests answered during {} changes without one refused; worker killed: back after {} ms, "
        "falaj-serve: {} ms, {} requests cut off by these; slowest swap {} ms\n",
        drill.answers, drill.swaps, drill.worker_back_us / 1000, drill.serving_back_us / 1000, drill.cut_off,
        drill.swap_us / 1000);
    fmt::print(
        "result a revoked token was refused after {} ms at most; {} ms while a large model was brought, {} of {} times "
        "before it was ready\n",
        drill.revoked_us / 1000, drill.revoked_beside_us / 1000, drill.revoked_beside, rounds);
    fmt::print("result bad canaries taken back after{}; {} requests failed by their own fault\n", drill.canaries,
               drill.own_failures);
    drill.refuse_slowness();
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "serve_drill: {}\n", e.what());
    return 1;
  }
}
