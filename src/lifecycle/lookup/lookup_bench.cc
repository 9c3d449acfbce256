// SPDX-License-Identifier: Apache-2.0
// Features read as falaj-serve reads them: the record found, opened and every feature looked at, against gets of LMDB's
// own interface of values of the same size, on one thread, in the same run. Rows of 50 features, and windows.
#include <lmdb.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "foundation/sys/testing.h"
#include "lifecycle/lookup/record.h"
#include "lifecycle/lookup/view.h"
#include "storage/online/testing.h"

namespace falaj::lookup {
namespace {

constexpr std::size_t kEntities = 100'000, kReads = 100'000, kFeatures = 50, kBatch = 100;
constexpr std::int64_t kHour = 3'600'000'000, kNow = 1'000 * kHour;

template <class Ours, class Theirs>
void compare(const std::string& claim, double goal, Ours ours, Theirs theirs) {
  const sys::RealClock clock;
  const auto rate = [&](auto& run) {
    const auto began = clock.now();
    run();
    return static_cast<double>(kReads) / std::chrono::duration<double>(clock.now() - began).count();
  };
  double best_ours = 0, best_theirs = 0;
  for (int round = 0; round < 7; ++round) {
    best_ours = std::max(best_ours, rate(ours));
    best_theirs = std::max(best_theirs, rate(theirs));
  }
  const json::object line{{"claim", claim},
                          {"ours", std::int64_t(best_ours)},
                          {"unit", "entities/s"},
                          {"against", "mdb_get of as many bytes"},
                          {"limit", std::int64_t(best_theirs)},
                          {"ratio", best_ours / best_theirs},
                          {"goal", goal}};
  std::puts(json::serialize(line).c_str());
}

// LMDB as somebody would use it by hand.
class Raw {
 public:
  explicit Raw(const std::string& directory) {
    std::filesystem::create_directory(directory);
    CHECK(mdb_env_create(&env_) == 0 && mdb_env_set_mapsize(env_, std::size_t{8} << 30) == 0 &&
              mdb_env_open(env_, directory.c_str(), MDB_NOTLS | MDB_NORDAHEAD, 0600) == 0,
          "LMDB opens");
  }
  ~Raw() {
    if (reading_) mdb_txn_abort(reading_);
    mdb_env_close(env_);
  }
  void fill(const std::vector<Bytes>& keys, const Bytes& value) {
    MDB_txn* txn = nullptr;
    CHECK(mdb_txn_begin(env_, nullptr, 0, &txn) == 0 && mdb_dbi_open(txn, nullptr, 0, &table_) == 0, "a write begins");
    for (const auto& k : keys) {
      MDB_val key{k.size(), const_cast<std::byte*>(k.data())}, v{value.size(), const_cast<std::byte*>(value.data())};
      CHECK(mdb_put(txn, table_, &key, &v, 0) == 0, "a row is put");
    }
    CHECK(mdb_txn_commit(txn) == 0, "a write commits");
    CHECK(mdb_txn_begin(env_, nullptr, MDB_RDONLY, &reading_) == 0, "a read begins");
    mdb_txn_reset(reading_);
  }
  std::uint64_t get(std::span<const BytesView> keys) {
    std::uint64_t sum = 0;
    CHECK(mdb_txn_renew(reading_) == 0, "a read begins");
    for (const auto& k : keys) {
      MDB_val key{k.size(), const_cast<std::byte*>(k.data())}, v;
      CHECK(mdb_get(reading_, table_, &key, &v) == 0, "a row is there");
      // As much as a reader looks at: all of it, eight bytes at a time.
      for (std::size_t at = 0; at + 8 <= v.mv_size; at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, static_cast<const char*>(v.mv_data) + at, sizeof word);
        sum += word;
      }
    }
    mdb_txn_reset(reading_);
    return sum;
  }

