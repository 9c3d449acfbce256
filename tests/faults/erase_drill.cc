// SPDX-License-Identifier: Apache-2.0
// erase_drill [--engine sqlite|postgresql] [--store lmdb|redis] [--subjects N] [--kills N] FALAJ_BINARY
//
// People with canaries in their rows, some of which were pushed; a training set, runs and models made of them, and
// features of each online. All but a few are erased, one by one, while the server is killed with -9 now and then. After
// each erasure nothing of the person is online, and everybody else is. In the end: what each erasure said was made of
// the rows is exactly what was; no byte below the data directory holds a canary of theirs, nor does any object that the
// keys still open, named or not, nor any row of the online store; everybody else's rows are all there.

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "apps/falaj/control_plane.h"
#include "foundation/base/mutex.h"
#include "foundation/base/text.h"
#include "foundation/client/api_client.h"
#include "foundation/sys/random.h"
#include "lifecycle/features/online.h"
#include "storage/online/testing.h"
#include "storage/sql/testing.h"
#include "storage/table/testing.h"
#include "tests/program.h"

namespace falaj::tests {
namespace {

namespace fs = std::filesystem;

const client::Query kScope{{"scope", "/t/default/p/default"}};
constexpr std::string_view kMark = "cnry-";  // every canary begins so, and 16 digits follow
constexpr std::size_t kCanaryBytes = 21;
constexpr std::string_view kResources = R"(
apiVersion: falaj/v1
kind: Dataset
metadata: {tenant: default, project: default, name: visits}
spec: {columns: [{name: person, type: text}, {name: at, type: timestamp}, {name: note, type: text}, {name: n, type: int64}], time: at, partition: day, personal: {subjectKey: person, purpose: drill, basis: consent}}
---
apiVersion: falaj/v1
kind: Dataset
metadata: {tenant: default, project: default, name: plain}
spec: {columns: [{name: n, type: int64}]}
---
apiVersion: falaj/v1
kind: Entity
metadata: {tenant: default, project: default, name: person}
spec: {key: [{name: person, type: text}]}
---
apiVersion: falaj/v1
kind: FeatureView
metadata: {tenant: default, project: default, name: habits}
spec: {entity: person, dataset: visits, time: at, tile: 1h, features: [{name: last_note, column: note}], aggregates: [{name: visits_1d, aggregate: count, window: 1d}]}
---
apiVersion: falaj/v1
kind: FeatureService
metadata: {tenant: default, project: default, name: all}
spec: {features: ["habits:*"]}
)";

#define EXPECT(condition, ...) \
  if (!(condition)) throw Error(Code::internal, fmt::format(__VA_ARGS__))

// All canaries in some bytes.
std::set<std::string> canaries_in(std::string_view bytes) {
  std::set<std::string> out;
  for (auto at = bytes.find(kMark); at != std::string_view::npos; at = bytes.find(kMark, at + 1))
    out.insert(std::string(bytes.substr(at, kCanaryBytes)));
  return out;
}

class Drill {
 public:
  Drill(std::string binary, bool postgresql, bool redis, int subjects, int kills, std::uint64_t seed)
      : binary_(std::move(binary)), postgresql_(postgresql), subjects_(subjects), kills_(kills), random_(seed) {
    char path[] = "/tmp/falaj-erase-XXXXXX";
    directory_ = ::mkdtemp(path);
    std::vector<std::string> arguments{"--set", "rates.calls_per_second=1000000"};
    if (postgresql_) {
      std::ofstream(directory_ + "/conninfo") << sql::PostgresqlServer::shared().make_database();
      arguments.insert(arguments.end(), {"--set", "database.postgresql=file:" + directory_ + "/conninfo"});
    }
    if (redis) {
      redis_.emplace(online::RedisServer::Keeps::every_write);
      arguments.insert(arguments.end(), {"--set", "online.redis_socket=" + redis_socket()});
    }
    program_.emplace(binary_, data(), directory_ + "/log", arguments);
    connect();
  }
  ~Drill() {
    program_.reset();
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }

  void run() {
    plant();
    check_online(0);
    if (!postgresql_) EXPECT(!raw_scan().empty(), "the scan finds no canary before anything is erased");
    for (int i = 0; i < subjects_; ++i) erase(i);
    const auto again = finish(begin(0));
    EXPECT(again.at("report").at("datasets").as_array().empty(), "a second erasure finds something");
    check_rest();
    program_->stop();
    std::set<std::string> erased;
    for (int i = 0; i < subjects_; ++i) erased.insert({person(i), note(i)});
    for (const auto& found : raw_scan())
      EXPECT(!erased.contains(found), "{} is in a file below the data directory", found);
    const auto readable = read_objects();
    for (const auto& found : readable) EXPECT(!erased.contains(found), "{} can still be read", found);
    for (int i = subjects_; i < everybody(); ++i)
      EXPECT(readable.contains(note(i)), "the scan of objects does not find what is there: {}", note(i));
    check_store(erased);
  }
  int killed() const { return killed_; }

