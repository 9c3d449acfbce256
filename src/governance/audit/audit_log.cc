// SPDX-License-Identifier: Apache-2.0
#include "governance/audit/audit_log.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "governance/audit/proof.h"
#include "governance/audit/tables.h"

namespace falaj::audit {

namespace {

constexpr std::size_t kPageMax = 1000;
constexpr std::int64_t kScanStep = 1000;
constexpr std::int64_t kScanMax = 10'000;  // records looked at for one page, when the filter lets few through

Bytes join(std::span<const Digest> hashes) {
  Bytes out;
  for (const auto& h : hashes) out.insert(out.end(), h.bytes.begin(), h.bytes.end());
  return out;
}

Frontier parse_frontier(std::int64_t size, BytesView bytes) {
  std::vector<Digest> hashes(bytes.size() / sizeof(Digest::bytes));
  if (size < 0 || bytes.size() % sizeof(Digest::bytes) != 0)
    throw Error(Code::corrupt, "the audit log's frontier is damaged");
  for (std::size_t i = 0; i < hashes.size(); ++i)
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(i * 32), 32, hashes[i].bytes.begin());
  return Frontier(static_cast<std::uint64_t>(size), hashes);
}

SignedHead to_head(const StoredTip& tip) { return {{tip.size, tip.root, tip.unix_us}, parse_signature(tip.signature)}; }

json::array to_json(std::span<const Digest> path) {
  json::array out;
  for (const auto& hash : path) out.emplace_back(hash.hex());
  return out;
}

// Times never go back in the log, so a time is found by halving.
std::int64_t first_at_or_after(sql::Reader& reader, std::int64_t unix_us, std::int64_t size) {
  std::int64_t low = 0, high = size;
  while (low < high) {
    const auto middle = low + (high - low) / 2;
    const auto time = reader.first("SELECT unix_us FROM audit_record WHERE sequence = ?", {middle},
                                   [](const sql::Row& row) { return row.integer(0); });
    if (!time) throw Error(Code::corrupt, fmt::format("the audit log lacks record {}: verify it", middle));
    if (*time < unix_us)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// The least text above every text that begins with `prefix`; nothing if there is none.
std::optional<std::string> after_prefix(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) >= 0x7f) prefix.pop_back();
  if (prefix.empty()) return std::nullopt;
  ++prefix.back();
  return prefix;
}

// Hands the candidates among records [from, until) to `each`, newest first. Which index serves depends on the filter.
void scan(sql::Reader& reader, const Filter& f, std::int64_t from, std::int64_t until, std::int64_t rows_max,
          const sql::EachRow& each) {
  if (!f.resource_prefix.empty()) {
    const auto above = after_prefix(f.resource_prefix);
    reader.query(
        "SELECT sequence, unix_us, actor, verb, resource, request_id, outcome, effects, details FROM audit_record"
        " WHERE resource >= ? AND (? = 0 OR resource < ?) AND sequence >= ? AND sequence < ? ORDER BY sequence DESC "
        "LIMIT ?",
        {f.resource_prefix, std::int64_t{above ? 1 : 0}, std::string_view(above ? *above : ""), from, until, rows_max},
        each);
  } else if (!f.actor.empty()) {
    reader.query(
        "SELECT sequence, unix_us, actor, verb, resource, request_id, outcome, effects, details FROM audit_record"
        " WHERE actor = ? AND sequence >= ? AND sequence < ? ORDER BY sequence DESC LIMIT ?",
        {f.actor, from, until, rows_max}, each);
  } else {
    reader.query(
        "SELECT sequence, unix_us, actor, verb, resource, request_id, outcome, effects, details FROM audit_record"
        " WHERE sequence >= ? AND sequence < ? ORDER BY sequence DESC LIMIT ?",
        {from, until, rows_max}, each);
  }
}

bool lets_through(const Filter& f, const Record& r) {
  return (f.actor.empty() || r.actor == f.actor) && (f.outcome.empty() || r.outcome == f.outcome) &&
         (f.verb.empty() || matches_glob(f.verb, r.verb)) && r.resource.starts_with(f.resource_prefix);
}

}  // namespace

AuditLog::AuditLog(sql::Database& database, const sys::Clock& clock, const crypto::Signer& signer)
    : database_(database), clock_(clock), signer_(signer) {
  state_ = database_.read([&](sql::Reader& reader) { return load(reader); });
}