 private:
  MDB_env* env_ = nullptr;
  MDB_dbi table_ = 0;
  MDB_txn* reading_ = nullptr;
};

Bytes row_record(const View& view) {
  online::RowWriter writer(view.layout);
  for (std::size_t c = 0; c < kFeatures; ++c) writer.set_real(c, static_cast<double>(c));
  Part part(view);
  part.add({{kNow - kHour, kNow - kHour, 1, {}}, writer.finish()}, kNow);
  Record record(view);
  record.set_base(1, 0, part, kNow);
  return record.encode();
}

Bytes window_record(const View& view) {
  Part part(view);
  for (std::int64_t i = 0; i < 24 * 6; ++i)
    part.add(
        {{kNow - i * kHour / 6, kNow - i * kHour / 6, static_cast<std::uint64_t>(i), {static_cast<double>(i)}}, {}},
        kNow);
  Record record(view);
  record.set_base(1, 0, part, kNow);
  return record.encode();
}

std::vector<Bytes> shuffled_keys(const View& view) {
  std::vector<Bytes> keys;
  for (std::size_t i = 0; i < kEntities; ++i) {
    const Value name = "customer-" + std::to_string(10'000'000 + i);
    keys.push_back(entity_key(view.key, std::span(&name, 1)));
  }
  sys::SimRandom random(1);
  for (std::size_t i = kEntities; i > 1; --i) std::swap(keys[i - 1], keys[random.below(i)]);
  return keys;
}

// The store as falaj-serve has it. `opened_bytes`: memory for rows that were opened lately; 0 opens each anew.
class Ours {
 public:
  Ours(const std::string& directory, const View& view, std::size_t opened_bytes)
      : view_(view), store_(online::open_lmdb(directory, metrics_, options(opened_bytes))), space_(space()) {}
  void fill(const std::vector<Bytes>& keys, const Bytes& record) {
    std::vector<online::Write> writes;
    for (const auto& key : keys) writes.push_back({key, {kNow, kNow, record}, 0});
    CHECK(store_->put(space_, writes) == kEntities, "records are stored");
  }
  double get(std::span<const BytesView> keys) {
    double sum = 0;
    const auto snapshot = store_->snapshot();
    read(*snapshot, space_, view_, keys, kNow, [&](std::size_t, const Found& found) {
      for (const auto& cell : found.windows) sum += cell.value_or(0);
      if (!found.columns) return;
      for (std::size_t c = 0; c < kFeatures; ++c)
        if (!found.columns->is_null(c)) sum += found.columns->real(c);
    });
    return sum;
  }

 private:
  static online::LmdbOptions options(std::size_t opened_bytes) {
    online::LmdbOptions options;
    options.opened_bytes = opened_bytes;
    return options;
  }
  static online::Space space() {
    std::vector<online::NumberedKey> seal;
    seal.push_back({1, crypto::Key::random()});
    return online::Space(as_bytes("bench"), crypto::Key::random(), std::move(seal));
  }

  const View& view_;
  Metrics metrics_;
  const std::unique_ptr<online::Store> store_;
  const online::Space space_;
};

template <class Side>
void read_all(Side& side, std::span<const BytesView> keys, std::size_t batch) {
  double sum = 0;
  for (std::size_t i = 0; i < kReads; i += batch) sum += static_cast<double>(side.get(keys.subspan(i, batch)));
  CHECK(sum > 0, "rows were read");
}

// Of each side in a process of its own, which fills it and reads it.
void print_peak_memory(const View& view, const Bytes& record, std::size_t opened_bytes) {
  const auto of = [&](auto make) {
    const sys::TempDir directory;
    return sys::peak_memory_bytes([&] {
             const auto keys = shuffled_keys(view);
             const auto side = make(directory / "rows");
             side->fill(keys, record);
             read_all(*side, std::vector<BytesView>(keys.begin(), keys.end()), kBatch);
           }) >>
           20;
  };
  const auto ours = of([&](const std::string& path) { return std::make_unique<Ours>(path, view, opened_bytes); });
  const auto raw = of([](const std::string& path) { return std::make_unique<Raw>(path); });
  std::printf("peak memory, %zu entities of %zu bytes written and read: ours %zu MB, LMDB %zu MB\n", kEntities,
              record.size(), ours, raw);
}

void run(const std::string& what, const View& view, const Bytes& record, std::size_t opened_bytes, double goal) {
  print_peak_memory(view, record, opened_bytes);
  const sys::TempDir directory;
  const auto keys = shuffled_keys(view);
  const std::vector<BytesView> views(keys.begin(), keys.end());
  Ours ours(directory / "ours", view, opened_bytes);
  ours.fill(keys, record);
  Raw raw(directory / "raw");
  raw.fill(keys, record);
  for (const std::size_t batch : {std::size_t{1}, kBatch})
    compare(
        what + ", batch of " + std::to_string(batch) + ", sealed", goal, [&] { read_all(ours, views, batch); },
        [&] { read_all(raw, views, batch); });
}

}  // namespace
}  // namespace falaj::lookup

int main() {
  using namespace falaj;
  using namespace falaj::lookup;
  try {
    std::vector<Column> columns;
    for (std::size_t i = 0; i < kFeatures; ++i) columns.push_back({"f" + std::to_string(i), Type::float64});
    const View rows(1, {Type::text}, columns, Windows(1, {}), {}, kHour * 24);
    const auto lately = online::LmdbOptions().opened_bytes;
    run("50 features of the newest row, opened lately", rows, row_record(rows), lately, 0.7);
    run("50 features of the newest row, each opened anew", rows, row_record(rows), 0, 0.4);
    const View windows(2, {Type::text}, {},
                       Windows(kHour / 6, {{Aggregate::mean, 0, kHour}, {Aggregate::mean, 0, 24 * kHour}}),
                       {"mean_1h", "mean_24h"}, std::nullopt);
    run("means over 1 h and 24 h in tiles of 10 min", windows, window_record(windows), lately, 0.05);
  } catch (const Error& error) {
    std::fprintf(stderr, "lookup_bench: %s\n", error.what());
    return 2;
  }
}
