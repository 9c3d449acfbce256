// SPDX-License-Identifier: Apache-2.0
#include "governance/audit/proof.h"

#include "foundation/base/error.h"
#include "governance/audit/json_form.h"
#include "governance/audit/merkle.h"

namespace falaj::audit {

namespace {

std::vector<Digest> parse_path(const std::vector<std::string>& path) {
  std::vector<Digest> out;
  for (const auto& hash : path) out.push_back(Digest::parse(hash));
  return out;
}

void expect_format(const std::string& got, std::string_view wanted) {
  if (got != wanted) throw Error(Code::invalid, "check proof: not of this kind: " + std::string(wanted));
}

}  // namespace

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