AuditLog::State AuditLog::load(sql::Reader& reader) const {
  const auto newest = reader.first("SELECT sequence FROM audit_record ORDER BY sequence DESC LIMIT 1", {},
                                   [](const sql::Row& row) { return row.integer(0); });
  const auto tips =
      *reader.first("SELECT COUNT(*) FROM audit_tip", {}, [](const sql::Row& row) { return row.integer(0); });
  if (!newest && tips == 0) return {};
  const auto tip = read_tip(reader);
  const auto head = to_head(tip);
  if (!is_genuine(head, signer_.public_key()))
    throw Error(Code::corrupt, "the audit log's head is not signed by this server's key");
  const State state{parse_frontier(tip.size, tip.frontier), tip.unix_us};
  if (state.frontier.root() != tip.root)
    throw Error(Code::corrupt, "the audit log's frontier does not give its signed root");
  if (newest.value_or(-1) + 1 != tip.size)
    throw Error(Code::corrupt, fmt::format("the audit log's head says {} records, but the newest is {}", tip.size,
                                           newest.value_or(-1)));
  return state;
}

void AuditLog::append(sql::Writer& in, const sql::Act& act, std::span<const sql::Effect> effects) {
  if (!state_) state_ = load(in);
  auto& state = *state_;
  Record record{static_cast<std::int64_t>(state.frontier.size()),
                std::max(state.unix_us, clock_.wall().count()),
                act.actor,
                act.verb,
                act.resource,
                act.request_id,
                act.outcome,
                {effects.begin(), effects.end()},
                act.details};
  const auto leaf = leaf_hash(encode(record));
  const auto packed = encode_effects(record.effects);
  in.execute(
      "INSERT INTO audit_record(sequence, unix_us, actor, verb, resource, request_id, outcome, effects, details, leaf)"
      " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      {record.sequence, record.unix_us, record.actor, record.verb, record.resource, record.request_id, record.outcome,
       BytesView(packed), record.details, leaf.view()});
  auto next = state;  // a write that fails below is rolled back alone: nothing of it may stay here
  next.unix_us = record.unix_us;
  next.frontier.push(leaf, [&](int height, const Digest& hash) {
    if (height % kFanOutBits != 0) return;
    in.execute("INSERT INTO audit_node(level, position, hash) VALUES (?, ?, ?)",
               {std::int64_t{height / kFanOutBits}, record.sequence >> height, hash.view()});
  });
  if (const auto size = record.sequence + 1; size % kHeadsKeptEvery == 0) {
    const auto kept = sign({size, next.frontier.root(), record.unix_us}, signer_);
    in.execute("INSERT INTO audit_head(size, root, unix_us, signature) VALUES (?, ?, ?, ?)",
               {size, kept.head.root.view(), record.unix_us, BytesView(kept.signature)});
  }
  state = next;
}

void AuditLog::seal(sql::Writer& in) {
  if (!state_) return;
  const auto tip =
      sign({static_cast<std::int64_t>(state_->frontier.size()), state_->frontier.root(), state_->unix_us}, signer_);
  const auto frontier = join(state_->frontier.hashes());
  in.execute(
      "INSERT INTO audit_tip(id, size, root, unix_us, signature, frontier) VALUES (1, ?, ?, ?, ?, ?)"
      " ON CONFLICT (id) DO UPDATE SET size = excluded.size, root = excluded.root, unix_us = excluded.unix_us,"
      " signature = excluded.signature, frontier = excluded.frontier",
      {tip.head.size, tip.head.root.view(), tip.head.unix_us, BytesView(tip.signature), BytesView(frontier)});
}

void AuditLog::committed(bool success) {
  if (!success) state_.reset();
}

void AuditLog::record_denied(sql::Act act, const json::object& why) {
  act.outcome = "denied";
  act.details = canonical(why);
  database_.write_erased(act, [](sql::Writer&) {});
}

