// SPDX-License-Identifier: Apache-2.0
// serve_drill [--rounds N] FALAJ_BINARY
//
// Clients ask an endpoint without a pause, each over a connection of its own, while
//   - its versions are swapped, its shares shifted and rolled back,
//   - a version that is no model is promoted,
//   - the control plane is killed with -9 and started again,
//   - the worker of falaj-serve is killed with -9, then falaj-serve itself.
// Every answer must be the one of a version that was served then. A switch must cost no request at all; a kill of the
// worker or of falaj-serve only those in flight, and it must be back within a second.

#include <signal.h>
#include <stdlib.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <functional>
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
constexpr int kClients = 4;
const client::Query kProject{{"scope", "/t/default/p/default"}};
const std::string kMlflow = "/mlflow/default/default/api/2.0/";

// y = x * version, so that an answer tells who gave it.
Bytes model_of(std::int64_t version) {
  graph::Graph graph;
  const auto x = graph.add_input("x", graph::Element::float32, {std::string("rows"), std::int64_t{1}});
  const auto by = graph.add_constant(graph::Tensor::of<float>({}, std::vector<float>{static_cast<float>(version)}));
  graph.add_output("y", graph.add_node("Mul", {x, by}), graph::Element::float32,
                   {std::string("rows"), std::int64_t{1}});
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
    for (int i = 0; i < kClients; ++i) threads_.emplace_back([this] { ask(); });
  }
  ~Clients() {
    stopping_ = true;
    for (auto& thread : threads_) thread.join();
  }
  Seen take() {
    Lock lock(mu_);
    return std::exchange(seen_, {});
  }

 private:
  void ask() {
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
        ++seen_.by_version[version];
        if (y != x * std::stod(version)) ++seen_.wrong;
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
  std::vector<std::thread> threads_;
};

class Drill {
 public:
  explicit Drill(std::string binary) {
    std::string pattern = (fs::temp_directory_path() / "falaj-serve-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw Error(Code::unavailable, "no temporary directory");
    directory_ = pattern;
    program_ = std::make_unique<Program>(std::move(binary), data(), directory_ + "/log",
                                         std::vector<std::string>{"--set", "log_level=error"});
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
      kill_control_plane();
      kill_worker();
      kill_serving();
    }
  }

  std::int64_t answers = 0, swaps = 0, cut_off = 0;
  std::int64_t worker_back_us = 0, serving_back_us = 0, swap_us = 0;

 private:
  std::string data() const { return directory_ + "/data"; }

  void connect() {
    api_ = std::make_unique<client::ApiClient>(client::Target{program_->url(), program_->token(), "", ""});
    Lock lock(mu_);
    token_ = program_->token();
  }

  void register_version(const Bytes& bytes) {
    const auto run = api_->post(kMlflow + "mlflow/runs/create", json::object{{"experiment_id", "0"}});
    const auto& info = run.at("run").at("info");
    const auto id = std::string(info.at("run_id").as_string());
    bool sent = false;
    api_->upload(
        kMlflow + fmt::format("mlflow-artifacts/artifacts/0/{}/artifacts/model/model.onnx", id), {},
        [&]() -> Bytes { return std::exchange(sent, true) ? Bytes() : bytes; }, bytes.size(), net::Method::put);
    try {
      api_->post(kMlflow + "mlflow/registered-models/create", json::object{{"name", "scale"}});
    } catch (const Error& e) {
      if (e.code() != Code::exists && e.code() != Code::invalid) throw;
    }
    api_->post(kMlflow + "mlflow/model-versions/create",
               json::object{{"name", "scale"}, {"source", fmt::format("runs:/{}/model", id)}, {"run_id", id}});
  }

  void apply(const std::string& variants) {
    const auto text = fmt::format(
        "{{apiVersion: falaj/v1, kind: Endpoint, metadata: {{name: scale, tenant: default, project: default}}, spec: "
        "{{variants: [{}]}}}}",
        variants);
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
    look("the worker is back", true);
  }

  void kill_serving() {
    const int before = supervisor();
    const auto began = clock_.now();
    ::kill(before, SIGKILL);
    until("falaj-serve is started again", [&] { return supervisor() != before && supervisor() > 0; });
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
    pause(200'000);
    look("falaj-serve is back", true);
  }

  sys::RealClock clock_;
  std::string directory_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<client::ApiClient> api_;
  Mutex mu_;  // guards what the clients read
  std::string serve_url_ GUARDED_BY(mu_), token_ GUARDED_BY(mu_);
  std::unique_ptr<Clients> clients_;
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
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "serve_drill: {}\n", e.what());
    return 1;
  }
}
