// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/json.h"
#include "foundation/base/mutex.h"
#include "foundation/crypto/key.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "lifecycle/models/types.h"
#include "lifecycle/outbox/courier.h"
#include "storage/sql/database.h"

namespace falaj::models {

// What a webhook may be told of.
inline constexpr std::string_view kWebhookEvents[] = {
    "registered_model.created",    "model_version.created",       "model_version_tag.set", "model_version_tag.deleted",
    "model_version_alias.created", "model_version_alias.deleted", "promotion.requested",   "promotion.done",
    "promotion.rejected"};

struct Webhook {
  std::string id;
  std::string name, description, url;
  std::vector<std::string> events;
  bool active = true;
  bool has_secret = false;  // the secret itself is never given out
  std::int64_t created_ms = 0, updated_ms = 0;
};
struct WebhookChange {
  std::optional<std::string> name, description, url;
  std::optional<std::vector<std::string>> events;
  std::optional<bool> active;
  std::optional<std::string> secret;  // "" removes it
};

using DeliveryState = outbox::State;
struct Delivery {
  std::string id;  // the receiver sees it too: the same for every try
  std::string webhook, event;
  DeliveryState state = DeliveryState::waiting;
  std::int64_t tries = 0;
  std::int64_t created_us = 0, due_us = 0;  // due: of the next try
  std::int64_t status = 0;                  // of the last answer; 0 = there was none
  std::string error;                        // why the last try failed
};

inline constexpr std::size_t kWebhooksMax = 100;              // of a project
inline constexpr std::size_t kDeliveriesWaitingMax = 10'000;  // of a webhook; more are dead at once
inline constexpr std::size_t kSecretMax = 1'000;

// Who wants to know, and what there is to tell them: events are written with what they tell of, in the same write, and
// sent by Deliveries. Secrets are sealed at rest. Thread-safe.
class Webhooks {
 public:
  Webhooks(sql::Database& database, crypto::Key key, const sys::Clock& clock, sys::Random& random)
      : database_(database), key_(std::move(key)), clock_(clock), random_(random) {}

  Webhook create(const Where& where, const WebhookChange& webhook, const sql::Act& act);
  Webhook get(const Where& where, const std::string& id);
  std::vector<Webhook> list(const Where& where);
  Webhook update(const Where& where, const std::string& id, const WebhookChange& change, const sql::Act& act);
  void remove(const Where& where, const std::string& id, const sql::Act& act);
  // The newest deliveries, in one state or all.
  std::vector<Delivery> deliveries(const Where& where, const std::string& id, std::optional<DeliveryState> state,
                                   std::size_t limit);
  // A dead one is tried again.
  void retry(const Where& where, const std::string& id, const std::string& delivery, const sql::Act& act);

  // Writes the event for each webhook of the project that wants it.
  void emit(sql::Writer& writer, const Where& where, std::string_view event, json::object data);

  // ---- for Deliveries
  void on_emit(std::function<void()> wake);  // after a write with events is durable; {} = nobody
  struct Target {
    std::string url, secret;
    std::string resource;  // its name in the audit log
  };
  std::optional<Target> target(const std::string& id);       // nothing: it is gone or not active
  Target target(const Where& where, const std::string& id);  // active or not; throws not_found

 private:
  Bytes seal(std::int64_t row, std::string_view secret) const;
  Target read_target(const sql::Row& row) const;
  void wake();

  sql::Database& database_;
  const crypto::Key key_;
  const sys::Clock& clock_;
  sys::Random& random_;

  Mutex mu_;
  std::function<void()> wake_ GUARDED_BY(mu_);
};

}  // namespace falaj::models
