// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "foundation/base/error.h"
#include "storage/online/lmdb_environment.h"
#include "storage/online/lmdb_writer.h"
#include "storage/online/opened_rows.h"
#include "storage/online/probe.h"
#include "storage/online/store.h"

namespace falaj::online {

namespace {

constexpr std::size_t kSweptPerCommit = 10'000;

// The record at `address`, or nothing. Valid until the transaction writes or ends.
std::optional<BytesView> find(MDB_txn* txn, MDB_dbi table, const Address& address) {
  MDB_val key = value_of(address), found;
  const int result = mdb_get(txn, table, &key, &found);
  if (result == MDB_NOTFOUND) return std::nullopt;
  must(result, "read");
  return bytes_of(found);
}

int store(MDB_txn* txn, MDB_dbi table, const Address& address, BytesView record) {
  MDB_val key = value_of(address), value = value_of(record);
  return mdb_put(txn, table, &key, &value, 0);
}

class Cursor {
 public:
  // Begins at `from`, if given.
  Cursor(MDB_txn* txn, MDB_dbi table, const std::optional<Address>& from = std::nullopt) : from_(from) {
    must(mdb_cursor_open(txn, table, &cursor_), "open a cursor");
  }
  ~Cursor() { mdb_cursor_close(cursor_); }
  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;

  // To the first, then the next, record whose address begins with `prefix`.
  bool next(BytesView prefix) {
    MDB_val key = value_of(from_ ? BytesView(*from_) : prefix), value;
    const int result = mdb_cursor_get(cursor_, &key, &value, std::exchange(begun_, true) ? MDB_NEXT : MDB_SET_RANGE);
    if (result == MDB_NOTFOUND) return false;
    must(result, "walk");
    const auto at = bytes_of(key);
    if (at.size() != sizeof(Address) || !std::equal(prefix.begin(), prefix.end(), at.begin())) return false;
    std::copy(at.begin(), at.end(), address_.begin());
    record_ = bytes_of(value);
    return true;
  }
  const Address& address() const { return address_; }
  BytesView record() const { return record_; }
  int erase() { return mdb_cursor_del(cursor_, 0); }

 private:
  MDB_cursor* cursor_ = nullptr;
  bool begun_ = false;
  const std::optional<Address> from_;
  Address address_{};
  BytesView record_;
};

class LmdbSnapshot final : public Snapshot {
 public:
  LmdbSnapshot(Environment& environment, OpenedRows& lately)
      : environment_(environment), lately_(lately), txn_(environment.begin_read()) {}
  ~LmdbSnapshot() override { environment_.end_read(txn_); }

  void get(const Space& space, std::span<const BytesView> entity_keys, std::span<std::optional<Row>> out) override {
    CHECK(entity_keys.size() == out.size(), "there is a place for every row");
    Space::Opening opening(space);
    // One state for all: what a transaction sees is named by the newest commit it knows of.
    const auto state = space.seals() ? mdb_txn_id(txn_) : 0;
    for (std::size_t at = 0; at < out.size(); at += kBlock) {
      const auto n = std::min(kBlock, out.size() - at);
      get_block(space, opening, state, entity_keys.subspan(at, n), out.subspan(at, n));
    }
  }

  void each(const Space& space, const std::function<bool(const Address&, const Row&)>& each) override {
    Space::Opening opening(space);
    Bytes opened;
    Cursor cursor(txn_, environment_.table());
    while (cursor.next(space.prefix())) {
      opened.resize(Space::payload_size(cursor.record()));
      if (!each(cursor.address(), opening.open(cursor.address(), cursor.record(), opened.data()))) return;
    }
  }

  void clear() override {
    opened_.clear();
    here_used_ = 0;
  }

 private:
  static constexpr std::size_t kBlock = 16;
  static constexpr std::size_t kHereBytes = 896;      // with the rest, as much as an allocator hands out at once
  static constexpr std::size_t kFetchedAhead = 1024;  // bytes of a row that come while the next ones are looked for

