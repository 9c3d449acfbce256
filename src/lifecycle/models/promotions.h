// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "foundation/base/json.h"
#include "foundation/sys/clock.h"
#include "lifecycle/models/types.h"
#include "lifecycle/models/webhooks.h"
#include "storage/sql/database.h"

namespace falaj::models {

enum class PromotionState { pending, done, rejected };
std::string_view name(PromotionState state);

// A move of an alias with its reasons.
struct Promotion {
  std::int64_t id = 0;
  std::string model, alias;
  std::int64_t version = 0;
  std::optional<std::int64_t> replaced;  // what the alias pointed at before
  PromotionState state = PromotionState::pending;
  std::int64_t asked_us = 0;
  std::string asked_by, why;
  json::value evidence;                    // metrics, run ids, digests of reports: whatever was shown
  std::optional<std::int64_t> decided_us;  // by a second person, where one is needed
  std::string decided_by, decision;
};

// One change of an alias, whoever made it and however.
struct AliasChange {
  std::string alias;
  std::optional<std::int64_t> version;  // nothing: it was taken away
  std::int64_t at_us = 0;
  std::string by, why;
  std::optional<std::int64_t> promotion;
};

struct NewPromotion {
  std::string model;
  std::variant<std::int64_t, std::string> from;  // a version, or what an alias points at now
  std::string to;                                // the alias
  std::string why;
  json::value evidence;
};

inline constexpr std::size_t kWhyMax = 4'000, kEvidenceBytesMax = 64 * 1024, kPendingMax = 100;

// Moving an alias with a reason, evidence and, where a model asks for it, the consent of a second person; and what
// aliases pointed at at any time. Thread-safe.
class Promotions {
 public:
  Promotions(sql::Database& database, Webhooks& webhooks, const sys::Clock& clock)
      : database_(database), webhooks_(webhooks), clock_(clock) {}

  // Whether promotions of the model wait for somebody else's consent. Plain set_alias is then refused (denied).
  void require_approval(const Where& where, const std::string& model, bool required, const sql::Act& act);
  // Moves the alias, or waits for consent. `act.actor` asks for it.
  Promotion promote(const Where& where, const NewPromotion& promotion, const sql::Act& act);
  // denied when `act.actor` asked for it; conflict when it was decided, or the version is gone. Whether the actor has
  // the permission to approve is for the caller to check.
  Promotion decide(const Where& where, std::int64_t id, bool approve, const std::string& why, const sql::Act& act);

  // The same within another's write.
  Promotion promote(sql::Writer& writer, const Where& where, const NewPromotion& promotion, const std::string& actor);
  Promotion decide(sql::Writer& writer, const Where& where, std::int64_t id, bool approve, const std::string& why,
                   const std::string& actor);

  Promotion get(const Where& where, std::int64_t id);
  // Newest first.
  std::vector<Promotion> history(const Where& where, const std::string& model, std::size_t limit = 100);
  std::vector<Promotion> pending(const Where& where);
  std::vector<AliasChange> alias_changes(const Where& where, const std::string& model, std::size_t limit = 100);
  // Which version the alias pointed at at that time; nothing: none. A model that was deleted since answers too.
  std::optional<std::int64_t> alias_at(const Where& where, const std::string& model, const std::string& alias,
                                       std::int64_t unix_us);

 private:
  sql::Database& database_;
  Webhooks& webhooks_;
  const sys::Clock& clock_;
};

}  // namespace falaj::models
