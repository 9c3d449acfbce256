// SPDX-License-Identifier: Apache-2.0
#include "governance/iam/workload.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/bytes.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"

namespace falaj::iam {
namespace {

constexpr std::string_view kPrefix = "falajw_";
constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kMacChars = 43;  // 32 bytes in base64url

Bytes encode(const WorkloadClaims& claims) {
  ByteWriter out;
  out.u8(kVersion);
  out.text(claims.job);
  out.u64(static_cast<std::uint64_t>(claims.epoch));
  out.text(claims.tenant);
  out.text(claims.project);
  out.u64(static_cast<std::uint64_t>(claims.issued_us));
  out.u64(static_cast<std::uint64_t>(claims.expires_us));
  for (const auto* scopes : {&claims.inputs, &claims.outputs}) {
    out.u32(static_cast<std::uint32_t>(scopes->size()));
    for (const auto& scope : *scopes) out.text(scope.str());
  }
  return out.take();
}

// Throws Error when the bytes are not what encode writes.
WorkloadClaims decode(BytesView bytes) {
  ByteReader in(bytes, Scope::kPathBytesMax);
  if (in.u8() != kVersion) throw Error(Code::invalid, "workload token of another version");
  WorkloadClaims claims;
  claims.job = in.text();
  claims.epoch = static_cast<std::int64_t>(in.u64());
  claims.tenant = in.text();
  claims.project = in.text();
  claims.issued_us = static_cast<std::int64_t>(in.u64());
  claims.expires_us = static_cast<std::int64_t>(in.u64());
  for (auto* scopes : {&claims.inputs, &claims.outputs})
    for (auto n = in.u32(); n > 0; --n) scopes->push_back(Scope::parse(in.text()));
  in.expect_end();
  return claims;
}

Digest mac(const crypto::Key& key, std::string_view payload) {
  // The prefix is part of what is signed, so no other use of the key can make a token.
  return crypto::hmac_sha256(key, as_bytes(fmt::format("{}{}", kPrefix, payload)));
}

void require_sound(const WorkloadClaims& claims) {
  if (!is_name(claims.job) || !is_name(claims.tenant) || !is_name(claims.project))
    throw Error(Code::invalid, fmt::format("workload token: job, tenant and project must be {}", kNameRule));
  if (claims.expires_us <= claims.issued_us || claims.expires_us - claims.issued_us > kWorkloadLifeMaxUs)
    throw Error(Code::invalid,
                fmt::format("workload token must live at most {}", format_duration_us(kWorkloadLifeMaxUs)));
  for (const auto* scopes : {&claims.inputs, &claims.outputs})
    for (const auto& scope : *scopes)
      if (scope.tenant() != claims.tenant || scope.kind().empty())
        throw Error(Code::invalid,
                    fmt::format("workload token: not a thing of tenant {}: {}", claims.tenant, scope.str()));
}

}  // namespace

std::string sign_workload(const crypto::Key& key, const WorkloadClaims& claims) {
  require_sound(claims);
  const auto payload = to_base64url(encode(claims));
  const auto token = fmt::format("{}{}.{}", kPrefix, payload, to_base64url(mac(key, payload).view()));
  if (token.size() > kWorkloadTokenCharsMax)
    throw Error(Code::invalid, fmt::format("workload token of {} bytes is above {}: name fewer inputs and outputs",
                                           token.size(), kWorkloadTokenCharsMax));
  return token;
}

bool is_workload_token(std::string_view text) { return text.starts_with(kPrefix); }

std::optional<WorkloadClaims> verify_workload(const crypto::Key& key, std::string_view token, std::int64_t now_us) {
  if (!is_workload_token(token) || token.size() > kWorkloadTokenCharsMax ||
      token.size() < kPrefix.size() + kMacChars + 1)
    return std::nullopt;
  const auto dot = token.size() - kMacChars - 1;
  if (token[dot] != '.') return std::nullopt;
  const auto payload = token.substr(kPrefix.size(), dot - kPrefix.size());
  // Compared as text: then every accepted token has exactly one spelling, and nothing is parsed before it is ours.
  const auto wanted = to_base64url(mac(key, payload).view());
  if (!crypto::equal_in_constant_time(as_bytes(wanted), as_bytes(token.substr(dot + 1)))) return std::nullopt;
  try {
    auto claims = decode(from_base64url(payload));
    require_sound(claims);
    if (now_us < claims.issued_us || now_us >= claims.expires_us) return std::nullopt;
    return claims;
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool permits(const WorkloadClaims& claims, std::string_view action, const Scope& resource) {
  const auto verb = action.substr(std::min(action.rfind('.'), action.size()));
  const auto names = [&](const std::vector<Scope>& scopes) {
    return std::find(scopes.begin(), scopes.end(), resource) != scopes.end();
  };
  if (verb == ".read") return names(claims.inputs) || names(claims.outputs);
  if (verb == ".create" || verb == ".write" || verb == ".update") return names(claims.outputs);
  return false;
}

}  // namespace falaj::iam