  // Gives what was opened lately; of the others finds all, then opens all, so that they come while others are looked
  // for.
  void get_block(const Space& space, Space::Opening& opening, std::uint64_t state, std::span<const BytesView> keys,
                 std::span<std::optional<Row>> out) {
    const auto room = [this](std::size_t bytes) { return room_for(bytes); };
    std::array<Address, kBlock> addresses;
    MDB_val records[kBlock];  // not std::optional: a request for one row would clear all of them first
    for (std::size_t i = 0; i < keys.size(); ++i) {
      addresses[i] = space.address(keys[i]);
      if (state > 0) lately_.fetch(addresses[i]);
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      records[i] = {0, nullptr};
      out[i].reset();
      if (state > 0 && (out[i] = lately_.in_state(space, addresses[i], state, room))) continue;
      const auto found = find(txn_, environment_.table(), addresses[i]);
      if (!found) {
        if (state > 0) lately_.forget(addresses[i]);
        continue;
      }
      records[i] = value_of(*found);
      for (std::size_t line = 64; line < std::min(found->size(), kFetchedAhead); line += 64)
        __builtin_prefetch(found->data() + line);
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!records[i].mv_data) continue;
      const auto record = bytes_of(records[i]);
      if (state > 0 && (out[i] = lately_.from_record(space, addresses[i], record, state, room))) continue;
      out[i] = opening.open(addresses[i], record, room_for(Space::payload_size(record)));
      if (state > 0) lately_.keep(addresses[i], record, state, *out[i]);
    }
  }

  std::byte* room_for(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    if (here_used_ + bytes <= kHereBytes) return here_.data() + std::exchange(here_used_, here_used_ + bytes);
    return opened_.emplace_back(new std::byte[bytes]).get();
  }

  Environment& environment_;
  OpenedRows& lately_;
  MDB_txn* const txn_;
  std::vector<std::unique_ptr<std::byte[]>> opened_;
  std::size_t here_used_ = 0;
  std::array<std::byte, kHereBytes> here_;  // of the first few rows, which are often all
};

class LmdbReader final : public Reader {
 public:
  LmdbReader(const std::string& directory, const LmdbOptions& options)
      : environment_(directory, options, Environment::Mode::read), lately_(options.opened_bytes) {}
  std::unique_ptr<Snapshot> snapshot() override { return std::make_unique<LmdbSnapshot>(environment_, lately_); }

 private:
  Environment environment_;
  OpenedRows lately_;
};

class LmdbStore final : public Store {
 public:
  LmdbStore(const std::string& directory, Metrics& metrics, const LmdbOptions& options)
      : probe_(metrics),
        environment_(directory, options, Environment::Mode::write),
        lately_(options.opened_bytes),
        writer_(environment_, probe_, options.waiting_max) {}

  std::unique_ptr<Snapshot> snapshot() override { return std::make_unique<LmdbSnapshot>(environment_, lately_); }

  std::size_t put(const Space& space, std::span<const Write> writes) override {
    if (writes.empty()) return 0;
    // Sealed here, on the caller's thread; sorted, because neighbours share pages.
    struct Record {
      Address address;
      std::size_t begin, end;
    };
    Bytes bytes;
    std::vector<Record> records;
    records.reserve(writes.size());
    {
      Space::Sealing sealing(space);
      for (const auto& write : writes) {
        const auto address = space.address(write.entity_key);
        const auto begin = bytes.size();
        sealing.append_record(bytes, address, write.row);
        records.push_back({address, begin, bytes.size()});
      }
    }
    std::stable_sort(records.begin(), records.end(),
                     [](const Record& a, const Record& b) { return a.address < b.address; });
    std::size_t stored = 0;
    writer_.run([&](MDB_txn* txn) {
      stored = 0;
      for (const auto& r : records) {
        const auto record = BytesView(bytes).subspan(r.begin, r.end - r.begin);
        const auto old = find(txn, environment_.table(), r.address);
        if (old && !replaces(record, *old)) continue;
        if (const int result = store(txn, environment_.table(), r.address, record)) return result;
        ++stored;
      }
      return MDB_SUCCESS;
    });
    probe_.rows_stored.Increment(static_cast<double>(stored));
    probe_.rows_late.Increment(static_cast<double>(writes.size() - stored));
    return stored;
  }

