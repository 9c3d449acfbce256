// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/webhooks.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/crypto/aead.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/outbox/post.h"
#include "lifecycle/track/names.h"
#include "lifecycle/track/tables.h"

namespace falaj::models {

namespace {

struct WebhookRow {
  std::int64_t id = 0;
  Webhook webhook;
};

WebhookRow read_webhook(const sql::Row& row) {
  WebhookRow out;
  out.id = row.integer(0);
  auto& webhook = out.webhook;
  webhook.id = row.text(1);
  webhook.name = row.text(2);
  webhook.description = row.text(3);
  webhook.url = row.text(4);
  for (const auto event : split(row.text(5), ',')) webhook.events.emplace_back(event);
  webhook.active = row.integer(6) != 0;
  webhook.has_secret = !row.is_null(7);
  webhook.created_ms = row.integer(8);
  webhook.updated_ms = row.integer(9);
  return out;
}

WebhookRow need_webhook(sql::Reader& r, const Where& where, const std::string& id) {
  auto found = r.first(
      "SELECT id, webhook_id, name, description, url, events, active, secret, created_ms, updated_ms"
      " FROM models_webhook WHERE webhook_id = ? AND tenant = ? AND project = ?",
      {id, where.tenant.str(), where.project.str()}, read_webhook);
  if (!found) throw Error(Code::not_found, "no such webhook in this project");
  return *found;
}

void check(const WebhookChange& change) {
  if (change.name) {
    if (trim(*change.name).empty()) throw Error(Code::invalid, "name: a webhook needs one");
    track::check_length("name", *change.name, kNameMax);
  }
  if (change.description) track::check_length("description", *change.description, 1'000);
  if (change.url && !outbox::is_receiver_url(*change.url))
    throw Error(Code::invalid, fmt::format("url: {}", outbox::kReceiverUrlRule));
  if (change.secret) track::check_length("secret", *change.secret, kSecretMax);
  if (!change.events) return;
  if (change.events->empty()) throw Error(Code::invalid, "events: at least one");
  for (const auto& event : *change.events)
    if (std::find(std::begin(kWebhookEvents), std::end(kWebhookEvents), event) == std::end(kWebhookEvents)) {
      std::vector<std::string> known(std::begin(kWebhookEvents), std::end(kWebhookEvents));
      throw Error(Code::invalid, fmt::format("events: one of {}", join(known, ", ")));
    }
}

std::string events_text(std::vector<std::string> events) {
  std::sort(events.begin(), events.end());
  events.erase(std::unique(events.begin(), events.end()), events.end());
  return join(events, ",");
}

std::string resource_of_webhook(const Where& where, const std::string& id) {
  return iam::Scope::of(where.tenant.str(), where.project.str(), "webhook", id).str();
}

Bytes header_of(std::int64_t row) { return to_bytes(fmt::format("webhook secret {}", row)); }

Delivery read_delivery(const sql::Row& row) {
  return {
      std::string(row.text(0)), std::string(row.text(1)), std::string(row.text(2)), outbox::parse_state(row.text(3)),
      row.integer(4),           row.integer(5),           row.integer(6),           row.integer(7),
      std::string(row.text(8))};
}

}  // namespace

Bytes Webhooks::seal(std::int64_t row, std::string_view secret) const {
  return crypto::seal(key_, header_of(row), as_bytes(secret));
}

Webhook Webhooks::create(const Where& where, const WebhookChange& wanted, const sql::Act& act) {
  if (!wanted.name || !wanted.url || !wanted.events)
    throw Error(Code::invalid, "a webhook needs a name, a url and events");
  check(wanted);
  const auto id = track::random_run_id(random_);
  const auto now = clock_.wall().count() / 1000;
  return database_.write(act, [&](sql::Writer& w) {
    const auto count =
        *w.first("SELECT COUNT(*) FROM models_webhook WHERE tenant = ? AND project = ?",
                 {where.tenant.str(), where.project.str()}, [](const sql::Row& row) { return row.integer(0); });
    if (count >= static_cast<std::int64_t>(kWebhooksMax))
      throw Error(Code::exhausted, fmt::format("a project has at most {} webhooks", kWebhooksMax));
    const auto row = track::next_number(w, "webhook");
    const auto secret = wanted.secret.value_or("");
    const auto sealed = secret.empty() ? Bytes() : seal(row, secret);
    w.execute(
        "INSERT INTO models_webhook(id, tenant, project, webhook_id, name, description, url, events, active, secret,"
        " created_ms, updated_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        {row, where.tenant.str(), where.project.str(), id, *wanted.name, wanted.description.value_or(""), *wanted.url,
         events_text(*wanted.events), std::int64_t{wanted.active.value_or(true)},
         secret.empty() ? sql::Param(sql::Null{}) : sql::Param(BytesView(sealed)), now, now});
    w.record({resource_of_webhook(where, id), {}, crypto::sha256(*wanted.url)});
    return need_webhook(w, where, id).webhook;
  });
}

Webhook Webhooks::get(const Where& where, const std::string& id) {
  return database_.read([&](sql::Reader& r) { return need_webhook(r, where, id).webhook; });
}

std::vector<Webhook> Webhooks::list(const Where& where) {
  return database_.read([&](sql::Reader& r) {
    return r.all(
        "SELECT id, webhook_id, name, description, url, events, active, secret, created_ms, updated_ms"
        " FROM models_webhook WHERE tenant = ? AND project = ? ORDER BY id",
        {where.tenant.str(), where.project.str()}, [](const sql::Row& row) { return read_webhook(row).webhook; });
  });
}

Webhook Webhooks::update(const Where& where, const std::string& id, const WebhookChange& change, const sql::Act& act) {
  check(change);
  return database_.write(act, [&](sql::Writer& w) {
    const auto row = need_webhook(w, where, id);
    const auto& old = row.webhook;
    w.execute(
        "UPDATE models_webhook SET name = ?, description = ?, url = ?, events = ?, active = ?, updated_ms = ?"
        " WHERE id = ?",
        {change.name.value_or(old.name), change.description.value_or(old.description), change.url.value_or(old.url),
         events_text(change.events.value_or(old.events)), std::int64_t{change.active.value_or(old.active)},
         clock_.wall().count() / 1000, row.id});
    if (change.secret) {
      const auto sealed = change.secret->empty() ? Bytes() : seal(row.id, *change.secret);
      w.execute("UPDATE models_webhook SET secret = ? WHERE id = ?",
                {change.secret->empty() ? sql::Param(sql::Null{}) : sql::Param(BytesView(sealed)), row.id});
    }
    w.record({resource_of_webhook(where, id), crypto::sha256(old.url), crypto::sha256(change.url.value_or(old.url))});
    return need_webhook(w, where, id).webhook;
  });
}

void Webhooks::remove(const Where& where, const std::string& id, const sql::Act& act) {
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_webhook(w, where, id);
    w.execute("DELETE FROM models_delivery WHERE webhook = ?", {row.id});
    w.execute("DELETE FROM models_webhook WHERE id = ?", {row.id});
    w.record({resource_of_webhook(where, id), crypto::sha256(row.webhook.url), {}});
  });
}

