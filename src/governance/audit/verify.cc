// SPDX-License-Identifier: Apache-2.0
#include "governance/audit/verify.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <limits>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "governance/audit/merkle.h"
#include "governance/audit/tables.h"

namespace falaj::audit {

namespace {

constexpr std::int64_t kRowsAtOnce = 4096;

// MTH of RFC 9162, word for word.
Digest tree_hash(std::span<const Digest> leaves) {
  if (leaves.empty()) return empty_root();
  if (leaves.size() == 1) return leaves[0];
  const auto k = split_point(leaves.size());
  return node_hash(tree_hash(leaves.first(k)), tree_hash(leaves.subspan(k)));
}

// The tree so far, kept as complete blocks of 256 leaves, joined two by two, and the leaves of the block not yet
// complete.
class GrowingTree {
 public:
  // True when the leaf completed a block.
  bool add(const Digest& leaf) {
    open_.push_back(leaf);
    if (open_.size() < kFanOut) return false;
    auto hash = tree_hash(open_);
    open_.clear();
    for (std::size_t height = 0;; ++height) {
      if (height == joined_.size()) joined_.emplace_back();
      joined_[height].push_back(hash);
      if (joined_[height].size() % 2 != 0) return true;
      hash = node_hash(joined_[height].end()[-2], hash);
    }
  }
  std::size_t blocks() const { return joined_.empty() ? 0 : joined_[0].size(); }
  // Of the newest complete subtree of 2^height blocks.
  const Digest& newest(std::size_t height) const { return joined_[height].back(); }
  Digest root() const {
    const auto all = blocks() + !open_.empty();
    return all == 0 ? empty_root() : hash(0, all);
  }

 private:
  Digest hash(std::size_t begin, std::size_t end) const {
    const auto size = end - begin;
    if (end <= blocks() && std::has_single_bit(size) && begin % size == 0)
      return joined_[static_cast<std::size_t>(std::countr_zero(size))][begin / size];
    if (size == 1) return tree_hash(open_);
    const auto middle = begin + split_point(size);
    return node_hash(hash(begin, middle), hash(middle, end));
  }
  std::vector<std::vector<Digest>> joined_;  // by height above a block
  std::vector<Digest> open_;
};

// What is wrong with the log; ends the check.
struct Broken {
  std::optional<std::int64_t> record;
  std::string why;
};

class Check {
 public:
  Check(sql::Reader& reader, const crypto::PublicKey& key, const VerifyOptions& options)
      : reader_(reader), key_(key), options_(options) {}

  void run();
  std::int64_t records() const { return next_; }
  const std::optional<SignedHead>& head() const { return head_; }

 private:
  void read_heads();
  void read_records();
  void check_record(const sql::Row& row);
  void check_nodes();
  void check_heads();
  void check_root(const Head& head, const std::string& which);
  void check_end();
  std::int64_t count(sql::Query query) {
    return *reader_.first(query, {}, [](const sql::Row& row) { return row.integer(0); });
  }

