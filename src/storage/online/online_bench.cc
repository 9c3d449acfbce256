// SPDX-License-Identifier: Apache-2.0
// Rows of 50 features read through a Snapshot, every feature looked at, against gets of LMDB's own interface of values
// of the same size, on one thread, in the same run; sealed and in the clear. Then durable writes a second against
// transactions of LMDB's own with as many rows.
#include <lmdb.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "storage/online/row.h"
#include "storage/online/testing.h"

namespace falaj::online {
namespace {

constexpr std::size_t kRows = 200'000, kReads = 100'000, kFeatures = 50, kBatch = 100;

// The best of seven rounds, each of the two in turn: the machine is shared.
template <class Ours, class Theirs>
void compare(const std::string& claim, std::size_t count, double goal, const char* against, Ours ours, Theirs theirs) {
  const sys::RealClock clock;
  const auto rate = [&](auto& run) {
    const auto began = clock.now();
    run();
    return static_cast<double>(count) / std::chrono::duration<double>(clock.now() - began).count();
  };
  double best_ours = 0, best_theirs = 0;
  for (int round = 0; round < 7; ++round) {
    best_ours = std::max(best_ours, rate(ours));
    best_theirs = std::max(best_theirs, rate(theirs));
  }
  const json::object line{
      {"claim", claim},     {"ours", std::int64_t(best_ours)},    {"unit", "rows/s"},
      {"against", against}, {"limit", std::int64_t(best_theirs)}, {"ratio", best_ours / best_theirs},
      {"goal", goal}};
  std::puts(json::serialize(line).c_str());
}

std::vector<std::string> entity_names() {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kRows; ++i) names.push_back("customer-" + std::to_string(10'000'000 + i));
  sys::SimRandom random(1);
  for (std::size_t i = kRows; i > 1; --i) std::swap(names[i - 1], names[random.below(i)]);
  return names;
}

// LMDB as somebody would use it by hand: the entity's key is the key.
class Raw {
 public:
  explicit Raw(const std::string& directory) {
    CHECK(mdb_env_create(&env_) == 0 && mdb_env_set_mapsize(env_, std::size_t{4} << 30) == 0 &&
              mdb_env_open(env_, directory.c_str(), MDB_NOTLS | MDB_NORDAHEAD, 0600) == 0,
          "LMDB opens");
    write([&](MDB_txn* txn) { CHECK(mdb_dbi_open(txn, nullptr, 0, &table_) == 0, "the table opens"); });
    CHECK(mdb_txn_begin(env_, nullptr, MDB_RDONLY, &reading_) == 0, "a read begins");
    mdb_txn_reset(reading_);
  }
  ~Raw() {
    mdb_txn_abort(reading_);
    mdb_env_close(env_);
  }
  template <class Work>
  void write(Work work) {
    MDB_txn* txn = nullptr;
    CHECK(mdb_txn_begin(env_, nullptr, 0, &txn) == 0, "a write begins");
    work(txn);
    CHECK(mdb_txn_commit(txn) == 0, "a write commits");
  }
  void put(MDB_txn* txn, const std::string& name, const Bytes& value) {
    MDB_val key{name.size(), const_cast<char*>(name.data())}, v{value.size(), const_cast<std::byte*>(value.data())};
    CHECK(mdb_put(txn, table_, &key, &v, 0) == 0, "a row is put");
  }
  double get(std::span<const std::string> names) {
    double sum = 0;
    CHECK(mdb_txn_renew(reading_) == 0, "a read begins");
    for (const auto& name : names) {
      MDB_val key{name.size(), const_cast<char*>(name.data())}, v;
      CHECK(mdb_get(reading_, table_, &key, &v) == 0, "a row is there");
      double values[kFeatures];
      std::memcpy(values, static_cast<const char*>(v.mv_data) + v.mv_size - sizeof values, sizeof values);
      for (const double x : values) sum += x;
    }
    mdb_txn_reset(reading_);
    return sum;
  }

