// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/promotions.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/models/tables.h"
#include "lifecycle/track/names.h"
#include "lifecycle/track/tables.h"

namespace falaj::models {

namespace {

struct PromotionRow {
  std::int64_t model = 0;
  Promotion promotion;
};

PromotionState parse_state(std::string_view text) {
  return text == "done"       ? PromotionState::done
         : text == "rejected" ? PromotionState::rejected
                              : PromotionState::pending;
}

PromotionRow read_promotion(const sql::Row& row) {
  PromotionRow out;
  auto& p = out.promotion;
  p.id = row.integer(0);
  out.model = row.integer(1);
  p.model = row.text(2);
  p.alias = row.text(3);
  p.version = row.integer(4);
  if (!row.is_null(5)) p.replaced = row.integer(5);
  p.state = parse_state(row.text(6));
  p.asked_us = row.integer(7);
  p.asked_by = row.text(8);
  p.why = row.text(9);
  p.evidence = parse_json(row.text(10));
  if (!row.is_null(11)) p.decided_us = row.integer(11);
  p.decided_by = row.text(12);
  p.decision = row.text(13);
  return out;
}

PromotionRow need_promotion(sql::Reader& r, const Where& where, std::int64_t id) {
  auto found = r.first(
      "SELECT p.id, p.model, m.name, p.alias, p.version, p.replaced, p.state, p.asked_us, p.asked_by, p.why,"
      " p.evidence, p.decided_us, p.decided_by, p.decision FROM models_promotion p JOIN models_model m ON m.id ="
      " p.model WHERE p.id = ? AND m.tenant = ? AND m.project = ?",
      {id, where.tenant.str(), where.project.str()}, read_promotion);
  if (!found) throw Error(Code::not_found, fmt::format("no promotion {} in this project", id));
  return *found;
}

json::object told(const Promotion& p) {
  return {{"promotion", p.id},      {"name", p.model}, {"alias", p.alias}, {"version", std::to_string(p.version)},
          {"asked_by", p.asked_by}, {"why", p.why}};
}

// What the audit log has of it.
Digest digest_of(const Promotion& p) {
  return crypto::sha256(canonical(json::object{{"alias", p.alias},
                                               {"version", p.version},
                                               {"why", p.why},
                                               {"evidence", p.evidence},
                                               {"asked_by", p.asked_by},
                                               {"decided_by", p.decided_by},
                                               {"state", name(p.state)}}));
}

void check_why(std::string_view why) {
  if (trim(why).empty()) throw Error(Code::invalid, "why: a reason is needed");
  track::check_length("why", why, kWhyMax);
}

}  // namespace

std::string_view name(PromotionState state) {
  constexpr std::string_view kNames[] = {"pending", "done", "rejected"};
  return kNames[static_cast<std::size_t>(state)];
}

void Promotions::require_approval(const Where& where, const std::string& model, bool required, const sql::Act& act) {
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_model(w, where, model);
    w.execute("UPDATE models_model SET needs_approval = ? WHERE id = ?", {std::int64_t{required}, row.model.row});
    const auto digest = [](bool on) { return crypto::sha256(on ? "needs approval" : "needs no approval"); };
    w.record({resource_of(where, model), digest(row.model.needs_approval), digest(required)});
  });
}

// Moves the alias for a promotion that nothing stands in the way of any more.
static void carry_out(sql::Writer& w, Webhooks& webhooks, const Where& where, std::int64_t model_row, Promotion& p,
                      const std::string& by, std::int64_t now_us) {
  p.replaced = alias_target(w, model_row, p.alias);
  p.state = PromotionState::done;
  change_alias(w, model_row, p.alias, p.version, {by, now_us, p.why, p.id});
  w.execute("UPDATE models_promotion SET state = 'done', replaced = ? WHERE id = ?",
            {track::nullable(p.replaced), p.id});
  webhooks.emit(w, where, "model_version_alias.created",
                {{"name", p.model}, {"alias", p.alias}, {"version", std::to_string(p.version)}});
  webhooks.emit(w, where, "promotion.done", told(p));
}

Promotion Promotions::promote(const Where& where, const NewPromotion& wanted, const sql::Act& act) {
  return database_.write(act, [&](sql::Writer& w) { return promote(w, where, wanted, act.actor); });
}

Promotion Promotions::promote(sql::Writer& w, const Where& where, const NewPromotion& wanted,
                              const std::string& actor) {
  check_alias(wanted.to);
  check_why(wanted.why);
  const auto evidence = canonical(wanted.evidence);
  if (evidence.size() > kEvidenceBytesMax)
    throw Error(Code::invalid, fmt::format("evidence: at most {} bytes, got {}", kEvidenceBytesMax, evidence.size()));
  const auto model = need_model(w, where, wanted.model);
  std::optional<std::int64_t> number;
  if (const auto* alias = std::get_if<std::string>(&wanted.from)) {
    number = alias_target(w, model.model.row, *alias);
    if (!number)
      throw Error(Code::invalid,
                  fmt::format("model '{}' has no alias '{}'", wanted.model, track::shortened(*alias, kAliasMax)));
  } else {
    number = std::get<std::int64_t>(wanted.from);
  }
  need_version(w, model.model, *number);
  const auto waiting = *w.first("SELECT COUNT(*) FROM models_promotion WHERE model = ? AND state = 'pending'",
                                {model.model.row}, [](const sql::Row& row) { return row.integer(0); });
  if (model.model.needs_approval && waiting >= static_cast<std::int64_t>(kPendingMax))
    throw Error(Code::exhausted, fmt::format("{} promotions of this model wait for a decision", waiting));
  const auto now = clock_.wall().count();
  const auto id = track::next_number(w, "promotion");
  w.execute(
      "INSERT INTO models_promotion(id, model, alias, version, state, asked_us, asked_by, why, evidence, decided_by,"
      " decision) VALUES (?, ?, ?, ?, 'pending', ?, ?, ?, ?, '', '')",
      {id, model.model.row, wanted.to, *number, now, actor, wanted.why, evidence});
  auto promotion = need_promotion(w, where, id).promotion;
  if (model.model.needs_approval)
    webhooks_.emit(w, where, "promotion.requested", told(promotion));
  else
    carry_out(w, webhooks_, where, model.model.row, promotion, actor, now);
  w.record({resource_of(where, wanted.model), {}, digest_of(promotion)});
  return promotion;
}

