// SPDX-License-Identifier: Apache-2.0
// flow_drill [--kills N] [--seed S] FALAJ_BINARY
//
// A pipeline makes a dataset, two files of it, a model of the files, and moves an alias. At random moments of its runs
// one of these is killed with -9: the server, which is started again; the keeper that holds its jobs; both; the
// processes of a step. Every run must come to its end as if nothing had happened: each step has one job, the dataset
// one more version, the model one more version with the bytes that follow from the parameters, the alias one more
// promotion.

#include <stdlib.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/client/api_client.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "tests/program.h"

namespace falaj::tests {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLookUs = 20'000;
constexpr sys::Micros kRunMax = std::chrono::seconds(120);

constexpr std::string_view kPipeline = R"yaml(
apiVersion: falaj/v1
kind: Pipeline
metadata: {tenant: default, project: default, name: drill}
spec:
  parameters: {n: {type: int}}
  steps:
    - name: rows
      sql: {query: "SELECT range AS i FROM range(${{params.n}})", into: counted}
    - name: first
      retries: {max: 3, backoff: 100ms}
      run: {command: [sh, -c, "sleep 0.1; echo first ${{params.n}} ${{steps.rows.outputs.rows}} >$FALAJ_OUTPUTS/out"],
            cpus: 0.1, memory: 64MiB}
    - name: second
      retries: {max: 3, backoff: 100ms}
      run: {command: [sh, -c, "sleep 0.1; echo second ${{params.n}} >$FALAJ_OUTPUTS/out"], cpus: 0.1, memory: 64MiB}
      after: [rows]
    - name: model
      retries: {max: 3, backoff: 100ms}
      run:
        command: [sh, -c, "mkdir -p $FALAJ_OUTPUTS/model; sleep 0.1; cat $FALAJ_INPUTS/a/out $FALAJ_INPUTS/b/out >$FALAJ_OUTPUTS/model/weights"]
        inputs: [{name: a, artifact: "${{steps.first.outputs.run}}/out"}, {name: b, artifact: "${{steps.second.outputs.run}}/out"}]
        cpus: 0.1
        memory: 64MiB
        run: {model: drill}
    - name: promote
      promote: {model: drill, version: "${{steps.model.outputs.version}}", alias: champion}
)yaml";