 private:
  std::string data() const { return directory_ + "/data"; }
  int everybody() const { return subjects_ + subjects_ / 4; }
  int early() const { return subjects_ * 3 / 4; }  // so many are in the first version already; others are pushed
  std::string redis_socket() const { return redis_->options().unix_socket; }
  std::string person(int i) const {
    return fmt::format("{}{:08x}{:08x}", kMark, 0x0e11a000U, static_cast<unsigned>(i));
  }
  std::string note(int i) const { return fmt::format("{}{:08x}{:08x}", kMark, 0x0ade0000U, static_cast<unsigned>(i)); }

  void connect() { api_.emplace(client::Target{program_->url(), program_->token(), "", ""}); }

  json::value mlflow(const std::string& call, const json::value& body) {
    return api_->post("/mlflow/default/default/api/2.0/mlflow/" + call, body);
  }

  json::value ingest(const std::string& dataset, const std::string& csv) {
    const auto path = fmt::format("/v1/datasets/{}/uploads", dataset);
    const std::string id(api_->post(path, json::object{}, kScope).at("id").as_string());
    bool sent = false;
    const auto body = [&]() -> Bytes {
      if (std::exchange(sent, true)) return {};
      const auto bytes = as_bytes(csv);
      return {bytes.begin(), bytes.end()};
    };
    api_->upload(fmt::format("{}/{}/parts/0", path, id), kScope, body, csv.size(), net::Method::put);
    return api_->post(fmt::format("{}/{}/finish", path, id), {{"format", "csv"}, {"source", "drill"}}, kScope);
  }
  std::string rows(int from, int to) const {
    std::string out = "person,at,note,n\n";
    for (int i = from; i < to; ++i)
      for (int visit = 0; visit < 3; ++visit)
        out += fmt::format("{},{},{},{}\n", person(i), day_of(i, visit), note(i), visit);
    return out;
  }
  static std::string day_of(int i, int visit) {
    return fmt::format("2001-01-{:02}T10:00:00Z", 1 + (i + visit * 7) % 20);
  }
  void push(int from, int to) {
    json::array rows;
    for (int i = from; i < to; ++i)
      for (int visit = 0; visit < 3; ++visit)
        rows.push_back(json::object{{"person", person(i)}, {"at", day_of(i, visit)}, {"note", note(i)}, {"n", visit}});
    api_->post("/v1/features/push", {{"dataset", "visits"}, {"rows", std::move(rows)}}, kScope);
  }
  std::string run_with(const json::value& version) {
    const std::string id(mlflow("runs/create", {{"experiment_id", "0"}}).at("run").at("info").at("run_id").as_string());
    const json::object dataset{{"name", version.at("dataset")},
                               {"digest", std::string(version.at("id").as_string()).substr(0, 32)},
                               {"source_type", "falaj"},
                               {"source", "falaj"}};
    mlflow("runs/log-inputs", {{"run_id", id}, {"datasets", json::array{json::object{{"dataset", dataset}}}}});
    return id;
  }
  void model_of(const std::string& run, const std::string& name) {
    mlflow("registered-models/create", {{"name", name}});
    mlflow("model-versions/create", {{"name", name}, {"source", "runs:/" + run + "/model"}, {"run_id", run}});
  }
  json::value train_set() {
    const auto made =
        api_->post("/v1/features/train-set", {{"service", "all"}, {"spine", "visits"}, {"into", "train"}}, kScope);
    return api_->get(fmt::format("/v1/datasets/train/versions/{}", made.at("version").as_int64()), kScope);
  }

  void plant() {
    api_->post("/v1/apply",
               {{"sources", json::array{{{"file", "drill.yaml"}, {"text", kResources}}}}, {"dry_run", false}});
    const auto first = ingest("visits", rows(0, early()));
    first_train_ = train_set();
    api_->post("/v1/features/materialize", {{"view", "habits"}}, kScope);
    push(early(), everybody());
    check_online(0);
    api_->post("/v1/features/flush", {{"dataset", "visits"}}, kScope);
    second_train_ = train_set();
    early_run_ = run_with(first);
    early_train_run_ = run_with(first_train_);
    late_run_ = run_with(second_train_);
    model_of(late_run_, "late");
    model_of(early_train_run_, "early");
    const auto other = run_with(ingest("plain", "n\n1\n"));
    model_of(other, "other");
  }

