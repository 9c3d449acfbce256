// SPDX-License-Identifier: Apache-2.0
#include "governance/audit/proof.h"

#include "foundation/base/error.h"
#include "foundation/base/shape.h"
#include "governance/audit/merkle.h"

namespace falaj::audit {

namespace {

constexpr std::int64_t kPathMax = 128;  // twice what a tree of 2^63 leaves needs

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

std::vector<Digest> parse_path(const std::vector<std::string>& path) {
  std::vector<Digest> out;
  for (const auto& hash : path) out.push_back(Digest::parse(hash));
  return out;
}

void expect_format(const std::string& got, std::string_view wanted) {
  if (got != wanted) throw Error(Code::invalid, "check proof: not of this kind: " + std::string(wanted));
}

}  // namespace
}  // namespace falaj::audit

namespace falaj {

template <>
struct Shape<audit::InclusionJson> {
  using T = audit::InclusionJson;
  static constexpr std::string_view name = "AuditProof";
  static constexpr auto fields = std::make_tuple(
      field("format", &T::format, "Kind and version.").required(),
      field("record", &T::record, "The record.").required(),
      field("path", &T::path, "Hashes from the record to the root.").required().length(0, audit::kPathMax),
      field("head", &T::head, "The signed head.").required(),
      field("public_key", &T::public_key, "Whose signature it is.").required());
};
template <>
struct Shape<audit::SizeJson> {
  using T = audit::SizeJson;
  static constexpr std::string_view name = "AuditTreeSize";
  static constexpr auto fields = std::make_tuple(field("size", &T::size, "Records.").required().range(1, INT64_MAX),
                                                 field("root", &T::root, "Root over them.").required());
};
template <>
struct Shape<audit::ConsistencyJson> {
  using T = audit::ConsistencyJson;
  static constexpr std::string_view name = "AuditConsistency";
  static constexpr auto fields =
      std::make_tuple(field("format", &T::format, "Kind and version.").required(),
                      field("first", &T::first, "The shorter log.").required(),
                      field("second", &T::second, "The longer log.").required(),
                      field("path", &T::path, "Hashes that join the two.").required().length(0, audit::kPathMax));
};

}  // namespace falaj

namespace falaj::audit {

Proved check_proof(const json::value& proof) {
  const auto in = decode<InclusionJson>(proof, "check proof");
  expect_format(in.format, kInclusionFormat);
  Proved proved{record_from_json(in.record), head_from_json(in.head), parse_public_key(in.public_key)};
  if (!is_genuine(proved.head, proved.key)) throw Error(Code::corrupt, "the proof's head is not signed by its key");
  const auto root =
      root_of_inclusion(leaf_hash(encode(proved.record)), static_cast<std::uint64_t>(proved.record.sequence),
                        static_cast<std::uint64_t>(proved.head.head.size), parse_path(in.path));
  if (root != proved.head.head.root)
    throw Error(Code::corrupt, "the proof's path does not lead from its record to its head");
  return proved;
}

void check_consistency(const json::value& proof, const Head& first, const Head& second) {
  const auto in = decode<ConsistencyJson>(proof, "check consistency");
  expect_format(in.format, kConsistencyFormat);
  if (in.first.size != first.size || Digest::parse(in.first.root) != first.root || in.second.size != second.size ||
      Digest::parse(in.second.root) != second.root)
    throw Error(Code::corrupt, "the proof is about other heads");
  if (!is_consistent(static_cast<std::uint64_t>(first.size), first.root, static_cast<std::uint64_t>(second.size),
                     second.root, parse_path(in.path)))
    throw Error(Code::corrupt, "the longer log does not begin with the shorter one");
}

}  // namespace falaj::audit
