// SPDX-License-Identifier: Apache-2.0
// slurm_drill FALAJ_BINARY
//
// One server with two places to run jobs: this machine, and a Slurm cluster of several nodes that is started for this.
//   - One file of jobs is submitted to two tenants, whose queues lead to one place each. What became of every job must
//     be the same in both: how it ended and why, its attempts, its run, what it wrote, saved and left.
//   - While jobs run on Slurm: a node dies, the controller dies and comes back, the server dies and comes back.

#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/client/api_client.h"
#include "foundation/sys/clock.h"
#include "lifecycle/execute/slurm/testing.h"
#include "tests/program.h"

namespace falaj::tests {
namespace {

namespace fs = std::filesystem;
using execute::slurm::TestCluster;

constexpr std::uint64_t kLookUs = 20'000;
// An attempt that Slurm has forgotten before it was seen to end is only taken for ended after a minute: another one
// must not run beside it. On a busy machine that happens.
constexpr sys::Micros kPatience = std::chrono::minutes(3);
constexpr auto kDeadline = std::chrono::seconds(8);
constexpr auto kAway = std::chrono::seconds(4);  // so long it takes to learn of some jobs that Slurm does not answer
constexpr const char* kQuick =
    "{apiVersion: falaj/v1, kind: Job, metadata: {name: quick}, spec: {queue: work, cpus: 0.1, memory: 64MiB, command: "
    "[\"true\"]}}";

constexpr std::string_view kResources = R"(
{apiVersion: falaj/v1, kind: Queue, metadata: {name: near}, spec: {}}
---
{apiVersion: falaj/v1, kind: Queue, metadata: {name: far}, spec: {executor: slurm, tenants: [there]}}
---
{apiVersion: falaj/v1, kind: Tenant, metadata: {name: here}, spec: {zones: [local]}}
---
{apiVersion: falaj/v1, kind: Tenant, metadata: {name: there}, spec: {zones: [local]}}
---
{apiVersion: falaj/v1, kind: Project, metadata: {name: p, tenant: here}, spec: {zone: local}}
---
{apiVersion: falaj/v1, kind: Project, metadata: {name: p, tenant: there}, spec: {zone: local}}
---
{apiVersion: falaj/v1, kind: Queue, metadata: {name: work, tenant: here}, spec: {parent: near}}
---
{apiVersion: falaj/v1, kind: Queue, metadata: {name: work, tenant: there}, spec: {parent: far}}
)";

// A job each, in the same words wherever it runs.
struct Written {
  std::string_view name, more, script;
};
constexpr Written kJobs[] = {
    {"succeeds", "", R"(echo hello; echo problem >&2; mkdir $FALAJ_OUTPUTS/d; echo 42 >$FALAJ_OUTPUTS/d/answer)"},
    {"fails", "", "echo before; exit 3"},
    {"fails-twice", ", retries: {max: 1, backoff: 100ms}", "echo try $FALAJ_ATTEMPT; exit 4"},
    {"dies", "", "echo before; kill -SEGV $$"},
    {"saves", "",
     R"([ -f $FALAJ_CHECKPOINT_DIR/step ] && echo from $(cat $FALAJ_CHECKPOINT_DIR/step) && exit 0;
        echo 7 >$FALAJ_CHECKPOINT_DIR/step; echo saved; exit 75)"},
    {"too-long", ", timeLimit: 1s, grace: 20s", "echo began; exec sleep 1000"},
    {"too-late", ", grace: 20s, deadline: DEADLINE", "echo began; exec sleep 1000"},
    {"cancelled", ", grace: 20s",
     R"(exec bash -c 'trap "echo told; exit 9" TERM; mkfifo f; echo began; while :; do read -t 0.05 <>f; done')"},
    {"missing", "", ""},
    {"knows", ", environment: {ODD: \"a 'b' $c\"}",
     R"(echo "$ODD"; env | sed -n 's/^\(FALAJ_[A-Z_]*\|MLFLOW_[A-Z_]*\|[A-Z_]*RANK\|WORLD_SIZE\|MASTER_[A-Z]*\)=.*/\1/p' |
        sort; [ "$FALAJ_TENANT" = here ] || [ "$FALAJ_TENANT" = there ])"},
    {"many", ", array: {count: 3}", "echo $FALAJ_ARRAY_INDEX of $FALAJ_ARRAY_COUNT | tee $FALAJ_OUTPUTS/index"},
    {"gang", ", tasks: 2", R"(exec python3 -c '
import os, socket, time
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    door = socket.create_server(place)
    print("0 of", os.environ["WORLD_SIZE"], "heard", door.accept()[0].recv(100).decode())
else:
    while True:
        try:
            socket.create_connection(place).send(b"1 of " + os.environ["WORLD_SIZE"].encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    print("1 spoke")
')"},
    {"gang-fails", ", tasks: 2, grace: 1s", "[ $RANK = 1 ] && exit 6; exec sleep 1000"},
};

std::string file_of_jobs(std::string_view deadline) {
  std::string out;
  for (const auto& job : kJobs) {
    std::string more(job.more);
    if (const auto at = more.find("DEADLINE"); at != more.npos)
      more.replace(at, std::string_view("DEADLINE").size(), fmt::format("\"{}\"", deadline));
    const auto command =
        job.script.empty() ? json::array{"/no/such/program"} : json::array{"sh", "-c", std::string(job.script)};
    out += fmt::format(
        "---\n{{apiVersion: falaj/v1, kind: Job, metadata: {{name: {}}}, spec: {{queue: work, cpus: 0.1, memory: "
        "64MiB{}, command: {}}}}}\n",
        job.name, more, json::serialize(command));
  }
  return out;
}

class Drill {
 public:
  explicit Drill(std::string binary) {
    std::string pattern = (fs::temp_directory_path() / "falaj-slurm-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw Error(Code::unavailable, "no temporary directory");
    directory_ = pattern;
    auto settings = cluster_.settings("rest");
    settings.directory = directory_ + "/shared";
    std::ofstream(directory_ + "/falaj.yaml")
        << json::serialize(json::object{{"log_level", "warn"},
                                        {"jobs", {{"cpus", 16}, {"memory_bytes", "16GiB"}}},
                                        {"rates", {{"calls_per_second", 100'000}}},
                                        {"slurm", encode(settings)}});
    program_ = std::make_unique<Program>(std::move(binary), directory_ + "/data", directory_ + "/log",
                                         std::vector<std::string>{"--config", directory_ + "/falaj.yaml"});
    call([](client::ApiClient& api) {
      api.post("/v1/apply", {{"sources", {{{"file", "resources"}, {"text", kResources}}}}});
    });
  }
  ~Drill() {
    program_.reset();
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }

  void run() {
    const auto began = clock_.now();
    const auto deadline = format_time((clock_.wall() + kDeadline).count());
    const auto text = file_of_jobs(deadline);
    const auto here = submit("here", text), there = submit("there", text);
    // Beside them, what will see a node, the controller and the server die.
    const auto steady = submit_one("steady",
                                   "echo began; until [ -e $FALAJ_CHECKPOINT_DIR/go ]; do sleep 0.05; done; "
                                   "echo $FALAJ_ATTEMPT ended; exit 5",
                                   1);
    const auto bereft = submit_one("bereft",
                                   "cd $FALAJ_CHECKPOINT_DIR; echo $FALAJ_ATTEMPT >>tries; "
                                   "[ $FALAJ_ATTEMPT = 1 ] && exec sleep 1000; cat tries",
                                   8);
    for (const auto* tenant : {"here", "there"}) {
      const auto& id = (*tenant == 'h' ? here : there).at("cancelled").front();
      await_log(tenant, id, "began\n");
      call([&](client::ApiClient& api) { api.post(path(id) + "/cancel", json::object{}, project(tenant)); });
    }
    const auto picky = submit_one("picky", "echo picky", 1, {{"labels", {{"slurm.feature/fake", "true"}}}});
    lose_a_node(bereft);
    const auto compared = compare(here, there);
    const auto alike_s = seconds_since(began);
    await("there", picky, "its end", is_over);
    must(!nodes_named(picky).empty(), "a job that asks for labels was handed over without nodes");
    must(nodes_named(steady).empty(), "Falaj placed what Slurm should: " + nodes_named(steady));
    lose_the_controller(steady);
    must_be(job("there", bereft), {{"phase", "succeeded"}, {"attempts", 2}, {"nodes_lost", nullptr}});
    must(log("there", bereft, 2, 0) == "1\n2\n",
         "what it saved before its node died was not there: " + log("there", bereft, 2, 0));
    fmt::print(
        "result {} jobs of one file alike here and on Slurm in {:.1f} s: ends, reasons, attempts, runs, logs, files; "
        "a node, the controller and the server died, {:.1f} s in all\n",
        compared, alike_s, seconds_since(began));
  }

 private:
  using Submitted = std::map<std::string, std::vector<std::string>>;  // ids by name

  static client::Query project(const std::string& tenant) { return {{"scope", "/t/" + tenant + "/p/p"}}; }
  static std::string path(const std::string& id) { return "/v1/jobs/" + id; }
  double seconds_since(sys::Micros then) const { return static_cast<double>((clock_.now() - then).count()) / 1e6; }
  static void must(bool holds, const std::string& what) {
    if (!holds) throw Error(Code::corrupt, what);
  }
  static void must_be(const json::value& job, const json::object& wanted) {
    for (const auto& member : wanted) {
      const auto* found = job.as_object().if_contains(member.key());
      must(member.value().is_null() ? !found : found && *found == member.value(),
           fmt::format("{} should be {}: {}", std::string_view(member.key()), json::serialize(member.value()),
                       json::serialize(job)));
    }
  }
  void call(const std::function<void(client::ApiClient&)>& work) {
    client::ApiClient api({program_->url(), program_->token(), "", ""});
    work(api);
  }
  json::value get(const std::string& what, client::Query query) {
    json::value out;
    call([&](client::ApiClient& api) { out = api.get(what, query); });
    return out;
  }
  json::value job(const std::string& tenant, const std::string& id) { return get(path(id), project(tenant)); }
  std::string log(const std::string& tenant, const std::string& id, std::int64_t attempt, std::int64_t rank) {
    auto query = project(tenant);
    query.emplace_back("attempt", std::to_string(attempt));
    query.emplace_back("rank", std::to_string(rank));
    return std::string(get(path(id) + "/logs", query).at("text").as_string());
  }

  std::string metrics() {
    std::string out;
    call([&](client::ApiClient& api) {
      api.download(
          net::Method::get, "/metrics", {}, nullptr, [](auto) {}, [&](BytesView piece) { out += as_text(piece); });
    });
    return out;
  }

  Submitted submit(const std::string& tenant, const std::string& text) {
    json::value answer;
    call([&](client::ApiClient& api) {
      answer = api.post("/v1/jobs", {{"sources", {{{"file", "jobs"}, {"text", text}}}}}, project(tenant));
    });
    Submitted out;
    for (const auto& made : answer.at("jobs").as_array()) {
      auto& ids = out[std::string(made.at("name").as_string())];
      ids.emplace_back(made.at("id").as_string());
      const auto* array = made.as_object().if_contains("array");
      if (!array || array->is_null()) continue;
      auto query = project(tenant);
      query.emplace_back("array", std::string(array->as_string()));
      std::map<std::int64_t, std::string> members;
      const auto page = get("/v1/jobs", query);
      for (const auto& member : page.at("items").as_array())
        members[member.at("array_index").as_int64()] = member.at("id").as_string();
      ids.clear();
      for (const auto& [index, id] : members) ids.push_back(id);
    }
    return out;
  }
  std::string submit_one(const std::string& name, const std::string& script, int cpus, const json::object& nodes = {}) {
    json::value answer;
    const json::object spec{{"command", {"sh", "-c", script}},
                            {"queue", "work"},
                            {"cpus", cpus},
                            {"memory", "64MiB"},
                            {"grace", "1s"},
                            {"nodes", nodes}};
    call([&](client::ApiClient& api) {
      answer = api.post("/v1/jobs", {{"jobs", {{{"name", name}, {"spec", spec}}}}}, project("there"));
    });
    return std::string(answer.at("jobs").at(0).at("id").as_string());
  }

  template <class F>
  void await(const std::string& tenant, const std::string& id, std::string_view what, F holds) {
    for (const auto until = clock_.now() + kPatience; clock_.now() < until; pause(kLookUs))
      if (holds(job(tenant, id))) return;
    throw Error(Code::deadline, fmt::format("{} never came: {}\n{}", what, json::serialize(job(tenant, id)),
                                            read_text(directory_ + "/log")));
  }
  static bool is_over(const json::value& job) {
    const std::string_view phase = job.at("phase").as_string();
    return phase == "succeeded" || phase == "failed" || phase == "cancelled";
  }
  void await_log(const std::string& tenant, const std::string& id, const std::string& text) {
    await(tenant, id, "its first words", [&](const json::value& job) {
      return job.at("attempts").as_int64() > 0 && log(tenant, id, 0, 0).find(text) != std::string::npos &&
             job.at("phase").as_string() == "running";
    });
  }

  // Everything that should not depend on where it ran.
  json::object told_of(const std::string& tenant, const std::string& id) {
    await(tenant, id, "its end", is_over);
    const auto ended = job(tenant, id);
    json::object out;
    for (const auto* key : {"name", "phase", "why", "reason", "exit_code", "signal", "attempts", "failures",
                            "preemptions", "tasks", "array_index"})
      if (const auto* value = ended.as_object().if_contains(key)) out[key] = *value;
    auto& logs = out["logs"].emplace_object();
    for (std::int64_t attempt = 1; attempt <= ended.at("attempts").as_int64(); ++attempt)
      for (std::int64_t rank = 0; rank < ended.at("tasks").as_int64(); ++rank)
        logs[fmt::format("{}.{}", attempt, rank)] = log(tenant, id, attempt, rank);
    const std::string run_id(ended.at("run_id").as_string());
    const auto run = get("/v1/runs/" + run_id, project(tenant));
    for (const auto* key : {"name", "status"}) out[fmt::format("run_{}", key)] = run.at(key);
    for (const auto* tag : {"falaj.exit", "falaj.reason"}) out[tag] = run.at("tags").at(tag);
    auto& files = out["files"].emplace_object();
    auto query = project(tenant);
    query.emplace_back("prefix", "@run/" + run_id + "/");
    const auto blobs = get("/v1/blobs", query);
    for (const auto& blob : blobs.at("items").as_array()) {
      const std::string name(blob.at("name").as_string());
      std::string content;
      auto one = project(tenant);
      one.emplace_back("name", name);
      call([&](client::ApiClient& api) {
        api.download(
            net::Method::get, "/v1/blobs/content", one, nullptr, [](auto) {},
            [&](BytesView piece) { content += as_text(piece); });
      });
      files[name.substr(name.find(run_id) + run_id.size())] = content;
    }
    return out;
  }

  std::size_t compare(const Submitted& here, const Submitted& there) {
    std::size_t compared = 0;
    for (const auto& [name, ids] : here)
      for (std::size_t i = 0; i < ids.size(); ++i, ++compared) {
        auto on_this = told_of("here", ids[i]), on_slurm = told_of("there", there.at(name).at(i));
        must(job("there", there.at(name).at(i)).at("executor").as_string() == "slurm", "it did not run on Slurm");
        if (name == "missing")
          on_this.erase("why"), on_slurm.erase("why");  // each says in its own words what is not there
        must(on_this == on_slurm, fmt::format("{} differs:\n  here  {}\n  Slurm {}", name, json::serialize(on_this),
                                              json::serialize(on_slurm)));
        must(name != "gang" || job("there", there.at(name).at(i)).at("cpu_us").as_int64() > 0,
             "it took no time at all");
        must(name != "succeeds" || on_slurm.at("files").as_object().contains("/d/answer"), "what it left was not kept");
        if (::getenv("VERBOSE")) fmt::print("{}\n", json::serialize(on_slurm));
      }
    return compared;
  }

  // In the hand-over, not where it runs.
  std::string nodes_named(const std::string& id) {
    const auto text = cluster_.run({"squeue", "--noheader", "--states=all", "--name=" + id + ".1", "--format=%n"});
    return std::string(trim(text));
  }

  void lose_a_node(const std::string& id) {
    await("there", id, "running", [](const json::value& job) { return job.at("phase").as_string() == "running"; });
    const auto node = std::string(
        trim(cluster_.run({"squeue", "--noheader", "--states=running", "--name=" + id + ".1", "--format=%N"})));
    must(!node.empty(), "Slurm does not know the job by its name");
    cluster_.kill(node);
    // Slurm notices by itself after half a minute; a site's health check, which this stands for, is faster.
    cluster_.run({"scontrol", "update", "nodename=" + node, "state=down", "reason=killed"});
    await("there", id, "another attempt", [](const json::value& job) { return job.at("attempts").as_int64() == 2; });
  }

  void lose_the_controller(const std::string& steady) {
    await_log("there", steady, "began\n");
    cluster_.await_saved();
    cluster_.kill("slurmctld");
    for (int i = 0; i < 8; ++i) submit_one("waits", "true", 1);  // more than there are threads to start them
    const auto late = submit_one("late", "echo late", 1);
    await("there", late, "starting", [](const json::value& job) { return job.at("phase").as_string() == "starting"; });
    const auto nearby = clock_.now();  // what waits for Slurm keeps nobody here waiting
    const auto quick = submit("here", kQuick).at("quick").front();
    await("here", quick, "its end", is_over);
    must(clock_.now() - nearby < kAway,
         fmt::format("a job here took {:.1f} s while Slurm was away", seconds_since(nearby)));
    await("there", late, "word that Slurm is away", [&](const json::value&) {
      return metrics().find("falaj_jobs_executor_up{executor=\"slurm\"} 0") != std::string::npos;
    });
    program_->kill();
    std::ofstream(fmt::format("{}/shared/jobs/{}/checkpoint/go", directory_, steady)) << "go\n";
    program_->start();
    cluster_.start({"slurmctld"});
    await("there", steady, "its end", is_over);
    must_be(job("there", steady), {{"phase", "failed"}, {"attempts", 1}, {"exit_code", 5}});
    must(log("there", steady, 1, 0) == "began\n1 ended\n", "its log: " + log("there", steady, 1, 0));
    await("there", late, "its end", is_over);
    must_be(job("there", late), {{"phase", "succeeded"}, {"attempts", 1}});
    must(log("there", late, 1, 0) == "late\n", "its log: " + log("there", late, 1, 0));
  }

  const sys::RealClock clock_;
  TestCluster cluster_{TestCluster::Groups::no, TestCluster::kLittlePatience_s};
  std::string directory_;
  std::unique_ptr<Program> program_;
};

}  // namespace
}  // namespace falaj::tests

int main(int argc, char** argv) {
  using namespace falaj;
  try {
    if (argc != 2) throw Error(Code::invalid, "slurm_drill FALAJ_BINARY");
    tests::Drill(argv[1]).run();
    return 0;
  } catch (const std::exception& e) {
    fmt::print("result failed: {}\n", e.what());
    return 1;
  }
}