std::vector<Delivery> Webhooks::deliveries(const Where& where, const std::string& id,
                                           std::optional<DeliveryState> state, std::size_t limit) {
  return database_.read([&](sql::Reader& r) {
    const auto row = need_webhook(r, where, id);
    const auto most = static_cast<std::int64_t>(limit);
    if (state)
      return r.all(
          "SELECT d.delivery_id, h.webhook_id, d.event, d.state, d.tries, d.created_us, d.due_us, d.status, d.error"
          " FROM models_delivery d JOIN models_webhook h ON h.id = d.webhook WHERE d.webhook = ? AND d.state = ?"
          " ORDER BY d.id DESC LIMIT ?",
          {row.id, outbox::name(*state), most}, read_delivery);
    return r.all(
        "SELECT d.delivery_id, h.webhook_id, d.event, d.state, d.tries, d.created_us, d.due_us, d.status, d.error"
        " FROM models_delivery d JOIN models_webhook h ON h.id = d.webhook WHERE d.webhook = ?"
        " ORDER BY d.id DESC LIMIT ?",
        {row.id, most}, read_delivery);
  });
}

void Webhooks::retry(const Where& where, const std::string& id, const std::string& delivery, const sql::Act& act) {
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_webhook(w, where, id);
    if (w.execute("UPDATE models_delivery SET state = 'waiting', tries = 0, due_us = ? WHERE webhook = ?"
                  " AND delivery_id = ? AND state = 'dead'",
                  {clock_.wall().count(), row.id, delivery}) == 0)
      throw Error(Code::not_found, "no dead delivery of that id");
    w.after_commit([this] { wake(); });
  });
}

