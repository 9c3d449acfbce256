// SPDX-License-Identifier: Apache-2.0
#include "storage/sql/database.h"

#include <algorithm>

#include "foundation/base/error.h"

namespace falaj::sql {

Digest Row::digest(int column) const {
  const auto stored = bytes(column);
  Digest digest;
  if (stored.size() != digest.bytes.size()) throw Error(Code::corrupt, "a stored digest has not 32 bytes");
  std::copy(stored.begin(), stored.end(), digest.bytes.begin());
  return digest;
}

}  // namespace falaj::sql
