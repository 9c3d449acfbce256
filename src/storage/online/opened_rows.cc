// SPDX-License-Identifier: Apache-2.0
#include "storage/online/opened_rows.h"

#include <cstring>

namespace falaj::online {

OpenedRows::OpenedRows(std::size_t bytes_max)
    : bytes_max_(bytes_max), count_(std::max<std::size_t>(1, bytes_max / kTypicalBytes / kWays)) {}

void OpenedRows::make_sets() {
  std::call_once(making_, [this] {
    made_ = std::make_unique<Set[]>(count_);
    sets_.store(made_.get(), std::memory_order_release);
  });
}

OpenedRows::Seal OpenedRows::seal_of(BytesView record) {
  Seal out{};
  if (record.size() < out.size()) return out;
  const auto tail = record.last(crypto::kRecordTagBytes);
  constexpr auto kFront = kRecordHeadBytes + crypto::kRecordNonceBytes;
  std::copy_n(record.begin(), kFront, out.begin());
  std::copy(tail.begin(), tail.end(), out.begin() + kFront);
  return out;
}

// The second half of an address is a keyed hash already.
std::size_t OpenedRows::hash_of(const Address& address) {
  std::uint64_t hash = 0;
  std::memcpy(&hash, address.data() + 16, sizeof hash);
  return static_cast<std::size_t>(hash);
}

std::uint32_t OpenedRows::mark_of(const Address& address) {
  std::uint32_t mark = 0;
  std::memcpy(&mark, address.data() + 24, sizeof mark);
  return mark;
}

OpenedRows::Slot* OpenedRows::find(Set& set, const Address& address) {
  const auto mark = mark_of(address);
  for (std::size_t i = 0; i < kWays; ++i)
    if (set.marks[i] == mark && set.slots[i].state > 0 && set.slots[i].address == address) return &set.slots[i];
  return nullptr;
}

void OpenedRows::fetch(const Address& address) const { __builtin_prefetch(set_of(address)); }

void OpenedRows::keep(const Address& address, BytesView record, std::uint64_t state, const Row& row) {
  if (row.payload.size() > kPayloadMax || state == 0) return;
  if (!sets_.load(std::memory_order_acquire)) make_sets();
  auto& set = *set_of(address);
  Lock lock(mutex_of(address));
  auto* slot = find(set, address);
  if (slot && slot->state > state) return;  // somebody saw a newer one
  if (!slot)
    slot = std::min_element(set.slots.begin(), set.slots.end(),
                            [](const auto& a, const auto& b) { return a.state < b.state; });
  const auto before = slot->payload.capacity();
  if (row.payload.size() > before && bytes_ + row.payload.size() - before > bytes_max_) return;
  slot->address = address;
  set.marks[static_cast<std::size_t>(slot - set.slots.data())] = mark_of(address);
  slot->seal = seal_of(record);
  slot->state = state;
  slot->event_us = row.event_us;
  slot->created_us = row.created_us;
  slot->payload.assign(row.payload.begin(), row.payload.end());
  bytes_ += slot->payload.capacity() - before;
}

void OpenedRows::forget(const Address& address) {
  auto* set = set_of(address);
  if (!set) return;
  Lock lock(mutex_of(address));
  auto* slot = find(*set, address);
  if (!slot) return;
  std::fill(slot->payload.begin(), slot->payload.end(), std::byte{0});
  slot->payload.clear();
  slot->state = 0;
}

}  // namespace falaj::online
