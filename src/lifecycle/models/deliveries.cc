// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/deliveries.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/track/names.h"

namespace falaj::models {

namespace {

constexpr std::size_t kTurnMax = 32;  // deliveries to one webhook before others have theirs
constexpr std::uint64_t kAnswerBytesMax = 64 * 1024;
constexpr std::size_t kShownBytesMax = 1024;
constexpr std::int64_t kIdleUs = 60'000'000;
constexpr std::int64_t kPauseUs = 1'000'000;  // when what is due is in other hands, or the database is away
constexpr std::int64_t kPurgeMax = 10'000;

}  // namespace

struct Deliveries::Due {
  std::int64_t row = 0, tries = 0;
  std::string delivery_id, body;
};

Verdict judge(const Attempt& attempt, std::int64_t tries, const DeliveryOptions& options, double jitter) {
  if (!attempt.failed && attempt.status >= 200 && attempt.status < 300) return {DeliveryState::done, 0};
  const bool hopeless = attempt.failed && (*attempt.failed == Code::denied || *attempt.failed == Code::invalid);
  if (hopeless || tries >= options.tries_max) return {DeliveryState::dead, 0};
  auto wait = options.first_wait_us;
  for (std::int64_t i = 1; i < tries && wait < options.wait_max_us; ++i) wait *= 2;
  wait = std::min(wait, options.wait_max_us);
  return {DeliveryState::waiting, wait + static_cast<std::int64_t>(static_cast<double>(wait) * jitter / 2)};
}

net::Headers delivery_headers(const std::string& delivery_id, std::int64_t unix_s, const std::string& body,
                              const std::string& secret) {
  net::Headers headers;
  headers.set("Content-Type", "application/json");
  headers.set("X-MLflow-Delivery-Id", delivery_id);
  headers.set("X-MLflow-Timestamp", std::to_string(unix_s));
  if (!secret.empty()) {
    const auto digest =
        crypto::hmac_sha256(as_bytes(secret), as_bytes(fmt::format("{}.{}.{}", delivery_id, unix_s, body)));
    headers.set("X-MLflow-Signature", "v1," + to_base64(digest.view()));
  }
  return headers;
}

Deliveries::Deliveries(sql::Database& database, Webhooks& webhooks, net::Client& client, const sys::Clock& clock,
                       sys::Random& random, Metrics& metrics, DeliveryOptions options)
    : database_(database),
      webhooks_(webhooks),
      client_(client),
      clock_(clock),
      random_(random),
      options_(options),
      done_(metrics.counter("falaj_models_deliveries_total", "Tries to deliver an event to a webhook.",
                            {{"outcome", "done"}})),
      failed_(metrics.counter("falaj_models_deliveries_total", "Tries to deliver an event to a webhook.",
                              {{"outcome", "failed"}})),
      dead_(metrics.counter("falaj_models_deliveries_total", "Tries to deliver an event to a webhook.",
                            {{"outcome", "dead"}})) {}

Deliveries::~Deliveries() { stop(); }

void Deliveries::start() {
  webhooks_.on_emit([this] {
    Lock lock(mu_);
    ++wakes_;
    changed_.notify_all();
  });
  for (std::size_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { run(); });
}

void Deliveries::stop() {
  if (threads_.empty()) return;
  webhooks_.on_emit({});
  {
    Lock lock(mu_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

void Deliveries::run() {
  std::uint64_t seen = 0;
  for (;;) {
    {
      Lock lock(mu_);
      if (stopping_) return;
      seen = wakes_;
    }
    std::int64_t wait_us = kPauseUs;
    try {
      if (const auto webhook = claim()) {
        deliver_for(*webhook);
        continue;
      }
      purge();
      wait_us = until_next_us();
    } catch (const Error& e) {
      log::warn("webhook_deliveries_paused", {{"reason", e.what()}});
    }
    Lock lock(mu_);
    if (!stopping_ && wakes_ == seen) lock.wait_for(changed_, std::chrono::microseconds(wait_us));
  }
}

std::int64_t Deliveries::until_next_us() {
  const auto due = database_.read([](sql::Reader& r) {
    return r.first("SELECT due_us FROM models_delivery WHERE state = 'waiting' ORDER BY due_us LIMIT 1", {},
                   [](const sql::Row& row) { return row.integer(0); });
  });
  if (!due) return kIdleUs;
  return std::clamp(*due - clock_.wall().count(), kPauseUs, kIdleUs);
}

std::optional<std::int64_t> Deliveries::claim() {
  const auto due = database_.read([&](sql::Reader& r) {
    return r.all(
        "SELECT h.id FROM models_webhook h WHERE EXISTS (SELECT 1 FROM models_delivery d WHERE d.webhook = h.id"
        " AND d.state = 'waiting' AND d.due_us <= ?) ORDER BY h.id",
        {clock_.wall().count()}, [](const sql::Row& row) { return row.integer(0); });
  });
  Lock lock(mu_);
  for (const auto webhook : due)
    if (busy_.insert(webhook).second) return webhook;
  return std::nullopt;
}

void Deliveries::release(std::int64_t webhook) {
  Lock lock(mu_);
  busy_.erase(webhook);
}

std::size_t Deliveries::deliver_due() {
  std::size_t tries = 0;
  while (const auto webhook = claim()) tries += deliver_for(*webhook);
  return tries;
}

std::size_t Deliveries::deliver_for(std::int64_t webhook) {
  struct Release {
    Deliveries& of;
    std::int64_t webhook;
    ~Release() { of.release(webhook); }
  } const release{*this, webhook};

  std::optional<Webhooks::Target> target;
  const auto due = database_.read([&](sql::Reader& r) {
    target = webhooks_.target(r, webhook);
    return r.all(
        "SELECT id, tries, delivery_id, body FROM models_delivery WHERE webhook = ? AND state = 'waiting'"
        " AND due_us <= ? ORDER BY due_us, id LIMIT ?",
        {webhook, clock_.wall().count(), static_cast<std::int64_t>(kTurnMax)}, [](const sql::Row& row) {
          return Due{row.integer(0), row.integer(1), std::string(row.text(2)), std::string(row.text(3))};
        });
  });
  std::size_t tried = 0;
  for (const auto& item : due) {
    {
      Lock lock(mu_);
      if (stopping_) break;
    }
    Attempt attempt;
    std::string error = "the webhook is not active";
    if (target)
      attempt = send(*target, item.delivery_id, item.body, error, nullptr);
    else
      attempt.failed = Code::denied;
    const auto jitter = static_cast<double>(random_.below(1000)) / 1000;
    const auto verdict = judge(attempt, item.tries + 1, options_, jitter);
    const auto next = clock_.wall().count() + verdict.wait_us;
    const sql::Act act{"system/webhooks", "webhook.deliver", target ? target->resource : "/", ""};
    database_.write(act, [&](sql::Writer& w) {
      w.execute("UPDATE models_delivery SET state = ?, tries = ?, due_us = ?, status = ?, error = ? WHERE id = ?",
                {models::name(verdict.state), item.tries + 1, next, std::int64_t{attempt.status}, error, item.row});
    });
    (verdict.state == DeliveryState::done ? done_ : verdict.state == DeliveryState::dead ? dead_ : failed_).Increment();
    if (verdict.state == DeliveryState::dead)
      log::warn("webhook_delivery_dead", {{"delivery", item.delivery_id}, {"reason", error}});
    ++tried;
  }
  return tried;
}

Attempt Deliveries::send(const Webhooks::Target& target, const std::string& delivery_id, const std::string& body,
                         std::string& error, std::string* answer) {
  net::ClientRequest request;
  request.method = net::Method::post;
  request.url = target.url;
  request.headers = delivery_headers(delivery_id, clock_.wall().count() / 1'000'000, body, target.secret);
  request.body = body;
  request.response_bytes_max = kAnswerBytesMax;
  Attempt attempt;
  error.clear();
  try {
    const auto response = client_.send(request);
    attempt.status = response.status;
    if (response.status < 200 || response.status >= 300) error = fmt::format("answered {}", response.status);
    if (answer) *answer = response.body.substr(0, kShownBytesMax);
  } catch (const Error& e) {
    attempt.failed = e.code();
    error = e.what();
  }
  return attempt;
}

Deliveries::Tested Deliveries::test(const Where& where, const std::string& id, const std::string& event) {
  if (std::find(std::begin(kWebhookEvents), std::end(kWebhookEvents), event) == std::end(kWebhookEvents))
    throw Error(Code::invalid, "event: not one that webhooks are told of");
  const auto target = webhooks_.target(where, id);
  const auto dot = event.find('.');
  const auto body = canonical(json::object{{"entity", event.substr(0, dot)},
                                           {"action", event.substr(dot + 1)},
                                           {"timestamp", format_time(clock_.wall().count())},
                                           {"data", json::object{{"name", "example_model"}, {"version", "1"}}}});
  Tested out;
  const auto attempt = send(target, track::random_run_id(random_), body, out.error, &out.body);
  out.status = attempt.status;
  out.success = out.error.empty();
  if (!is_utf8(out.body)) out.body.clear();
  return out;
}

void Deliveries::purge() {
  const auto before = clock_.wall().count() - options_.keep_us;
  const auto old = database_.read([&](sql::Reader& r) {
    return r.all("SELECT id FROM models_delivery WHERE state <> 'waiting' AND created_us < ? ORDER BY id LIMIT ?",
                 {before, kPurgeMax}, [](const sql::Row& row) { return row.integer(0); });
  });
  if (old.empty()) return;
  database_.write({"system/webhooks", "webhook.purge", "/", ""}, [&](sql::Writer& w) {
    for (const auto id : old) w.execute("DELETE FROM models_delivery WHERE id = ?", {id});
  });
}

}  // namespace falaj::models