  sql::Reader& reader_;
  const crypto::PublicKey& key_;
  const VerifyOptions& options_;
  GrowingTree tree_;
  std::optional<SignedHead> head_;
  std::deque<SignedHead> kept_;  // heads still ahead of us, by size
  std::int64_t next_ = 0;        // the sequence of the next record
  std::int64_t proven_ = 0;      // all records before it are under a genuine head
  std::int64_t nodes_ = 0;
};

SignedHead signed_head(const sql::Row& row, int column) {
  return {{row.integer(column), row.digest(column + 1), row.integer(column + 2)},
          parse_signature(row.bytes(column + 3))};
}

void Check::read_heads() {
  try {
    head_ = reader_.first("SELECT size, root, unix_us, signature FROM audit_tip WHERE id = 1", {},
                          [](const sql::Row& row) { return signed_head(row, 0); });
  } catch (const Error&) {
    throw Broken{{}, "the head of the log cannot be read"};
  }
  if (head_ && !is_genuine(*head_, key_)) throw Broken{{}, "the head of the log has a false signature"};
  if (options_.earlier && !is_genuine(*options_.earlier, key_))
    throw Broken{{}, "the earlier head that was given is not signed by this log's key"};
  reader_.query("SELECT size, root, unix_us, signature FROM audit_head ORDER BY size", {}, [&](const sql::Row& row) {
    const auto size = row.integer(0);
    try {
      kept_.push_back(signed_head(row, 0));
    } catch (const Error&) {
      throw Broken{{}, fmt::format("the head kept at {} records cannot be read", size)};
    }
  });
}

void Check::check_record(const sql::Row& row) {
  const auto sequence = row.integer(0);
  if (sequence < next_) throw Broken{sequence, fmt::format("record {} was inserted", sequence)};
  if (sequence > next_) throw Broken{next_, fmt::format("record {} is missing", next_)};
  Digest leaf, stored;
  try {
    leaf = leaf_hash(encode(read_record(row)));
    stored = row.digest(9);
  } catch (const Error& error) {
    throw Broken{sequence, fmt::format("record {} was altered: {}", sequence, error.what())};
  }
  if (leaf != stored)
    throw Broken{sequence, fmt::format("record {} was altered: its content does not give its leaf", sequence)};
  const bool block = tree_.add(leaf);
  ++next_;
  if (block) check_nodes();
  check_heads();
}

// A complete block may also complete larger subtrees whose hashes are stored.
void Check::check_nodes() {
  for (int level = 1; next_ % (std::int64_t{1} << (kFanOutBits * level)) == 0; ++level) {
    const auto span = std::int64_t{1} << (kFanOutBits * level);
    const auto position = next_ / span - 1;
    const auto where = fmt::format("{} to {}", next_ - span, next_ - 1);
    std::optional<Digest> hash;
    try {
      hash = reader_.first("SELECT hash FROM audit_node WHERE level = ? AND position = ?",
                           {std::int64_t{level}, position}, [](const sql::Row& row) { return row.digest(0); });
    } catch (const Error&) {
      throw Broken{next_ - span, "the tree node over records " + where + " cannot be read"};
    }
    if (!hash) throw Broken{next_ - span, "the tree node over records " + where + " is missing"};
    if (*hash != tree_.newest(static_cast<std::size_t>(kFanOutBits * (level - 1))))
      throw Broken{std::max(proven_, next_ - span),
                   "the tree node over records " + where + " is not theirs: it or they were altered"};
    ++nodes_;
  }
}

void Check::check_root(const Head& head, const std::string& which) {
  if (tree_.root() != head.root)
    throw Broken{proven_, fmt::format("records {} to {} are not those that {} signs", proven_, next_ - 1, which)};
  proven_ = next_;
}

void Check::check_heads() {
  if (next_ % kHeadsKeptEvery == 0) {
    const auto which = fmt::format("the head kept at {} records", next_);
    if (kept_.empty() || kept_.front().head.size > next_) throw Broken{{}, which + " is missing"};
    const auto kept = kept_.front();
    kept_.pop_front();
    if (kept.head.size != next_)
      throw Broken{{}, fmt::format("the head kept at {} records was inserted", kept.head.size)};
    if (!is_genuine(kept, key_)) throw Broken{{}, which + " has a false signature"};
    check_root(kept.head, which);
  }
  if (options_.earlier && options_.earlier->head.size == next_) check_root(options_.earlier->head, "the earlier head");
}

void Check::read_records() {
  const auto all = head_ ? head_->head.size : 0;
  for (auto from = std::numeric_limits<std::int64_t>::min();;) {
    const auto before = next_;
    reader_.query(
        "SELECT sequence, unix_us, actor, verb, resource, request_id, outcome, effects, details, leaf FROM audit_record"
        " WHERE sequence >= ? ORDER BY sequence LIMIT ?",
        {from, kRowsAtOnce}, [&](const sql::Row& row) { check_record(row); });
    if (next_ == before) return;
    from = next_;
    if (options_.progress) options_.progress(next_, all);
  }
}

void Check::check_end() {
  if (!head_) {
    if (next_ > 0) throw Broken{0, "the log has records but no head"};
  } else {
    const auto& head = head_->head;
    if (next_ < head.size)
      throw Broken{next_, fmt::format("record {} is missing, and all after it: the head signs {}", next_, head.size)};
    if (next_ > head.size)
      throw Broken{head.size, fmt::format("record {} was inserted: the head signs only those before it", head.size)};
    check_root(head, "the head");
    StoredTip tip = read_tip(reader_);
    std::vector<Digest> hashes(tip.frontier.size() / 32);
    for (std::size_t i = 0; i < hashes.size(); ++i)
      std::copy_n(tip.frontier.begin() + static_cast<std::ptrdiff_t>(32 * i), 32, hashes[i].bytes.begin());
    if (tip.frontier.size() % 32 != 0 ||
        static_cast<int>(hashes.size()) != std::popcount(static_cast<std::uint64_t>(head.size)) ||
        Frontier(static_cast<std::uint64_t>(head.size), hashes).root() != head.root)
      throw Broken{{}, "the frontier of the head was altered"};
  }
  if (!kept_.empty())
    throw Broken{{}, fmt::format("the head kept at {} records was inserted", kept_.front().head.size)};
  if (count("SELECT COUNT(*) FROM audit_node") != nodes_) throw Broken{{}, "tree nodes were inserted"};
  if (options_.earlier && options_.earlier->head.size > next_)
    throw Broken{next_, fmt::format("record {} is missing, and all after it: the earlier head signs {}", next_,
                                    options_.earlier->head.size)};
}

void Check::run() {
  read_heads();
  if (options_.earlier && options_.earlier->head.size == 0) check_root(options_.earlier->head, "the earlier head");
  read_records();
  check_end();
}

}  // namespace

Verdict verify(sql::Database& database, const crypto::PublicKey& key, const VerifyOptions& options) {
  return database.read([&](sql::Reader& reader) {
    Check check(reader, key, options);
    Verdict verdict;
    try {
      check.run();
      verdict.intact = true;
    } catch (const Broken& broken) {
      verdict.record = broken.record;
      verdict.why = broken.why;
    } catch (const Error& error) {
      if (error.code() != Code::corrupt && error.code() != Code::internal) throw;
      verdict.record = check.records();
      verdict.why = fmt::format("record {} or what belongs to it cannot be read: {}", check.records(), error.what());
    }
    verdict.records = check.records();
    verdict.head = check.head();
    return verdict;
  });
}

}  // namespace falaj::audit