  std::string begin(int i) {
    return std::string(api_->post("/v1/erasures", {{"subject", person(i)}}, kScope).at("id").as_string());
  }
  json::value finish(const std::string& id) {
    return api_->post(fmt::format("/v1/erasures/{}/finish", id), json::object{}, kScope);
  }

  void erase(int i) {
    if (i % 4 == 0) {  // what was pushed last is in no version yet
      push(i, i + 1);
      ++newest_["visits"];
    }
    const auto id = begin(i);
    if (killed_ < kills_ && i % std::max(1, subjects_ / std::max(1, kills_)) == 0) {
      ++killed_;
      const client::Target target{program_->url(), program_->token(), "", ""};
      std::jthread asked([&] {
        try {
          client::ApiClient(target, 1).post(fmt::format("/v1/erasures/{}/finish", id), json::object{}, kScope);
        } catch (const Error&) {  // the server is killed meanwhile
        }
      });
      pause(random_.below(250'000));
      program_->kill();
      asked.join();
      program_->start();
      connect();
      // Half of the time nobody asks again: the server goes on by itself.
      while (killed_ % 2 == 0 && !is_done(id)) pause(100'000);
    }
    check(i, finish(id));
    check_online(i + 1);
  }
  bool is_done(const std::string& id) {
    return api_->get(fmt::format("/v1/erasures/{}", id), kScope).at("state").as_string() == "done";
  }

  static std::set<std::string> names(const json::value& list) {
    std::set<std::string> out;
    for (const auto& name : list.as_array()) out.insert(std::string(name.as_string()));
    return out;
  }
  void check(int i, const json::value& erased) {
    const auto& report = erased.at("report");
    EXPECT(erased.at("state").as_string() == "done", "erasure of {} is {}", i,
           std::string_view(erased.at("state").as_string()));
    std::set<std::string> runs{late_run_}, models{"late/1"};
    if (i < early()) {
      runs.insert({early_run_, early_train_run_});
      models.insert("early/1");
    }
    EXPECT(names(report.at("runs")) == runs, "runs made of the rows of {} are not those listed: {}", i,
           json::serialize(report));
    EXPECT(names(report.at("models")) == models, "models made of the rows of {} are not those listed: {}", i,
           json::serialize(report));
    EXPECT(report.at("versions").as_array().empty(), "versions without such rows are listed: {}",
           json::serialize(report));
    EXPECT(report.at("datasets").as_array().size() == 2, "not two datasets had rows of {}: {}", i,
           json::serialize(report));
    for (const auto& one : report.at("datasets").as_array()) {
      std::set<std::int64_t> held;
      for (const auto& number : one.at("held").as_array()) held.insert(number.as_int64());
      // The two that were made, but the first only if it had them; and each that a push or an erasure before left.
      std::set<std::int64_t> expected;
      auto& newest = newest_[std::string(one.at("dataset").as_string())];
      for (std::int64_t n = i < early() ? 1 : 2; n <= newest; ++n) expected.insert(n);
      ++newest;
      EXPECT(held == expected, "versions that had rows of {} are not those listed: {}", i, json::serialize(report));
    }
  }

  // Of the first `gone` nothing is known, of everybody else all.
  void check_online(int gone) {
    json::array people;
    for (int i = 0; i < everybody(); ++i) people.emplace_back(person(i));
    const auto answer = api_->post(
        "/v1/features/get",
        {{"features", {"habits:last_note"}}, {"entities", json::object{{"person", std::move(people)}}}}, kScope);
    const auto& column = answer.at("columns").at(0);
    for (int i = 0; i < everybody(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto& value = column.at("values").as_array()[at];
      const std::string_view status(column.at("statuses").as_array()[at].as_string());
      const bool right = i < gone ? value.is_null() && status == "missing" : value == json::value(note(i));
      EXPECT(right, "after {} erasures {} is {} online: {}", gone, i, status, json::serialize(value));
    }
  }

  void check_rest() {
    for (const std::string dataset : {"visits", "train"}) {
      const auto sql = fmt::format("SELECT count(*), count(DISTINCT person), count(DISTINCT note) FROM {}", dataset);
      const auto row = api_->post("/v1/datasets/sql", {{"sql", sql}}, kScope).at("rows").at(0);
      const std::int64_t left = everybody() - subjects_;
      EXPECT(row.at(0).as_int64() == 3 * left && row.at(1).as_int64() == left && row.at(2).as_int64() == left,
             "rows of others are not all in {}: {}", dataset, json::serialize(row));
    }
    const auto verified = api_->post("/v1/audit/verify", json::object{});
    EXPECT(verified.at("intact").as_bool(), "the audit log does not verify");
  }

  std::set<std::string> raw_scan() const {
    std::set<std::string> out;
    std::vector<std::string> roots{data()};
    if (redis_) roots.push_back(fs::path(redis_socket()).parent_path());
    for (const auto& root : roots)
      for (const auto& entry : fs::recursive_directory_iterator(root)) {
        if (!entry.is_regular_file()) continue;
        std::ifstream in(entry.path(), std::ios::binary);
        std::stringstream all;
        all << in.rdbuf();
        for (auto& found : canaries_in(all.str())) out.insert(found);
      }
    const auto log = read_text(directory_ + "/log");
    for (auto& found : canaries_in(log)) out.insert(found);
    return out;
  }

  app::Settings settings() const {
    app::Settings settings;
    settings.data = data();
    if (postgresql_) settings.database.postgresql = "file:" + directory_ + "/conninfo";
    if (redis_) settings.online.redis_socket = redis_socket();
    return settings;
  }

  // What whoever has the keys could still read, from the store itself: names do not matter.
  std::set<std::string> read_objects() const {
    app::ControlPlane plane(settings(), {}, {});
    auto& vault = plane.platform().vault;
    std::set<std::string> out;
    const TenantName tenant{"default"};
    for (const auto& zone : vault.totals().zones) {
      auto& store = vault.store(ZoneName::parse(zone));
      for (const auto& object : store.list(tenant, std::nullopt, 1'000'000)) {
        const auto bytes = store.get({tenant, ZoneName::parse(zone), nullptr}, object.address)->read_all();
        for (auto& found : canaries_in(as_text(bytes))) out.insert(found);
        if (as_text(bytes).starts_with("PAR1"))
          for (auto& found : canaries_in(table::parquet_text(*plane.platform().datasets.room(), bytes)))
            out.insert(found);
      }
      EXPECT(store.scrub(tenant).damaged.empty(), "the store is damaged");
    }
    return out;
  }

  // Every row of the online store, opened: one for each who is left, in the one generation that is read.
  void check_store(const std::set<std::string>& erased) const {
    app::ControlPlane plane(settings(), {}, {});
    auto& views = plane.platform().online.views();
    std::set<std::string> found;
    int rows = 0;
    const auto snapshot = views.store().snapshot();
    for (const auto& view : views.list(std::nullopt))
      for (std::int64_t generation = 1; generation <= view.generations; ++generation)
        snapshot->each(*views.space(view.meaning, generation), [&](const auto&, const online::Row& row) {
          ++rows;
          for (auto& canary : canaries_in(as_text(row.payload))) found.insert(canary);
          return true;
        });
    EXPECT(rows == everybody() - subjects_, "{} rows are online, of {} people", rows, everybody() - subjects_);
    for (const auto& canary : found) EXPECT(!erased.contains(canary), "{} is in the online store", canary);
    for (int i = subjects_; i < everybody(); ++i)
      EXPECT(found.contains(note(i)), "the scan of the online store does not find what is there: {}", note(i));
  }

  const std::string binary_;
  const bool postgresql_;
  const int subjects_, kills_;
  int killed_ = 0;
  sys::SimRandom random_;
  std::string directory_;
  std::optional<online::RedisServer> redis_;
  std::optional<Program> program_;
  std::optional<client::ApiClient> api_;
  json::value first_train_, second_train_;
  std::string early_run_, early_train_run_, late_run_;
  std::map<std::string, std::int64_t> newest_{{"visits", 2}, {"train", 2}};  // versions
};

}  // namespace
}  // namespace falaj::tests

int main(int argc, char** argv) {
  using namespace falaj;
  std::string engine = "sqlite", store = "lmdb", binary;
  std::int64_t subjects = 200, kills = 10;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--engine" && i + 1 < argc)
      engine = argv[++i];
    else if (word == "--store" && i + 1 < argc)
      store = argv[++i];
    else if (word == "--subjects" && i + 1 < argc)
      subjects = parse_int(argv[++i]).value_or(subjects);
    else if (word == "--kills" && i + 1 < argc)
      kills = parse_int(argv[++i]).value_or(kills);
    else
      binary = word;
  }
  sys::RealRandom real;
  const std::uint64_t seed = real.next();
  try {
    tests::Drill drill(binary, engine == "postgresql", store == "redis", static_cast<int>(subjects),
                       static_cast<int>(kills), seed);
    drill.run();
    fmt::print("result {}, {}: seed {}, {} people erased, {} kills; descendants exact, no canary left, others whole\n",
               engine, store, seed, subjects, drill.killed());
    return 0;
  } catch (const std::exception& e) {
    fmt::print("result {}, {}: seed {}: {}\n", engine, store, seed, e.what());
    return 1;
  }
}