Page AuditLog::log(const Filter& filter, std::optional<std::int64_t> older_than, std::size_t limit) const {
  limit = std::clamp<std::size_t>(limit, 1, kPageMax);
  return database_.read([&](sql::Reader& reader) {
    const auto size = stored_head(reader).head.size;
    const auto from = filter.from_us <= 0 ? 0 : first_at_or_after(reader, filter.from_us, size);
    auto until = filter.until_us ? first_at_or_after(reader, *filter.until_us, size) : size;
    if (older_than) until = std::min(until, *older_than);
    Page page;
    // In steps, so that a filter that lets nearly all through reads little and one that lets few through ends.
    const bool picky =
        !filter.verb.empty() || !filter.outcome.empty() || (!filter.actor.empty() && !filter.resource_prefix.empty());
    const auto step = picky ? kScanStep : static_cast<std::int64_t>(limit);
    for (std::int64_t looked = 0; looked < kScanMax && page.records.size() < limit; looked += step) {
      std::int64_t rows = 0;
      scan(reader, filter, from, until, step, [&](const sql::Row& row) {
        ++rows;
        if (page.records.size() == limit) return;
        auto record = read_record(row);
        until = record.sequence;
        if (lets_through(filter, record)) page.records.push_back(std::move(record));
      });
      if (rows < step && page.records.size() < limit) return page;
    }
    if (until > from) page.older = until;
    return page;
  });
}

SignedHead AuditLog::stored_head(sql::Reader& reader) const {
  const auto tips =
      reader.first("SELECT COUNT(*) FROM audit_tip", {}, [](const sql::Row& row) { return row.integer(0); });
  return *tips == 0 ? sign({0, empty_root(), 0}, signer_) : to_head(read_tip(reader));
}

SignedHead AuditLog::head() const {
  return database_.read([&](sql::Reader& reader) { return stored_head(reader); });
}

json::object AuditLog::prove(std::int64_t sequence) const {
  return database_.read([&](sql::Reader& reader) {
    const auto head = stored_head(reader);
    if (sequence < 0 || sequence >= head.head.size)
      throw Error(Code::not_found, fmt::format("no such audit record: {}", sequence));
    const auto record = reader.first(
        "SELECT sequence, unix_us, actor, verb, resource, request_id, outcome, effects, details FROM audit_record"
        " WHERE sequence = ?",
        {sequence}, read_record);
    if (!record) throw Error(Code::corrupt, fmt::format("the audit log lacks record {}: verify it", sequence));
    StoredTree tree(reader);
    const auto path = inclusion_path(static_cast<std::uint64_t>(sequence), static_cast<std::uint64_t>(head.head.size),
                                     [&](auto begin, auto end) { return tree.subtree(begin, end); });
    return json::object{{"format", kInclusionFormat},
                        {"record", audit::to_json(*record)},
                        {"path", to_json(path)},
                        {"head", audit::to_json(head)},
                        {"public_key", to_hex(public_key())}};
  });
}

json::object AuditLog::prove_consistency(std::int64_t first, std::int64_t second) const {
  return database_.read([&](sql::Reader& reader) {
    const auto size = stored_head(reader).head.size;
    if (first < 1 || second < first || second > size)
      throw Error(Code::invalid, fmt::format("prove consistency: sizes must be 1 <= first <= second <= {}", size));
    StoredTree tree(reader);
    const SubtreeHash subtree = [&](auto begin, auto end) { return tree.subtree(begin, end); };
    const auto a = static_cast<std::uint64_t>(first), b = static_cast<std::uint64_t>(second);
    return json::object{{"format", kConsistencyFormat},
                        {"first", {{"size", first}, {"root", subtree(0, a).hex()}}},
                        {"second", {{"size", second}, {"root", subtree(0, b).hex()}}},
                        {"path", to_json(consistency_path(a, b, subtree))}};
  });
}

void AuditLog::export_jsonl(std::int64_t from, std::int64_t until,
                            const std::function<void(std::string_view)>& line) const {
  database_.read([&](sql::Reader& reader) {
    for (auto next = std::max<std::int64_t>(from, 0); next < until;) {
      const auto before = next;
      reader.query(
          "SELECT sequence, unix_us, actor, verb, resource, request_id, outcome, effects, details FROM audit_record"
          " WHERE sequence >= ? AND sequence < ? ORDER BY sequence LIMIT ?",
          {next, until, kScanMax}, [&](const sql::Row& row) {
            const auto record = read_record(row);
            line(canonical(audit::to_json(record)));
            next = record.sequence + 1;
          });
      if (next == before) return;
    }
  });
}

}  // namespace falaj::audit
