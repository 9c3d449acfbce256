// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <memory>
#include <string_view>

#include "foundation/base/bytes.h"

namespace falaj::crypto {

Digest sha256(BytesView bytes);
inline Digest sha256(std::string_view text) { return sha256(as_bytes(text)); }
Digest sha256(std::initializer_list<BytesView> parts);  // of their concatenation

// SHA-256 of bytes that arrive piece by piece. finish() also makes it ready for the next.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(BytesView bytes);
  Digest finish();

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

bool equal_in_constant_time(BytesView a, BytesView b);  // lengths may be seen

}  // namespace falaj::crypto
