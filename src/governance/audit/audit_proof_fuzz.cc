// SPDX-License-Identifier: Apache-2.0
#include "foundation/base/error.h"
#include "governance/audit/proof.h"

// Whatever the bytes: a proof, or one of two errors; never a crash.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace falaj;
  try {
    const auto value = parse_json({reinterpret_cast<const char*>(data), size});
    const auto proved = audit::check_proof(value);
    CHECK(audit::is_genuine(proved.head, proved.key), "a proof that holds has a genuine head");
  } catch (const Error& error) {
    CHECK(error.code() == Code::invalid || error.code() == Code::corrupt, "no other error");
  }
  return 0;
}
