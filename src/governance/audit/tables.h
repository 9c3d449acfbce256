// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to this directory: the shape of the stored tree.

#include <cstdint>

#include "governance/audit/merkle.h"
#include "governance/audit/record.h"
#include "storage/sql/database.h"

namespace falaj::audit {

// Nodes are stored for subtrees of 256, 256^2, ... leaves (levels 1, 2, ...): 1/8 byte for each record, and any
// subtree's hash is found by reading at most 255 hashes a level.
inline constexpr std::int64_t kFanOut = 256;
inline constexpr int kFanOutBits = 8;
inline constexpr std::int64_t kHeadsKeptEvery = 1000;

// From the columns sequence, unix_us, actor, verb, resource, request_id, outcome, effects, details.
Record read_record(const sql::Row& row);

// Hashes of subtrees of the stored tree, read as needed. For one snapshot.
class StoredTree {
 public:
  explicit StoredTree(sql::Reader& reader) : reader_(reader) {}
  Digest subtree(std::uint64_t begin, std::uint64_t end);

 private:
  // Level 0 are the leaves. Reads a whole run of siblings at once and keeps the runs it read.
  Digest stored(int level, std::uint64_t position);
  struct Run {
    int level;
    std::uint64_t number;
    std::vector<Digest> hashes;
  };
  sql::Reader& reader_;
  std::vector<Run> runs_;
};

// The stored head and the frontier that belongs to it.
struct StoredTip {
  std::int64_t size, unix_us;
  Digest root;
  Bytes frontier, signature;
};
StoredTip read_tip(sql::Reader& reader);  // throws corrupt when there is none

}  // namespace falaj::audit
