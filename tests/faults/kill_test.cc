// SPDX-License-Identifier: Apache-2.0
// kill_test --engine sqlite|postgresql --kills N FALAJ_BINARY
//
// Concurrent writers declare resources; the server (and on PostgreSQL, every third time, the database server too) is
// killed with -9 at random moments. After each restart: every write that was acknowledged is there, everything that is
// there has its audit record, and the audit log verifies. A new platform is begun every so often, so that the cost of
// verifying does not grow with the number of kills.

#include <stdlib.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "foundation/base/mutex.h"
#include "foundation/base/text.h"
#include "foundation/client/api_client.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "storage/sql/testing.h"
#include "tests/program.h"

namespace falaj::tests {
namespace {

namespace fs = std::filesystem;

constexpr int kWriters = 32;
constexpr int kKillsPerPlatform = 50;
constexpr std::uint64_t kRunMinUs = 5'000, kRunSpreadUs = 120'000;  // how long writers run before a kill

struct Totals {
  std::int64_t kills = 0, server_kills = 0, acknowledged = 0, refused = 0, present = 0, audit_records = 0;
};

std::string manifest(const std::string& name) {
  return fmt::format(
      "apiVersion: falaj/v1\nkind: Role\nmetadata: {{name: {}}}\nspec: {{rules: [{{effect: allow, actions: "
      "[blob.read]}}]}}\n",
      name);
}

// The names that the server acknowledged, from all writers.
class Acknowledged {
 public:
  void add(const std::string& name) {
    Lock lock(mu_);
    names_.insert(name);
  }
  std::set<std::string> all() const {
    Lock lock(mu_);
    return names_;
  }

