// SPDX-License-Identifier: Apache-2.0
#include "storage/online/space.h"

#include <algorithm>
#include <cstring>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"

namespace falaj::online {

namespace {

// docs/formats/online_row.md. The order is big-endian with the sign turned over: it compares as bytes.
enum Format : std::uint8_t { kClear = 1, kSealed = 2 };
constexpr std::size_t kIdleMax = 64;

void put_order(std::byte* out, std::int64_t v) {
  const auto u = static_cast<std::uint64_t>(v) ^ (std::uint64_t{1} << 63);
  for (int i = 0; i < 8; ++i) out[i] = static_cast<std::byte>(u >> (56 - 8 * i));
}
std::int64_t get_order(const std::byte* in) {
  std::uint64_t u = 0;
  for (int i = 0; i < 8; ++i) u = u << 8 | static_cast<std::uint64_t>(in[i]);
  return static_cast<std::int64_t>(u ^ (std::uint64_t{1} << 63));
}

using Head = std::array<std::byte, kRecordHeadBytes>;
Head make_head(Format format, std::uint32_t key_number, const Row& row) {
  Head head{};
  head[0] = std::byte{format};
  std::memcpy(head.data() + 4, &key_number, 4);
  put_order(head.data() + kOrderAt, row.event_us);
  put_order(head.data() + kOrderAt + 8, row.created_us);
  return head;
}

// The head and the entity (the space is in the key): a record copied elsewhere, or given another time, does not open.
constexpr std::size_t kEntityAt = 16;
using Context = std::array<std::byte, kRecordHeadBytes + sizeof(Address) - kEntityAt>;
Context context_of(BytesView head, const Address& address) {
  Context context;
  std::copy_n(head.begin(), kRecordHeadBytes, context.begin());
  std::copy(address.begin() + kEntityAt, address.end(), context.begin() + kRecordHeadBytes);
  return context;
}

}  // namespace

bool replaces(BytesView record, BytesView stored) {
  if (stored.size() < kRecordHeadBytes) return true;
  return std::memcmp(record.data() + kOrderAt, stored.data() + kOrderAt, kOrderBytes) >= 0;
}

std::array<std::byte, 8> event_order(std::int64_t event_us) {
  std::array<std::byte, 8> out;
  put_order(out.data(), event_us);
  return out;
}

std::int64_t event_of(BytesView record) {
  if (record.size() < kRecordHeadBytes) throw Error(Code::corrupt, "a stored record is too short");
  return get_order(record.data() + kOrderAt);
}

struct Space::Idle {
  Mutex mu;
  std::vector<crypto::RecordSealer> sealers GUARDED_BY(mu);
  std::vector<crypto::RecordOpener> openers GUARDED_BY(mu);  // of the newest key
};

Space::Space(BytesView name, const crypto::Key& address_key)
    : address_key_(crypto::derive(address_key, name, "falaj online address v1")), idle_(std::make_unique<Idle>()) {
  const auto digest = crypto::sha256(name);
  std::copy_n(digest.bytes.begin(), prefix_.size(), prefix_.begin());
}

Space::Space(BytesView name, const crypto::Key& address_key, std::vector<NumberedKey> keys) : Space(name, address_key) {
  CHECK(!keys.empty(), "a sealed space has a key");
  for (auto& given : keys) {
    CHECK(given.number > 0, "keys are numbered from 1");
    // One data key for a view still gives every version of it, and every use of it, a key of its own.
    keys_.push_back({given.number, crypto::derive(given.key, name, "falaj online row v1")});
  }
}

Space::Space(Secret secret)
    : prefix_(secret.prefix),
      address_key_(std::move(secret.address_key)),
      keys_(std::move(secret.keys)),
      idle_(std::make_unique<Idle>()) {}

Space::Secret Space::secret() const {
  Secret out{prefix_, address_key_.copy(), {}};
  for (const auto& numbered : keys_) out.keys.push_back({numbered.number, numbered.key.copy()});
  return out;
}

Space Space::in_the_clear(BytesView name) { return Space(name, crypto::Key::from(crypto::sha256(name).view())); }
Space::~Space() = default;
Space::Space(Space&&) noexcept = default;

Address Space::address(BytesView entity_key) const {
  if (entity_key.size() > kEntityKeyMax) throw Error(Code::invalid, "an entity key is longer than 4096 bytes");
  Address out;
  std::copy(prefix_.begin(), prefix_.end(), out.begin());
  const auto entity = crypto::record_name(address_key_, entity_key);
  std::copy(entity.begin(), entity.end(), out.begin() + 16);
  return out;
}

const NumberedKey& Space::key(std::uint32_t number) const {
  if (number == keys_.back().number) return keys_.back();
  const auto found = std::find_if(keys_.begin(), keys_.end(), [&](const auto& k) { return k.number == number; });
  if (found == keys_.end()) throw Error(Code::denied, "no key to open a row: number " + std::to_string(number));
  return *found;
}

Space::Sealing::Sealing(const Space& space) : space_(space) {
  if (!space.seals()) return;
  {
    Lock lock(space.idle_->mu);
    if (!space.idle_->sealers.empty()) {
      sealer_.emplace(std::move(space.idle_->sealers.back()));
      space.idle_->sealers.pop_back();
    }
  }
  if (!sealer_) sealer_.emplace(space.keys_.back().key);
}

Space::Sealing::~Sealing() {
  if (!sealer_) return;
  Lock lock(space_.idle_->mu);
  if (space_.idle_->sealers.size() < kIdleMax) space_.idle_->sealers.push_back(std::move(*sealer_));
}

void Space::Sealing::append_record(Bytes& out, const Address& address, const Row& row) {
  if (row.payload.size() > kPayloadMax) throw Error(Code::invalid, "a row is larger than 1 MiB");
  const auto head = make_head(sealer_ ? kSealed : kClear, sealer_ ? space_.keys_.back().number : 0, row);
  out.insert(out.end(), head.begin(), head.end());
  if (sealer_) {
    sealer_->seal_onto(out, context_of(head, address), row.payload);
  } else {
    out.insert(out.end(), row.payload.begin(), row.payload.end());
  }
}

Space::Opening::~Opening() {
  if (!opener_ || number_ != space_.keys_.back().number) return;
  Lock lock(space_.idle_->mu);
  if (space_.idle_->openers.size() < kIdleMax) space_.idle_->openers.push_back(std::move(*opener_));
}

Row Space::Opening::open(const Address& address, BytesView record, std::byte* out) {
  if (record.size() < kRecordHeadBytes) throw Error(Code::corrupt, "a stored record is too short");
  const auto format = static_cast<std::uint8_t>(record[0]);
  Row row{get_order(record.data() + kOrderAt), get_order(record.data() + kOrderAt + 8), {}};
  const auto body = record.subspan(kRecordHeadBytes);
  // Which format a space has is not for the record to say: else one in the clear could stand in for a sealed one.
  if (format != (space_.seals() ? kSealed : kClear)) throw Error(Code::corrupt, "a stored record has another format");
  if (!space_.seals()) {
    row.payload = body;
    return row;
  }
  std::uint32_t number = 0;
  std::memcpy(&number, record.data() + 4, 4);
  if (!opener_ || number != number_) {
    const auto& numbered = space_.key(number);
    std::optional<crypto::RecordOpener> next;
    if (number == space_.keys_.back().number) {
      Lock lock(space_.idle_->mu);
      if (!space_.idle_->openers.empty()) {
        next.emplace(std::move(space_.idle_->openers.back()));
        space_.idle_->openers.pop_back();
      }
    }
    if (!next) next.emplace(numbered.key);
    opener_.reset();
    opener_.emplace(std::move(*next));
    number_ = number;
  }
  opener_->open(context_of(record, address), body, out);
  row.payload = {out, body.size() - crypto::kRecordOverheadBytes};
  return row;
}

void Space::must_have_key_of(BytesView record) const {
  std::uint32_t number = 0;
  std::memcpy(&number, record.data() + 4, 4);
  key(number);
}

std::size_t Space::payload_size(BytesView record) {
  constexpr std::size_t kOther = kRecordHeadBytes + crypto::kRecordOverheadBytes;
  return record.size() > kOther && record[0] == std::byte{kSealed} ? record.size() - kOther : 0;
}

}  // namespace falaj::online