Promotion Promotions::decide(const Where& where, std::int64_t id, bool approve, const std::string& why,
                             const sql::Act& act) {
  return database_.write(act, [&](sql::Writer& w) { return decide(w, where, id, approve, why, act.actor); });
}

Promotion Promotions::decide(sql::Writer& w, const Where& where, std::int64_t id, bool approve, const std::string& why,
                             const std::string& actor) {
  track::check_length("why", why, kWhyMax);
  if (!approve) check_why(why);
  auto row = need_promotion(w, where, id);
  auto& promotion = row.promotion;
  if (promotion.asked_by == actor)
    throw Error(Code::denied, "somebody else than who asked for a promotion decides about it");
  if (promotion.state != PromotionState::pending)
    throw Error(Code::conflict, fmt::format("promotion {} is {} already", id, name(promotion.state)));
  const auto before = digest_of(promotion);
  const auto now = clock_.wall().count();
  promotion.decided_us = now;
  promotion.decided_by = actor;
  promotion.decision = why;
  w.execute("UPDATE models_promotion SET decided_us = ?, decided_by = ?, decision = ? WHERE id = ?",
            {now, actor, why, id});
  if (approve) {
    need_version(w, need_model(w, where, row.model).model, promotion.version);
    carry_out(w, webhooks_, where, row.model, promotion, promotion.asked_by, now);
  } else {
    promotion.state = PromotionState::rejected;
    w.execute("UPDATE models_promotion SET state = 'rejected' WHERE id = ?", {id});
    webhooks_.emit(w, where, "promotion.rejected", told(promotion));
  }
  w.record({resource_of(where, promotion.model), before, digest_of(promotion)});
  return promotion;
}

Promotion Promotions::get(const Where& where, std::int64_t id) {
  return database_.read([&](sql::Reader& r) { return need_promotion(r, where, id).promotion; });
}

std::vector<Promotion> Promotions::history(const Where& where, const std::string& model, std::size_t limit) {
  return database_.read([&](sql::Reader& r) {
    return r.all(
        "SELECT p.id, p.model, m.name, p.alias, p.version, p.replaced, p.state, p.asked_us, p.asked_by, p.why,"
        " p.evidence, p.decided_us, p.decided_by, p.decision FROM models_promotion p JOIN models_model m ON m.id ="
        " p.model WHERE p.model = ? ORDER BY p.id DESC LIMIT ?",
        {need_model(r, where, model).model.row, static_cast<std::int64_t>(limit)},
        [](const sql::Row& row) { return read_promotion(row).promotion; });
  });
}

std::vector<Promotion> Promotions::pending(const Where& where) {
  return database_.read([&](sql::Reader& r) {
    return r.all(
        "SELECT p.id, p.model, m.name, p.alias, p.version, p.replaced, p.state, p.asked_us, p.asked_by, p.why,"
        " p.evidence, p.decided_us, p.decided_by, p.decision FROM models_promotion p JOIN models_model m ON m.id ="
        " p.model WHERE m.tenant = ? AND m.project = ? AND m.deleted_us IS NULL AND p.state = 'pending' ORDER BY p.id"
        " DESC",
        {where.tenant.str(), where.project.str()}, [](const sql::Row& row) { return read_promotion(row).promotion; });
  });
}

std::vector<AliasChange> Promotions::alias_changes(const Where& where, const std::string& model, std::size_t limit) {
  return database_.read([&](sql::Reader& r) {
    return r.all(
        "SELECT alias, version, at_us, changed_by, why, promotion FROM models_alias_change WHERE model = ?"
        " ORDER BY id DESC LIMIT ?",
        {need_model(r, where, model).model.row, static_cast<std::int64_t>(limit)}, [](const sql::Row& row) {
          AliasChange change{std::string(row.text(0)), {}, row.integer(2), std::string(row.text(3)),
                             std::string(row.text(4)), {}};
          if (!row.is_null(1)) change.version = row.integer(1);
          if (!row.is_null(5)) change.promotion = row.integer(5);
          return change;
        });
  });
}

std::optional<std::int64_t> Promotions::alias_at(const Where& where, const std::string& model, const std::string& alias,
                                                 std::int64_t unix_us) {
  return database_.read([&](sql::Reader& r) {
    // Several models may have had the name, one after the other; each change belongs to one of them.
    return r
        .first(
            "SELECT c.version FROM models_model m JOIN models_alias_change c ON c.model = m.id"
            " WHERE m.tenant = ? AND m.project = ? AND m.name = ? AND c.alias = ? AND c.at_us <= ?"
            " ORDER BY c.id DESC LIMIT 1",
            {where.tenant.str(), where.project.str(), model, alias, unix_us},
            [](const sql::Row& row) {
              return row.is_null(0) ? std::optional<std::int64_t>() : std::optional(row.integer(0));
            })
        .value_or(std::nullopt);
  });
}

}  // namespace falaj::models