class FlowDrill {
 public:
  FlowDrill(std::string binary, std::uint64_t seed) : random_(seed) {
    std::string pattern = (fs::temp_directory_path() / "falaj-flow-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw Error(Code::unavailable, "no temporary directory");
    directory_ = pattern;
    program_ = std::make_unique<Program>(
        std::move(binary), directory_ + "/data", directory_ + "/log",
        std::vector<std::string>{"--set", "log_level=error", "--set", "serving.local=false", "--set", "jobs.cpus=2"});
  }
  ~FlowDrill() {
    program_.reset();
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }

  void run(std::int64_t kills) {
    call([&](client::ApiClient& api) {
      api.post("/v1/apply", {{"sources", {{{"file", "drill.yaml"}, {"text", kPipeline}}}}});
      return json::value();
    });
    const auto took = one(1, std::nullopt);
    std::map<Victim, std::int64_t> killed;
    for (std::int64_t i = 1; i <= kills; ++i) {
      const auto victim = static_cast<Victim>(i % 4);
      killed[victim] += 1;
      one(i + 1, Kill{sys::Micros(random_.below(static_cast<std::uint64_t>(took.count()))), victim});
    }
    fmt::print(
        "result pipeline: killed at random moments of {:.1f} s: {} times the server, {} the keeper of its jobs, {} "
        "both, "
        "{} the processes of a step ({} of them while it ran); {} runs came to the same end: 1 dataset version, 3 "
        "jobs, "
        "1 model version and 1 promotion each\n",
        std::chrono::duration<double>(took).count(), killed[Victim::server], killed[Victim::keeper],
        killed[Victim::both], killed[Victim::step], steps_hit_, kills + 1);
  }

 private:
  enum class Victim { server, keeper, both, step };
  struct Kill {
    sys::Micros after;
    Victim victim = Victim::server;
  };

  json::value call(const std::function<json::value(client::ApiClient&)>& what) {
    client::ApiClient api({program_->url(), program_->token(), "", ""}, 8);
    return what(api);
  }
  json::value get(const std::string& path, client::Query more = {}) {
    more.emplace_back("scope", "/t/default/p/default");
    return call([&](client::ApiClient& api) { return api.get(path, more); });
  }

  // A whole run, killed once on its way. How long it took.
  sys::Micros one(std::int64_t n, const std::optional<Kill>& kill) {
    const auto began = clock_.now();
    const auto key = fmt::format("drill {}", n);
    std::string id;
    const auto begin = [&] {
      return call([&](client::ApiClient& api) {
        return api.post("/v1/pipelines/drill/run", {{"parameters", {{"n", n}}}, {"key", key}},
                        {{"scope", "/t/default/p/default"}});
      });
    };
    id = std::string(begin().at("id").as_string());
    if (kill) {
      pause(static_cast<std::uint64_t>(kill->after.count()));
      const bool server = kill->victim == Victim::server || kill->victim == Victim::both;
      if (server) program_->kill();
      if (kill->victim == Victim::keeper || kill->victim == Victim::both) kill_keeper();
      if (kill->victim == Victim::step) kill_step(id);
      if (server) program_->start();
      if (std::string(begin().at("id").as_string()) != id) throw Error(Code::corrupt, "the same key began another run");
    }
    for (;;) {
      const auto run = get("/v1/pipeline-runs/" + id);
      const std::string phase(run.at("phase").as_string());
      if (phase == "succeeded") break;
      if (phase == "failed" || phase == "cancelled" || clock_.now() - began > kRunMax)
        throw Error(Code::corrupt, fmt::format("run {} is {}: {}", n, phase, pretty(run)));
      pause(kLookUs);
    }
    check(n, id);
    return clock_.now() - began;
  }

  void check(std::int64_t n, const std::string& id) {
    const auto wrong = [&](std::string_view what) { throw Error(Code::corrupt, fmt::format("run {}: {}", n, what)); };
    std::map<std::string, int> jobs;
    const auto listed = get("/v1/jobs", {{"limit", "1000"}});
    for (const auto& job : listed.at("items").as_array()) {
      const auto& labels = job.at("labels").as_object();
      if (labels.contains("pipeline-run") && labels.at("pipeline-run").as_string() == id)
        ++jobs[std::string(labels.at("step").as_string())];
    }
    if (jobs != std::map<std::string, int>{{"first", 1}, {"model", 1}, {"second", 1}}) wrong("a step has not one job");
    const auto run = get("/v1/pipeline-runs/" + id);
    std::map<std::string, json::object> outputs;
    for (const auto& step : run.at("steps").as_array())
      outputs[std::string(step.at("id").as_string())] = step.at("outputs").as_object();
    if (outputs["rows"].at("version").as_int64() != n) wrong("the dataset has not one version for each run");
    if (outputs["rows"].at("rows").as_int64() != n) wrong("the dataset has other rows");
    if (outputs["model"].at("version").as_int64() != n) wrong("the model has not one version for each run");
    const auto model = get("/v1/models/drill");
    if (model.at("model").at("aliases").at("champion").as_int64() != n) wrong("the alias points elsewhere");
    if (outputs["promote"].at("promotion").as_int64() != n) wrong("there is not one promotion for each run");
    std::string bytes;
    const auto tracked = get("/v1/runs/" + std::string(outputs["model"].at("run").as_string()));
    call([&](client::ApiClient& api) {
      const auto root = std::string(tracked.at("artifact_uri").as_string());
      api.download(
          net::Method::get,
          fmt::format("/mlflow/default/default/api/2.0/mlflow-artifacts/artifacts{}/model/weights",
                      root.substr(root.find('/'))),
          {}, nullptr, [](std::optional<std::uint64_t>) {}, [&](BytesView piece) { bytes += as_text(piece); });
      return json::value();
    });
    if (bytes != fmt::format("first {0} {0}\nsecond {0}\n", n)) wrong("the model has other bytes: " + bytes);
  }

  // Every process on this machine for which `is` holds of what /proc says under `file`. How many there were.
  static std::size_t kill_where(const char* file, const std::function<bool(const std::string& text)>& is) {
    std::size_t many = 0;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const auto pid = parse_int(entry.path().filename().string());
      if (!pid || !is(read_text(entry.path().string() + "/" + file))) continue;
      many += ::kill(static_cast<pid_t>(*pid), SIGKILL) == 0;
    }
    return many;
  }

  // The process that holds the jobs of this server.
  void kill_keeper() {
    kill_where("cmdline", [&](const std::string& text) {
      return text.find("falaj-keeper") != std::string::npos && text.find(directory_) != std::string::npos;
    });
  }

  // What runs a job of this run, as soon as one runs; nothing when the run is over before.
  void kill_step(const std::string& id) {
    for (;;) {
      const auto run = get("/v1/pipeline-runs/" + id);
      for (const auto& step : run.at("steps").as_array()) {
        const auto* job = step.as_object().if_contains("job");
        if (!job || !job->is_string() || step.at("phase").as_string() != "running") continue;
        const auto mark = "FALAJ_JOB_ID=" + std::string(job->get_string());
        if (kill_where("environ", [&](const std::string& text) { return text.find(mark) != std::string::npos; }) == 0)
          continue;
        ++steps_hit_;
        return;
      }
      const std::string_view phase = run.at("phase").as_string();
      if (phase != "queued" && phase != "running") return;
    }
  }

  sys::RealClock clock_;
  sys::SimRandom random_;
  std::string directory_;
  std::unique_ptr<Program> program_;
  std::int64_t steps_hit_ = 0;
};

int drill(int argc, char** argv) {
  std::int64_t kills = 3, seed = 1;
  std::string binary;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto number = i + 1 < argc ? parse_int(argv[i + 1]) : std::nullopt;
    if (word == "--kills" && number)
      kills = *number, ++i;
    else if (word == "--seed" && number)
      seed = *number, ++i;
    else
      binary = word;
  }
  if (binary.empty()) {
    fmt::print(stderr, "usage: flow_drill [--kills N] [--seed S] FALAJ_BINARY\n");
    return 2;
  }
  try {
    FlowDrill(binary, static_cast<std::uint64_t>(seed)).run(kills);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "flow_drill: {}\n", e.what());
    return 1;
  }
}

}  // namespace
}  // namespace falaj::tests

int main(int argc, char** argv) { return falaj::tests::drill(argc, argv); }
