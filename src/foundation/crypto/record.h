// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "foundation/base/bytes.h"
#include "foundation/crypto/key.h"

namespace falaj::crypto {

// The narrow door beside aead.h, for rows of a few hundred bytes read a million times a second, where a salt and a key
// derivation for each would cost more than the row: AES-256-GCM under one key, nonce || ciphertext || tag.
// docs/formats/sealed_record.md has the layout and why nonces do not repeat. Both classes hold a cipher that is set up
// once: keep them, one thread at a time.
inline constexpr std::size_t kRecordNonceBytes = 12;
inline constexpr std::size_t kRecordTagBytes = 16;
inline constexpr std::size_t kRecordOverheadBytes = kRecordNonceBytes + kRecordTagBytes;

// A nonce is 64 bits drawn at random for this sealer and a 32-bit counter; at its end the sealer draws again.
class RecordSealer {
 public:
  explicit RecordSealer(const Key& key);
  ~RecordSealer();
  RecordSealer(RecordSealer&&) noexcept;
  // Appends the sealed record. `context` says what and where it is, and must be the same when it is opened.
  void seal_onto(Bytes& out, BytesView context, BytesView plain);

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

class RecordOpener {
 public:
  explicit RecordOpener(const Key& key);
  ~RecordOpener();
  RecordOpener(RecordOpener&&) noexcept;
  // Writes sealed.size() - kRecordOverheadBytes bytes to `out`. Throws corrupt, and then `out` must not be used.
  void open(BytesView context, BytesView sealed, std::byte* out);

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

// Names a record without telling what it is called: SipHash-2-4 with 128 bits, a pseudo-random function made for short
// inputs, under the first half of the key. Who lacks the key can neither find a name nor test a guess.
using RecordName = std::array<std::byte, 16>;
RecordName record_name(const Key& key, BytesView name);

}  // namespace falaj::crypto
