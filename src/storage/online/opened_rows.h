// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to online: rows that were opened lately.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "foundation/base/bytes.h"
#include "foundation/base/mutex.h"
#include "storage/online/space.h"

namespace falaj::online {

// Opening a sealed record costs as much as half of finding it, and serving asks for the same entities again and again.
// What was opened is kept in this process's memory, with what it was opened from: the seal's nonce and tag, which no
// other record has, and the state of the store (LMDB's transaction) in which it was last seen. In the same state the
// record is not even looked for. Whatever is changed or erased is a new state, so nothing old is ever given.
// Thread-safe.
class OpenedRows {
 public:
  explicit OpenedRows(std::size_t bytes_max);

  void fetch(const Address& address) const;  // asks the processor to bring it closer
  // The row, copied, if it was seen in exactly this state. Throws denied when `space` lacks the key of it.
  template <class GiveRoom>
  std::optional<Row> in_state(const Space& space, const Address& address, std::uint64_t state, GiveRoom&& room) {
    auto* set = set_of(address);
    if (!set) return std::nullopt;
    Lock lock(mutex_of(address));
    auto* slot = find(*set, address);
    if (!slot || slot->state != state) return std::nullopt;
    return copy(space, *slot, room);
  }
  // The row, copied, if it was opened from this very record.
  template <class GiveRoom>
  std::optional<Row> from_record(const Space& space, const Address& address, BytesView record, std::uint64_t state,
                                 GiveRoom&& room) {
    auto* set = set_of(address);
    if (!set) return std::nullopt;
    Lock lock(mutex_of(address));
    auto* slot = find(*set, address);
    if (!slot || slot->seal != seal_of(record)) return std::nullopt;
    slot->state = std::max(slot->state, state);
    return copy(space, *slot, room);
  }
  void keep(const Address& address, BytesView record, std::uint64_t state, const Row& row);
  void forget(const Address& address);  // overwrites it

 private:
  static constexpr std::size_t kWays = 4, kMutexes = 64, kPayloadMax = 4096, kTypicalBytes = 512;
  using Seal = std::array<std::byte, kRecordHeadBytes + crypto::kRecordOverheadBytes>;  // head, nonce, tag
  struct Slot {
    Address address{};
    Seal seal{};
    std::uint64_t state = 0;  // 0: empty
    std::int64_t event_us = 0, created_us = 0;
    Bytes payload;
  };
  // A few bytes of each address stand together, so that looking touches one line of memory and not one of each slot.
  struct alignas(64) Set {
    std::array<std::uint32_t, kWays> marks{};
    std::array<Slot, kWays> slots;
  };

  static Seal seal_of(BytesView record);
  static std::size_t hash_of(const Address& address);
  static std::uint32_t mark_of(const Address& address);
  // Nullptr as long as nothing was kept.
  Set* set_of(const Address& address) const {
    auto* sets = sets_.load(std::memory_order_acquire);
    return sets ? sets + hash_of(address) % count_ : nullptr;
  }
  void make_sets();
  Mutex& mutex_of(const Address& address) { return mutexes_[hash_of(address) % count_ % kMutexes]; }
  static Slot* find(Set& set, const Address& address);
  template <class GiveRoom>
  static Row copy(const Space& space, const Slot& slot, GiveRoom& room) {
    space.must_have_key_of(slot.seal);
    Row row{slot.event_us, slot.created_us, {}};
    auto* to = room(slot.payload.size());
    std::copy(slot.payload.begin(), slot.payload.end(), to);
    row.payload = {to, slot.payload.size()};
    return row;
  }

  const std::size_t bytes_max_, count_;  // of sets
  std::atomic<std::size_t> bytes_{0};
  std::array<Mutex, kMutexes> mutexes_;  // each guards the sets that fall to it
  // Made when the first row is kept: platforms without online features do not pay for it.
  std::once_flag making_;
  std::unique_ptr<Set[]> made_;
  std::atomic<Set*> sets_{nullptr};
};

}  // namespace falaj::online