 private:
  mutable Mutex mu_;
  std::set<std::string> names_ GUARDED_BY(mu_);
};

void write_until(const std::atomic<bool>& stop, const client::Target& target, const std::string& prefix,
                 Acknowledged& acknowledged, std::atomic<std::int64_t>& refused) {
  client::ApiClient api(target, 1);
  for (int i = 0; !stop; ++i) {
    const std::string name = fmt::format("{}-{}", prefix, i);
    try {
      api.post("/v1/apply", {{"sources", {{{"file", "w"}, {"text", manifest(name)}}}}});
      acknowledged.add(name);
    } catch (const Error& e) {
      ++refused;                                  // killed in the middle: it may or may not be there
      if (e.code() == Code::unavailable) return;  // a writer that goes on asking would only take the processor
    }
  }
}

std::set<std::string> present_roles(client::ApiClient& api) {
  std::set<std::string> names;
  client::Query query{{"limit", "1000"}};
  for (;;) {
    const auto page = api.get("/v1/resources/role", query);
    for (const auto& item : page.at("items").as_array()) names.emplace(item.at("metadata").at("name").as_string());
    const auto* next = page.as_object().if_contains("next");
    if (!next || next->is_null()) return names;
    query = {{"limit", "1000"}, {"cursor", std::string(next->as_string())}};
  }
}

std::set<std::string> audited_roles(client::ApiClient& api) {
  std::string text;
  api.download(
      net::Method::get, "/v1/audit/export", {}, nullptr, [](auto) {}, [&](BytesView piece) { text += as_text(piece); });
  std::set<std::string> names;
  for (const auto line : split(text, '\n')) {
    if (line.empty()) continue;
    const auto record = parse_json(line);
    for (const auto& effect : record.at("effects").as_array()) {
      const std::string_view resource = effect.at("resource").as_string();
      if (resource.starts_with("/role/")) names.emplace(resource.substr(6));
    }
  }
  return names;
}

std::optional<std::string> check(const client::Target& target, const std::set<std::string>& acknowledged,
                                 Totals& totals) {
  client::ApiClient api(target);
  const auto present = present_roles(api);
  for (const auto& name : acknowledged)
    if (!present.contains(name)) return fmt::format("acknowledged, but lost: {}", name);
  const auto audited = audited_roles(api);
  for (const auto& name : present)
    if (!audited.contains(name)) return fmt::format("there, but without an audit record: {}", name);
  const auto verdict = api.post("/v1/audit/verify", json::object{});
  if (!verdict.at("intact").as_bool()) return fmt::format("audit verify: {}", json::serialize(verdict));
  totals.present = static_cast<std::int64_t>(present.size());
  totals.audit_records = verdict.at("records").as_int64();
  return std::nullopt;
}

client::Target target_of(const Program& program) {
  client::Target target;
  target.url = program.url();
  target.token = program.token();
  return target;
}

class Experiment {
 public:
  Experiment(std::string binary, bool postgresql, std::uint64_t seed)
      : binary_(std::move(binary)), postgresql_(postgresql), random_(seed) {
    std::string pattern = (fs::temp_directory_path() / "falaj-kill-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw Error(Code::unavailable, "no temporary directory");
    directory_ = pattern;
  }
  ~Experiment() {
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }

  // What was lost, or nothing.
  std::optional<std::string> run(std::int64_t kills, Totals& totals) {
    for (int platform = 0; totals.kills < kills; ++platform)
      if (auto wrong = run_platform(platform, std::min<std::int64_t>(kills, totals.kills + kKillsPerPlatform), totals))
        return wrong;
    return std::nullopt;
  }

 private:
  std::optional<std::string> run_platform(int number, std::int64_t kills, Totals& totals) {
    const std::string data = fmt::format("{}/{}", directory_, number);
    std::vector<std::string> arguments{"--set", "log_level=error", "--set", "rates.calls_per_second=1000000",
                                       "--set", "http.workers=64"};
    sql::PostgresqlServer* server = postgresql_ ? &sql::PostgresqlServer::shared() : nullptr;
    if (server)
      arguments.insert(arguments.end(),
                       {"--set", "database.postgresql=file:" + conninfo_file(server->make_database(), number)});
    Program program(binary_, data, data + ".log", arguments);
    Acknowledged acknowledged;
    for (int round = 0; totals.kills < kills; ++round) {
      run_round(program, server, fmt::format("k{}-{}", number, round), acknowledged, totals);
      const auto known = acknowledged.all();
      if (auto wrong = check(target_of(program), known, totals)) return wrong;
    }
    totals.acknowledged += static_cast<std::int64_t>(acknowledged.all().size());
    return std::nullopt;
  }

  void run_round(Program& program, sql::PostgresqlServer* server, const std::string& prefix, Acknowledged& acknowledged,
                 Totals& totals) {
    std::atomic<bool> stop{false};
    std::atomic<std::int64_t> refused{0};
    const client::Target target = target_of(program);
    {
      std::vector<std::jthread> writers;
      for (int w = 0; w < kWriters; ++w)
        writers.emplace_back(
            [&, w] { write_until(stop, target, fmt::format("{}-{}", prefix, w), acknowledged, refused); });
      pause(kRunMinUs + random_.below(kRunSpreadUs));
      const bool both = server && totals.kills % 3 == 2;
      if (both) server->kill();
      program.kill();
      stop = true;
      writers.clear();
      if (both) server->start();
      totals.server_kills += both ? 1 : 0;
    }
    ++totals.kills;
    totals.refused += refused;
    program.start();
  }

  std::string conninfo_file(const std::string& conninfo, int number) const {
    const std::string path = fmt::format("{}/conninfo-{}", directory_, number);
    std::FILE* out = std::fopen(path.c_str(), "w");
    fmt::print(out, "{}", conninfo);
    std::fclose(out);
    return path;
  }

  const std::string binary_;
  const bool postgresql_;
  sys::SimRandom random_;
  std::string directory_;
};

}  // namespace
}  // namespace falaj::tests

int main(int argc, char** argv) {
  using namespace falaj;
  using namespace falaj::tests;
  std::string engine = "sqlite", binary;
  std::int64_t kills = 300;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--engine" && i + 1 < argc)
      engine = argv[++i];
    else if (word == "--kills" && i + 1 < argc)
      kills = parse_int(argv[++i]).value_or(kills);
    else
      binary = word;
  }
  sys::RealRandom real;
  const std::uint64_t seed = real.next();
  Totals totals;
  try {
    const auto wrong = Experiment(binary, engine == "postgresql", seed).run(kills, totals);
    fmt::print("result {}: seed {}, {} kills ({} of the database server), {} writes acknowledged, {} cut off; {}\n",
               engine, seed, totals.kills, totals.server_kills, totals.acknowledged, totals.refused,
               wrong ? *wrong : "nothing lost, every effect audited, audit verified after each restart");
    return wrong ? 1 : 0;
  } catch (const std::exception& e) {
    fmt::print("result {}: seed {}, after {} kills: {}\n", engine, seed, totals.kills, e.what());
    return 1;
  }
}
