// SPDX-License-Identifier: Apache-2.0
// Every text a stranger may send as a credential: parsed without fault, and what is accepted has one spelling.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "foundation/base/error.h"
#include "governance/iam/credentials.h"
#include "governance/iam/principal.h"
#include "governance/iam/scope.h"
#include "governance/iam/workload.h"

using namespace falaj;
using namespace falaj::iam;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto kind : {CredentialKind::token, CredentialKind::session})
    if (const auto c = parse_credential(kind, text)) CHECK(format_credential(kind, *c) == text, "one spelling");
  static const auto key = crypto::Key::from(as_bytes("0123456789abcdef0123456789abcdef"));
  if (const auto claims = verify_workload(key, text, 2'000'000))
    CHECK(sign_workload(key, *claims) == text, "one spelling");
  try {
    CHECK(Scope::parse(text).str() == text, "one spelling");
  } catch (const Error&) {
  }
  try {
    CHECK(Principal::parse(text).str() == text, "one spelling");
  } catch (const Error&) {
  }
  return 0;
}