void Webhooks::emit(sql::Writer& w, const Where& where, std::string_view event, json::object data) {
  const auto wanting = w.all(
      "SELECT id, webhook_id, name, description, url, events, active, secret, created_ms, updated_ms"
      " FROM models_webhook WHERE tenant = ? AND project = ? AND active = 1",
      {where.tenant.str(), where.project.str()}, read_webhook);
  if (wanting.empty()) return;
  const auto now = clock_.wall().count();
  const auto dot = event.find('.');
  const auto body = canonical(json::object{{"entity", event.substr(0, dot)},
                                           {"action", event.substr(dot + 1)},
                                           {"timestamp", format_time(now)},
                                           {"data", std::move(data)}});
  for (const auto& row : wanting) {
    const auto& events = row.webhook.events;
    if (std::find(events.begin(), events.end(), event) == events.end()) continue;
    const auto waiting = *w.first(
        "SELECT COUNT(*) FROM (SELECT 1 FROM models_delivery WHERE webhook = ? AND state = 'waiting' LIMIT ?) AS "
        "first_ones",
        {row.id, static_cast<std::int64_t>(kDeliveriesWaitingMax)}, [](const sql::Row& r) { return r.integer(0); });
    const bool full = waiting >= static_cast<std::int64_t>(kDeliveriesWaitingMax);
    w.execute(
        "INSERT INTO models_delivery(id, webhook, delivery_id, event, body, state, tries, created_us, due_us, status,"
        " error) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, 0, ?)",
        {track::next_number(w, "delivery"), row.id, track::random_run_id(random_), event, body,
         outbox::name(full ? DeliveryState::dead : DeliveryState::waiting), now, now,
         full ? "too many deliveries were waiting" : ""});
  }
  w.after_commit([this] { wake(); });
}

void Webhooks::on_emit(std::function<void()> wake) {
  Lock lock(mu_);
  wake_ = std::move(wake);
}

// Under the lock: once on_emit({}) returned nobody is inside.
void Webhooks::wake() {
  Lock lock(mu_);
  if (wake_) wake_();
}

Webhooks::Target Webhooks::read_target(const sql::Row& row) const {
  const auto scope = iam::Scope::of(row.text(3), row.text(4), "webhook", row.text(5));
  Target out{std::string(row.text(1)), "", scope.str()};
  if (!row.is_null(2)) out.secret = as_text(crypto::open(key_, header_of(row.integer(0)), row.bytes(2)));
  return out;
}

std::optional<Webhooks::Target> Webhooks::target(const std::string& id) {
  return database_.read([&](sql::Reader& r) {
    return r.first(
        "SELECT id, url, secret, tenant, project, webhook_id FROM models_webhook WHERE webhook_id = ? AND active = 1",
        {id}, [&](const sql::Row& row) { return read_target(row); });
  });
}

Webhooks::Target Webhooks::target(const Where& where, const std::string& id) {
  return database_.read([&](sql::Reader& r) {
    const auto row = need_webhook(r, where, id);
    return *r.first("SELECT id, url, secret, tenant, project, webhook_id FROM models_webhook WHERE id = ?", {row.id},
                    [&](const sql::Row& found) { return read_target(found); });
  });
}

}  // namespace falaj::models