 private:
  MDB_env* env_ = nullptr;
  MDB_dbi table_ = 0;
  MDB_txn* reading_ = nullptr;
};

double read(Reader& reader, const Space& space, const RowLayout& layout, std::span<const std::string> names) {
  BytesView keys[kBatch];
  std::optional<Row> rows[kBatch];
  for (std::size_t i = 0; i < names.size(); ++i) keys[i] = as_bytes(names[i]);
  const auto snapshot = reader.snapshot();
  snapshot->get(space, {keys, names.size()}, {rows, names.size()});
  double sum = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!rows[i] || is_expired(rows[i]->event_us, 1000, 3600)) continue;
    const auto row = layout.view(rows[i]->payload);
    for (std::size_t c = 0; c < kFeatures; ++c)
      if (!row->is_null(c)) sum += row->real(c);
  }
  return sum;
}

std::vector<NumberedKey> keys() {
  std::vector<NumberedKey> out;
  out.push_back({1, crypto::Key::random()});
  return out;
}

void run() {
  const sys::TempDir directory;
  Metrics metrics;
  const auto names = entity_names();
  const RowLayout layout(1, std::vector<Type>(kFeatures, Type::float64));
  RowWriter writer(layout);
  for (std::size_t c = 0; c < kFeatures; ++c) writer.set_real(c, static_cast<double>(c));
  const Bytes payload = writer.finish();

  const auto store = open_lmdb(directory / "ours", metrics);
  const Space clear = Space::in_the_clear(as_bytes("bench/clear"));
  const Space sealed(as_bytes("bench/sealed"), crypto::Key::random(), keys());
  std::vector<Write> writes;
  for (const auto& name : names) writes.push_back({as_bytes(name), {1, 1, payload}});
  CHECK(store->put(sealed, writes) == kRows && store->put(clear, writes) == kRows, "rows are stored");
  std::filesystem::create_directory(directory / "raw");
  Raw raw(directory / "raw");
  raw.write([&](MDB_txn* txn) {
    for (const auto& name : names) raw.put(txn, name, payload);
  });

  const double wanted = kReads * (kFeatures * (kFeatures - 1) / 2);
  for (const std::size_t batch : {std::size_t{1}, kBatch}) {
    for (const auto* space : {&clear, &sealed}) {
      const auto claim = std::string("batch of ") + std::to_string(batch) + ", 50 features, " +
                         (space == &clear ? "in the clear" : "sealed");
      compare(
          claim, kReads, space == &clear ? 0.7 : 0.5, "mdb_get",
          [&] {
            double sum = 0;
            for (std::size_t i = 0; i < kReads; i += batch)
              sum += read(*store, *space, layout, std::span(names).subspan(i, batch));
            CHECK(sum == wanted, "every feature was read");
          },
          [&] {
            double sum = 0;
            for (std::size_t i = 0; i < kReads; i += batch) sum += raw.get(std::span(names).subspan(i, batch));
            CHECK(sum == wanted, "every feature was read");
          });
    }
  }

  constexpr std::size_t kWriters = 8, kCommits = 20;
  compare(
      "durable writes by 8 callers, batches of 100, sealed", kWriters * kCommits * kBatch, 0.7,
      "one LMDB transaction for each batch",
      [&] {
        std::vector<std::thread> threads;
        for (std::size_t t = 0; t < kWriters; ++t)
          threads.emplace_back([&, t] {
            for (std::size_t i = 0; i < kCommits; ++i)
              store->put(sealed, std::span(writes).subspan((t * kCommits + i) * kBatch, kBatch));
          });
        for (auto& thread : threads) thread.join();
      },
      [&] {
        for (std::size_t i = 0; i < kWriters * kCommits; ++i)
          raw.write([&](MDB_txn* txn) {
            for (std::size_t n = 0; n < kBatch; ++n) raw.put(txn, names[i * kBatch + n], payload);
          });
      });
}

}  // namespace
}  // namespace falaj::online

int main() {
  try {
    falaj::online::run();
  } catch (const falaj::Error& error) {
    std::fprintf(stderr, "online_bench: %s\n", error.what());
    return 2;
  }
}
