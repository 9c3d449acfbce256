// SPDX-License-Identifier: Apache-2.0
#pragma once

// How records, heads and proofs look in JSON. Described, so that the API can say so too.

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "foundation/base/shape.h"

namespace falaj::audit {

inline constexpr std::int64_t kPathMax = 128;  // twice what a tree of 2^63 leaves needs

struct EffectJson {
  std::string resource;
  std::optional<std::string> before, after;
};
struct RecordJson {
  std::int64_t sequence = 0, unix_us = 0;
  std::string actor, verb, resource, request_id, outcome;
  std::vector<EffectJson> effects;
  std::string details;
};
struct HeadJson {
  std::int64_t size = 0;
  std::string root;
  std::int64_t unix_us = 0;
  std::string signature;
};

struct InclusionJson {
  std::string format;
  json::value record, head;
  std::vector<std::string> path;
  std::string public_key;
};
struct SizeJson {
  std::int64_t size = 0;
  std::string root;
};
struct ConsistencyJson {
  std::string format;
  SizeJson first, second;
  std::vector<std::string> path;
};

}  // namespace falaj::audit

namespace falaj {

template <>
struct Shape<audit::EffectJson> {
  using T = audit::EffectJson;
  static constexpr std::string_view name = "AuditEffect";
  static Fields fields() {
    return {field("resource", &T::resource, "What changed.").required(),
            field("before", &T::before, "Digest of it before; absent: it was not there."),
            field("after", &T::after, "Digest of it after; absent: it is gone.")};
  }
};
template <>
struct Shape<audit::RecordJson> {
  using T = audit::RecordJson;
  static constexpr std::string_view name = "AuditRecord";
  static Fields fields() {
    return {field("sequence", &T::sequence, "Position in the log.")
                .required()
                .range(0, std::numeric_limits<std::int64_t>::max()),
            field("unix_us", &T::unix_us, "When, in microseconds since 1970.").required(),
            field("actor", &T::actor, "Who.").required(),
            field("verb", &T::verb, "Did what.").required(),
            field("resource", &T::resource, "To which thing.").required(),
            field("request_id", &T::request_id, "Under which API call.").required(),
            field("outcome", &T::outcome, "How it ended.").required(),
            field("effects", &T::effects, "What changed by it.").required(),
            field("details", &T::details, "More, as JSON text.")
                .required()
                .length(0, std::numeric_limits<std::int64_t>::max())};
  }
};
template <>
struct Shape<audit::HeadJson> {
  using T = audit::HeadJson;
  static constexpr std::string_view name = "AuditHead";
  static Fields fields() {
    return {
        field("size", &T::size, "Records in the log.").required().range(0, std::numeric_limits<std::int64_t>::max()),
        field("root", &T::root, "Root of the Merkle tree over them.").required(),
        field("unix_us", &T::unix_us, "Time of the newest.").required(),
        field("signature", &T::signature, "Ed25519 over the three.").required()};
  }
};

template <>
struct Shape<audit::InclusionJson> {
  using T = audit::InclusionJson;
  static constexpr std::string_view name = "AuditProof";
  static Fields fields() {
    return {field("format", &T::format, "Kind and version.").required(),
            field("record", &T::record, "The record.").required(),
            field("path", &T::path, "Hashes from the record to the root.").required().length(0, audit::kPathMax),
            field("head", &T::head, "The signed head.").required(),
            field("public_key", &T::public_key, "Whose signature it is.").required()};
  }
};
template <>
struct Shape<audit::SizeJson> {
  using T = audit::SizeJson;
  static constexpr std::string_view name = "AuditTreeSize";
  static Fields fields() {
    return {field("size", &T::size, "Records.").required().range(1, std::numeric_limits<std::int64_t>::max()),
            field("root", &T::root, "Root over them.").required()};
  }
};
template <>
struct Shape<audit::ConsistencyJson> {
  using T = audit::ConsistencyJson;
  static constexpr std::string_view name = "AuditConsistency";
  static Fields fields() {
    return {field("format", &T::format, "Kind and version.").required(),
            field("first", &T::first, "The shorter log.").required(),
            field("second", &T::second, "The longer log.").required(),
            field("path", &T::path, "Hashes that join the two.").required().length(0, audit::kPathMax)};
  }
};

}  // namespace falaj
