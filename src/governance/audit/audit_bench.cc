// SPDX-License-Identifier: Apache-2.0
// Durable, audited writes a second: 64 callers that share commits, against the same statements in one big transaction
// (what the engine can do at all) and against one commit for each write (what sharing saves).
//   audit_bench [sqlite|postgresql] [writes]
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "governance/audit/testing.h"
#include "governance/audit/verify.h"

namespace falaj::audit {
namespace {

constexpr int kCallers = 64;
constexpr int kRounds = 7;
constexpr sql::Migration kThings[] = {
    {1, "things",
     "CREATE TABLE thing(id BIGINT PRIMARY KEY, name TEXT NOT NULL, spec TEXT NOT NULL, digest BYTEA NOT NULL)"}};
const sql::Act kAct{"user/ada", "thing.put", "/t/acme/p/flights/things/x", "01hf3v0q2k8m4s6t8w0y2a4c6e"};

void put(sql::Writer& w, std::int64_t id) {
  static const auto digest = crypto::sha256("spec");
  w.execute("INSERT INTO thing(id, name, spec, digest) VALUES (?, ?, ?, ?)",
            {id, "a-thing", R"({"kind":"thing","spec":{"rows":1000,"columns":["a","b","c"]}})", digest.view()});
  w.record({kAct.resource, {}, digest});
}

template <class F>
double writes_per_second(std::int64_t writes, F run) {
  const sys::RealClock clock;
  const auto began = clock.now();
  run();
  return static_cast<double>(writes) / std::chrono::duration<double>(clock.now() - began).count();
}

double shared(const std::string& engine, std::int64_t writes) {
  AuditedScratch s(engine, kThings);
  std::atomic<std::int64_t> next = 0;
  return writes_per_second(writes, [&] {
    std::vector<std::thread> callers;
    for (int t = 0; t < kCallers; ++t)
      callers.emplace_back([&] {
        for (auto id = next++; id < writes; id = next++) s.db().write(kAct, [&](sql::Writer& w) { put(w, id); });
      });
    for (auto& c : callers) c.join();
  });
}

double one_transaction(const std::string& engine, std::int64_t writes) {
  AuditedScratch s(engine, kThings);
  const sql::Effect effects[] = {{kAct.resource, {}, crypto::sha256("spec")}};
  return writes_per_second(writes, [&] {
    s.db().write(kAct, [&](sql::Writer& w) {
      for (std::int64_t id = 1; id < writes; ++id) {
        put(w, id);
        s.log().append(w, kAct, effects);
      }
    });
  });
}

double one_commit_each(const std::string& engine, std::int64_t writes) {
  AuditedScratch s(engine, kThings);
  return writes_per_second(writes, [&] {
    for (std::int64_t id = 0; id < writes; ++id) s.db().write(kAct, [&](sql::Writer& w) { put(w, id); });
  });
}

// Verifying computes each leaf and node again; it cannot be faster than reading the rows.
void measure_verify(const std::string& engine, std::int64_t records) {
  AuditedScratch s(engine, kThings);
  const sql::Effect effects[] = {{kAct.resource, {}, crypto::sha256("spec")}};
  s.db().write(kAct, [&](sql::Writer& w) {
    for (std::int64_t i = 1; i < records; ++i) s.log().append(w, kAct, effects);
  });
  bool intact = false;
  const auto ours = writes_per_second(records, [&] { intact = verify(s.db(), s.log().public_key()).intact; });
  std::size_t bytes = 0;
  const auto reading = writes_per_second(records, [&] {
    s.db().read([&](sql::Reader& r) {
      r.query(
          "SELECT sequence, unix_us, actor, verb, resource, request_id, outcome, effects, details, leaf FROM "
          "audit_record"
          " ORDER BY sequence",
          {}, [&](const sql::Row& row) { bytes += row.text(4).size() + row.bytes(9).size(); });
    });
  });
  constexpr std::int64_t kProofs = 1000;
  const auto proofs = writes_per_second(kProofs, [&] {
    for (std::int64_t i = 0; i < kProofs; ++i) (void)s.log().prove(i * (records / kProofs));
  });
  CHECK(intact && bytes > 0, "what is measured works");
  const json::object line{{"claim", fmt::format("audit records verified on {}", engine)},
                          {"ours", std::int64_t(ours)},
                          {"unit", "records/s"},
                          {"against", "reading them"},
                          {"limit", std::int64_t(reading)},
                          {"ratio", ours / reading},
                          {"goal", 0.1},
                          {"proofs_per_second", std::int64_t(proofs)}};
  std::puts(json::serialize(line).c_str());
}

double median(std::vector<double> of) {
  std::nth_element(of.begin(), of.begin() + std::ssize(of) / 2, of.end());
  return of[of.size() / 2];
}

int run(const std::string& engine, std::int64_t writes) {
  // In turns, so that a machine that slows down slows both.
  std::vector<double> ours_rounds, limit_rounds;
  for (int round = 0; round < kRounds; ++round) {
    ours_rounds.push_back(shared(engine, writes));
    limit_rounds.push_back(one_transaction(engine, writes));
  }
  const auto ours = median(ours_rounds);
  const auto limit = median(limit_rounds);
  const auto each = one_commit_each(engine, writes / 10);
  const auto print = [&](const char* against, double other, double goal) {
    const json::object line{{"claim", fmt::format("durable audited writes of 64 callers on {}", engine)},
                            {"ours", std::int64_t(ours)},
                            {"unit", "writes/s"},
                            {"against", against},
                            {"limit", std::int64_t(other)},
                            {"ratio", ours / other},
                            {"goal", goal}};
    std::puts(json::serialize(line).c_str());
  };
  print("same statements in one transaction", limit, 0.4);
  print("one commit for each write", each, 1);
  measure_verify(engine, writes * 10);
  return ours / limit >= 0.4 ? 0 : 1;
}

}  // namespace
}  // namespace falaj::audit

int main(int argc, char** argv) {
  const std::string engine = argc > 1 ? argv[1] : "sqlite";
  const auto writes = argc > 2 ? falaj::parse_int(argv[2]).value_or(0) : 30'000;
  if (writes < 100) {
    std::fprintf(stderr, "usage: audit_bench [sqlite|postgresql] [writes, at least 100]\n");
    return 2;
  }
  return falaj::audit::run(engine, writes);
}