  void update(std::span<const Update> updates) override {
    if (std::all_of(updates.begin(), updates.end(), [](const Update& u) { return u.entity_keys.empty(); })) return;
    writer_.run([&](MDB_txn* txn) {
      for (const auto& one : updates)
        if (const int result = update(txn, one)) return result;
      return MDB_SUCCESS;
    });
  }

  std::size_t erase(const Space& space, std::span<const BytesView> entity_keys) override {
    if (entity_keys.empty()) return 0;
    std::size_t erased = 0;
    writer_.run([&](MDB_txn* txn) {
      erased = 0;
      for (const auto entity_key : entity_keys) {
        const auto address = space.address(entity_key);
        MDB_val key = value_of(address);
        const int result = mdb_del(txn, environment_.table(), &key, nullptr);
        if (result != MDB_SUCCESS && result != MDB_NOTFOUND) return result;
        erased += result == MDB_SUCCESS;
      }
      return MDB_SUCCESS;
    });
    for (const auto entity_key : entity_keys) lately_.forget(space.address(entity_key));  // not even in memory
    return erased;
  }

  // In pieces, so that other writes are not kept waiting for a large one.
  std::size_t erase_before(const Space& space, std::int64_t event_us) override {
    std::size_t all = 0, erased = 0;
    std::optional<Address> from, reached;  // where this piece begins and the next one will
    do {
      writer_.run([&](MDB_txn* txn) {
        erased = 0;
        reached.reset();
        Cursor cursor(txn, environment_.table(), from);
        for (std::size_t seen = 0; cursor.next(space.prefix()); ++seen) {
          if (seen == kSweptPerCommit) {
            reached = cursor.address();
            return MDB_SUCCESS;
          }
          if (event_us != kEnd && event_of(cursor.record()) >= event_us) continue;
          if (const int result = cursor.erase()) return result;
          ++erased;
        }
        return MDB_SUCCESS;
      });
      all += erased;
      from = reached;
    } while (from);
    return all;
  }

 private:
  int update(MDB_txn* txn, const Update& one) {
    Space::Opening opening(one.space);
    Space::Sealing sealing(one.space);
    Bytes opened, record;
    for (std::size_t i = 0; i < one.entity_keys.size(); ++i) {
      const auto address = one.space.address(one.entity_keys[i]);
      std::optional<Row> old;
      if (const auto found = find(txn, environment_.table(), address)) {
        opened.resize(Space::payload_size(*found));
        old = opening.open(address, *found, opened.data());
      }
      const auto changed = one.change(i, old);
      if (!changed) continue;
      record.clear();
      sealing.append_record(record, address, {changed->event_us, changed->created_us, changed->payload});
      if (const int result = store(txn, environment_.table(), address, record)) return result;
    }
    return MDB_SUCCESS;
  }

  Probe probe_;
  Environment environment_;
  OpenedRows lately_;
  LmdbWriter writer_;  // last: its thread uses the others
};

}  // namespace

std::unique_ptr<Store> open_lmdb(const std::string& directory, Metrics& metrics, const LmdbOptions& options) {
  return std::make_unique<LmdbStore>(directory, metrics, options);
}

std::unique_ptr<Reader> read_lmdb(const std::string& directory, const LmdbOptions& options) {
  return std::make_unique<LmdbReader>(directory, options);
}

}  // namespace falaj::online
