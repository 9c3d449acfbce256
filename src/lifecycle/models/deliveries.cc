// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/deliveries.h"

#include <algorithm>

#include "foundation/base/text.h"
#include "lifecycle/outbox/post.h"
#include "lifecycle/track/names.h"

namespace falaj::models {

namespace {

constexpr std::int64_t kPurgeMax = 10'000;

outbox::Courier::Outcomes outcomes_of(Metrics& metrics) {
  const auto counter = [&](const char* outcome) -> Counter& {
    return metrics.counter("falaj_models_deliveries_total", "Tries to deliver an event to a webhook.",
                           {{"outcome", outcome}});
  };
  return {counter("done"), counter("failed"), counter("dead")};
}

}  // namespace

// The rows of models_delivery; a receiver is a webhook's id.
class Deliveries::Rows final : public outbox::Book {
 public:
  Rows(sql::Database& database, Webhooks& webhooks, net::Client& client, const sys::Clock& clock)
      : database_(database), webhooks_(webhooks), client_(client), clock_(clock) {}

  std::vector<std::string> receivers_due(std::int64_t now_us) override {
    return database_.read([&](sql::Reader& r) {
      return r.all(
          "SELECT h.webhook_id FROM models_webhook h WHERE EXISTS (SELECT 1 FROM models_delivery d WHERE d.webhook = "
          "h.id AND d.state = 'waiting' AND d.due_us <= ?) ORDER BY h.id",
          {now_us}, [](const sql::Row& row) { return std::string(row.text(0)); });
    });
  }

  std::vector<outbox::Due> due(const std::string& webhook, std::int64_t now_us, std::size_t limit) override {
    return database_.read([&](sql::Reader& r) {
      return r.all(
          "SELECT d.id, d.tries, d.delivery_id, d.body FROM models_webhook h JOIN models_delivery d ON d.webhook = h.id"
          " WHERE h.webhook_id = ? AND d.state = 'waiting' AND d.due_us <= ? ORDER BY d.due_us, d.id LIMIT ?",
          {webhook, now_us, static_cast<std::int64_t>(limit)}, [](const sql::Row& row) {
            return outbox::Due{row.integer(0), row.integer(1), std::string(row.text(2)), std::string(row.text(3))};
          });
    });
  }

  std::optional<std::int64_t> next_due_us() override {
    return database_.read([](sql::Reader& r) {
      return r.first("SELECT due_us FROM models_delivery WHERE state = 'waiting' ORDER BY due_us LIMIT 1", {},
                     [](const sql::Row& row) { return row.integer(0); });
    });
  }

  outbox::Attempt send(const std::string& webhook, const outbox::Due& item) override {
    const auto target = webhooks_.target(webhook);
    if (!target) return {0, Code::denied, "the webhook is not active"};
    return send_to(*target, item.id, item.body, nullptr);
  }

  outbox::Attempt send_to(const Webhooks::Target& target, const std::string& delivery_id, const std::string& body,
                          std::string* answer) {
    const auto headers = delivery_headers(delivery_id, clock_.wall().count() / 1'000'000, body, target.secret);
    return outbox::post(client_, target.url, headers, body, answer);
  }

  void settle(const std::string& webhook, const outbox::Due& item, const outbox::Settled& how) override {
    const auto target = webhooks_.target(webhook);
    const sql::Act act{"system/webhooks", "webhook.deliver", target ? target->resource : "/", ""};
    database_.write(act, [&](sql::Writer& w) {
      w.execute("UPDATE models_delivery SET state = ?, tries = ?, due_us = ?, status = ?, error = ? WHERE id = ?",
                {outbox::name(how.state), how.tries, how.due_us, std::int64_t{how.attempt.status}, how.attempt.error,
                 item.row});
    });
  }

  void forget(std::int64_t before_us) override {
    const auto old = database_.read([&](sql::Reader& r) {
      return r.all("SELECT id FROM models_delivery WHERE state <> 'waiting' AND created_us < ? ORDER BY id LIMIT ?",
                   {before_us, kPurgeMax}, [](const sql::Row& row) { return row.integer(0); });
    });
    if (old.empty()) return;
    database_.write({"system/webhooks", "webhook.purge", "/", ""}, [&](sql::Writer& w) {
      for (const auto id : old) w.execute("DELETE FROM models_delivery WHERE id = ?", {id});
    });
  }

 private:
  sql::Database& database_;
  Webhooks& webhooks_;
  net::Client& client_;
  const sys::Clock& clock_;
};

net::Headers delivery_headers(const std::string& delivery_id, std::int64_t unix_s, const std::string& body,
                              const std::string& secret) {
  return outbox::signed_headers("X-MLflow", delivery_id, unix_s, body, secret);
}

Deliveries::Deliveries(sql::Database& database, Webhooks& webhooks, net::Client& client, const sys::Clock& clock,
                       sys::Random& random, Metrics& metrics, outbox::Options options)
    : webhooks_(webhooks),
      clock_(clock),
      random_(random),
      rows_(std::make_unique<Rows>(database, webhooks, client, clock)),
      courier_(*rows_, clock, random, outcomes_of(metrics), options) {}

Deliveries::~Deliveries() { stop(); }

void Deliveries::start() {
  webhooks_.on_emit([this] { courier_.wake(); });
  courier_.start();
}

void Deliveries::stop() {
  webhooks_.on_emit({});
  courier_.stop();
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
  const auto attempt = rows_->send_to(target, track::random_run_id(random_), body, &out.body);
  out.status = attempt.status;
  out.error = attempt.error;
  out.success = out.error.empty();
  return out;
}

}  // namespace falaj::models
