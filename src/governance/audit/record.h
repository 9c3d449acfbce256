// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/base/json.h"
#include "foundation/crypto/sign.h"
#include "storage/sql/database.h"

namespace falaj::audit {

// One thing that happened, or was refused.
struct Record {
  std::int64_t sequence = 0;  // from 0, without gaps
  std::int64_t unix_us = 0;   // never less than the record before
  std::string actor, verb, resource, request_id;
  std::string outcome;  // "ok", "denied"
  std::vector<sql::Effect> effects;
  std::string details;  // JSON, or ""
};

// The bytes that the tree is over: docs/formats/audit_log.md. Never changes; a second version would have another
// number.
Bytes encode(const Record& record);
// The part of it that the database keeps as bytes.
Bytes encode_effects(std::span<const sql::Effect> effects);
std::vector<sql::Effect> decode_effects(BytesView bytes);  // throws corrupt

json::object to_json(const Record& record);
Record record_from_json(const json::value& value);  // throws invalid

// The state of the whole log: its length and the root of its tree.
struct Head {
  std::int64_t size = 0;
  Digest root;
  std::int64_t unix_us = 0;  // of the newest record
  friend bool operator==(const Head&, const Head&) = default;
};
struct SignedHead {
  Head head;
  crypto::Signature signature{};
};

SignedHead sign(const Head& head, const crypto::Signer& signer);
bool is_genuine(const SignedHead& head, const crypto::PublicKey& key);
json::object to_json(const SignedHead& head);
SignedHead head_from_json(const json::value& value);  // throws invalid

crypto::Signature parse_signature(BytesView bytes);        // throws invalid
crypto::PublicKey parse_public_key(std::string_view hex);  // throws invalid

}  // namespace falaj::audit
