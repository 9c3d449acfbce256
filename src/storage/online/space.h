// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/base/mutex.h"
#include "foundation/crypto/key.h"
#include "foundation/crypto/record.h"

namespace falaj::online {

// Where a record lies: 16 bytes of its space, 16 of its entity. Neither tells who the entity is.
using Address = std::array<std::byte, 32>;
inline BytesView space_of(const Address& address) { return BytesView(address).first(16); }

// A row as it is read. The payload lies in the store's memory or in a snapshot's.
struct Row {
  std::int64_t event_us = 0, created_us = 0;
  BytesView payload;
};

// What comes first in every stored record, in the clear and authenticated: what decides which of two is newer can be
// compared without a key, by another server too, as bytes.
inline constexpr std::size_t kRecordHeadBytes = 24;
inline constexpr std::size_t kOrderAt = 8, kOrderBytes = 16;
inline constexpr std::size_t kPayloadMax = 1 << 20;  // of one row

// Whether `record` would replace `stored`: it is of a later event or, of the same, was created later or at the same
// time.
bool replaces(BytesView record, BytesView stored);
// The time of an event as it stands in a record, at kOrderAt: compares as bytes.
std::array<std::byte, 8> event_order(std::int64_t event_us);
std::int64_t event_of(BytesView record);  // throws corrupt when it is too short

struct NumberedKey {
  std::uint32_t number = 0;  // at least 1
  crypto::Key key;
};

// The rows of one version of one view: their place, and the keys that seal them. The last of `keys` seals; the others
// open what was sealed before it came. The address key must never change, or rows are no longer found. Thread-safe.
class Space {
 public:
  static constexpr std::size_t kEntityKeyMax = 4096;

  // `name` tells tenant, project, view and version apart, in any encoding that does.
  Space(BytesView name, const crypto::Key& address_key, std::vector<NumberedKey> keys);
  // In the clear: for values that are nobody's secret, and to measure what sealing costs.
  static Space in_the_clear(BytesView name);
  // What finds and opens the rows of one space and of no other: for programs that are told nothing else.
  struct Secret {
    std::array<std::byte, 16> prefix;
    crypto::Key address_key;
    std::vector<NumberedKey> keys;
  };
  explicit Space(Secret secret);
  Secret secret() const;
  ~Space();
  Space(Space&&) noexcept;

  Address address(BytesView entity_key) const;  // throws invalid when it is too long
  BytesView prefix() const { return prefix_; }  // with which all its addresses begin
  bool seals() const { return !keys_.empty(); }

  // Makes records of many rows, or opens many; holds ciphers for as long as it lives. One thread at a time.
  class Sealing {
   public:
    explicit Sealing(const Space& space);
    ~Sealing();
    Sealing(const Sealing&) = delete;
    Sealing& operator=(const Sealing&) = delete;
    void append_record(Bytes& out, const Address& address, const Row& row);  // throws invalid when it is too large

   private:
    const Space& space_;
    std::optional<crypto::RecordSealer> sealer_;
  };
  class Opening {
   public:
    explicit Opening(const Space& space) : space_(space) {}
    ~Opening();
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;
    // The payload lies in `record` when it is in the clear, else at `out`, which has room for payload_size(record).
    Row open(const Address& address, BytesView record, std::byte* out);  // throws corrupt, denied (no such key)

   private:
    const Space& space_;
    std::optional<crypto::RecordOpener> opener_;
    std::uint32_t number_ = 0;
  };
  void must_have_key_of(BytesView record) const;      // throws denied
  static std::size_t payload_size(BytesView record);  // of one that must be opened elsewhere; 0 when in the clear

 private:
  explicit Space(BytesView name, const crypto::Key& address_key);
  const NumberedKey& key(std::uint32_t number) const;

  std::array<std::byte, 16> prefix_{};
  crypto::Key address_key_;
  std::vector<NumberedKey> keys_;
  // Ciphers that are set up and not in use: setting one up costs as much as a few rows.
  struct Idle;
  std::unique_ptr<Idle> idle_;
};

}  // namespace falaj::online
