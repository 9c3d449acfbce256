// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/alerts/notifications.h"

#include <array>

#include <fmt/format.h>

#include "foundation/base/text.h"
#include "lifecycle/alerts/notice.h"
#include "lifecycle/outbox/post.h"

namespace falaj::alerts {
namespace {

constexpr std::int64_t kForgetAtOnce = 10'000;
constexpr std::string_view kHeaderPrefix = "X-Falaj";
constexpr int kTaken = 250;  // what a mail server says to a letter that it has taken

outbox::Courier::Outcomes notification_outcomes(Metrics& metrics) {
  const auto counter = [&](const char* outcome) -> Counter& {
    return metrics.counter("falaj_alerts_notifications_total", "Tries to tell a channel of an alert.",
                           {{"outcome", outcome}});
  };
  return {counter("done"), counter("failed"), counter("dead")};
}

// A receiver is "tenant/project/channel"; names hold no '/'.
struct Receiver {
  Where where;
  std::string channel;
};
std::string receiver_text(const sql::Row& row) {
  return fmt::format("{}/{}/{}", row.text(0), row.text(1), row.text(2));
}
Receiver parse_receiver(const std::string& text) {
  const auto parts = split(text, '/');
  CHECK(parts.size() == 3, "not a receiver of ours");
  return {{std::string(parts[0]), std::string(parts[1])}, std::string(parts[2])};
}

// Columns: delivery_id, channel, what, event, alert, state, tries, created_us, due_us, status, error.
Delivery read_alert_delivery(const sql::Row& row) {
  Delivery out;
  out.id = row.text(0);
  out.channel = row.text(1);
  out.what = row.text(2);
  out.event = row.integer(3);
  out.alert = row.integer(4);
  out.state = outbox::parse_state(row.text(5));
  out.tries = row.integer(6);
  out.created_us = row.integer(7);
  out.due_us = row.integer(8);
  out.status = row.integer(9);
  out.error = row.text(10);
  return out;
}

std::string without_slash(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url;
}

}  // namespace

// The rows of alerts_delivery, and how a channel is told.
class Notifications::Rows final : public outbox::Book {
 public:
  Rows(Alerts::Parts parts, net::Client& client, net::Mailer& mailer, Reveal reveal)
      : parts_(parts), client_(client), mailer_(mailer), reveal_(std::move(reveal)) {}

  std::vector<std::string> receivers_due(std::int64_t now_us) override {
    return parts_.database.read([&](sql::Reader& reader) {
      return reader.all(
          "SELECT DISTINCT tenant, project, channel FROM alerts_delivery WHERE state = 'waiting' AND due_us <= ?"
          " ORDER BY tenant, project, channel",
          {now_us}, receiver_text);
    });
  }

  std::vector<outbox::Due> due(const std::string& receiver, std::int64_t now_us, std::size_t limit) override {
    const auto to = parse_receiver(receiver);
    return parts_.database.read([&](sql::Reader& reader) {
      return reader.all(
          "SELECT id, tries, delivery_id, body FROM alerts_delivery WHERE tenant = ? AND project = ? AND channel = ?"
          " AND state = 'waiting' AND due_us <= ? ORDER BY due_us, id LIMIT ?",
          {to.where.tenant, to.where.project, to.channel, now_us, static_cast<std::int64_t>(limit)},
          [](const sql::Row& row) {
            return outbox::Due{row.integer(0), row.integer(1), std::string(row.text(2)), std::string(row.text(3))};
          });
    });
  }

  std::optional<std::int64_t> next_due_us() override {
    return parts_.database.read([](sql::Reader& reader) {
      return reader.first("SELECT due_us FROM alerts_delivery WHERE state = 'waiting' ORDER BY due_us LIMIT 1", {},
                          [](const sql::Row& row) { return row.integer(0); });
    });
  }

  outbox::Attempt send(const std::string& receiver, const outbox::Due& item) override {
    const auto to = parse_receiver(receiver);
    const auto notice = decode<Notice>(parse_json(item.body), "notice");
    std::optional<ChannelSpec> channel;
    try {
      channel = channel_of(to.where, to.channel);
    } catch (const Error& e) {
      if (e.code() != Code::not_found) throw;
      return {0, Code::denied, "the channel is gone"};
    }
    if (notice.state == "resolved" && !channel->send_resolved) return {200, {}, "not sent: sendResolved is off"};
    // An Alertmanager must hear of what still fires, or takes it for resolved; people have seen it.
    if (notice.what == "repeated" && notice.acknowledged && channel->type != "alertmanager")
      return {200, {}, "not sent: it was acknowledged"};
    return send_to(to.where, *channel, notice, item.id, nullptr);
  }

  // Never throws: what keeps it from being sent is a failed attempt.
  outbox::Attempt send_to(const Where& where, const ChannelSpec& channel, const Notice& notice, const std::string& id,
                          std::string* answer) {
    try {
      const auto secret = secret_of(where, channel.secret);
      if (channel.type == "email") {
        mailer_.send(server_of(channel, secret), letter_of(notice, channel, id));
        return {kTaken};
      }
      auto url = channel.url_secret.empty() ? channel.url : secret_of(where, channel.url_secret);
      if (!outbox::is_receiver_url(url)) throw Error(Code::invalid, "the secret that urlSecret names holds no URL");
      if (channel.type == "alertmanager")
        return send_alertmanager(without_slash(std::move(url)), secret, notice, answer);
      const auto body = canonical(channel.type == "slack" ? slack_body(notice) : webhook_body(notice));
      const auto now_s = parts_.clock.wall().count() / kSecondUs;
      return outbox::post(client_, url, outbox::signed_headers(kHeaderPrefix, id, now_s, body, secret), body, answer);
    } catch (const Error& e) {
      // A secret may be set yet.
      return {0, e.code() == Code::not_found ? Code::unavailable : e.code(), e.what()};
    }
  }

  void settle(const std::string& receiver, const outbox::Due& item, const outbox::Settled& how) override {
    const auto to = parse_receiver(receiver);
    const auto resource = iam::Scope::of(to.where.tenant, to.where.project, "channel", to.channel).str();
    parts_.database.write({"system/alerts", "alert.deliver", resource, ""}, [&](sql::Writer& writer) {
      writer.execute("UPDATE alerts_delivery SET state = ?, tries = ?, due_us = ?, status = ?, error = ? WHERE id = ?",
                     {outbox::name(how.state), how.tries, how.due_us, std::int64_t{how.attempt.status},
                      how.attempt.error, item.row});
    });
  }

  void forget(std::int64_t before_us) override {
    const auto old = parts_.database.read([&](sql::Reader& reader) {
      return reader.all(
          "SELECT id FROM alerts_delivery WHERE state <> 'waiting' AND created_us < ? ORDER BY id LIMIT ?",
          {before_us, kForgetAtOnce}, [](const sql::Row& row) { return row.integer(0); });
    });
    if (old.empty()) return;
    parts_.database.write({"system/alerts", "alert.forget_deliveries", "/", ""}, [&](sql::Writer& writer) {
      for (const auto id : old) writer.execute("DELETE FROM alerts_delivery WHERE id = ?", {id});
    });
  }

  ChannelSpec channel_of(const Where& where, const std::string& name) {
    return decode<ChannelSpec>(parts_.resources.get({"Channel", where.tenant, where.project, name}).resource.spec,
                               "channel");
  }

 private:
  std::string secret_of(const Where& where, const std::string& name) const {
    if (name.empty()) return "";
    const auto parts = split(name, '/');
    if (parts.size() == 3) return reveal_(std::string(parts[0]), std::string(parts[1]), std::string(parts[2]));
    return reveal_(where.tenant, where.project, name);
  }

  static net::MailServer server_of(const ChannelSpec& channel, const std::string& secret) {
    using Tls = net::MailServer::Tls;
    const auto host = parse_mail_host(channel.server, channel.tls);
    if (!host) throw Error(Code::invalid, "server: not HOST or HOST:PORT");
    const auto tls = channel.tls == "tls" ? Tls::from_start : channel.tls == "none" ? Tls::none : Tls::starttls;
    return {host->host, host->port, tls, channel.user, secret};
  }

  outbox::Attempt send_alertmanager(const std::string& url, const std::string& token, const Notice& notice,
                                    std::string* answer) {
    net::Headers headers;
    headers.set("Content-Type", "application/json");
    if (!token.empty()) headers.set("Authorization", "Bearer " + token);
    return outbox::post(client_, url + "/api/v2/alerts", headers, canonical(alertmanager_body(notice)), answer);
  }

  const Alerts::Parts parts_;
  net::Client& client_;
  net::Mailer& mailer_;
  const Reveal reveal_;
};

Notifications::Notifications(Alerts::Parts parts, Alerts& alerts, net::Client& client, net::Mailer& mailer,
                             Reveal reveal, outbox::Options options)
    : parts_(parts),
      alerts_(alerts),
      rows_(std::make_unique<Rows>(parts, client, mailer, std::move(reveal))),
      courier_(*rows_, parts.clock, parts.random, notification_outcomes(parts.metrics), options) {}

Notifications::~Notifications() { stop(); }

void Notifications::start() {
  alerts_.on_notice([this] { courier_.wake(); });
  courier_.start();
}

void Notifications::stop() {
  alerts_.on_notice({});
  courier_.stop();
}

Notifications::Tested Notifications::test(const Where& where, const std::string& name) {
  const auto channel = rows_->channel_of(where, name);
  const auto now = parts_.clock.wall().count();
  Notice notice;
  notice.what = "fired";
  notice.state = "firing";
  notice.rule = "test-of-the-channel";
  notice.tenant = where.tenant;
  notice.project = where.project;
  notice.at_us = notice.since_us = notice.fired_us = now;
  notice.resolved_us = now + kSecondUs;  // an Alertmanager forgets it by itself
  notice.about = {"channel/" + name,
                  "info",
                  0,
                  "somebody tries whether this channel works; nothing is wrong",
                  1,
                  {{"rule", notice.rule}, {"severity", "info"}},
                  {}};
  std::array<std::byte, 16> bytes;
  parts_.random.fill(bytes);
  Tested out;
  const auto attempt = rows_->send_to(where, channel, notice, to_hex(bytes), &out.answer);
  out.status = attempt.status;
  out.error = attempt.error;
  out.success = out.error.empty();
  return out;
}

std::vector<Delivery> Notifications::list(const Where& where, std::optional<outbox::State> state, std::size_t limit) {
  const auto most = static_cast<std::int64_t>(limit);
  return parts_.database.read([&](sql::Reader& reader) {
    if (state)
      return reader.all(
          "SELECT delivery_id, channel, what, event, alert, state, tries, created_us, due_us, status, error"
          " FROM alerts_delivery WHERE tenant = ? AND project = ? AND state = ? ORDER BY id DESC LIMIT ?",
          {where.tenant, where.project, outbox::name(*state), most}, read_alert_delivery);
    return reader.all(
        "SELECT delivery_id, channel, what, event, alert, state, tries, created_us, due_us, status, error"
        " FROM alerts_delivery WHERE tenant = ? AND project = ? ORDER BY id DESC LIMIT ?",
        {where.tenant, where.project, most}, read_alert_delivery);
  });
}

void Notifications::retry(sql::Writer& writer, const Where& where, const std::string& id) {
  if (writer.execute("UPDATE alerts_delivery SET state = 'waiting', tries = 0, due_us = ? WHERE tenant = ?"
                     " AND project = ? AND delivery_id = ? AND state = 'dead'",
                     {parts_.clock.wall().count(), where.tenant, where.project, id}) == 0)
    throw Error(Code::not_found, "no dead delivery of that id");
  writer.after_commit([this] { courier_.wake(); });
}

}  // namespace falaj::alerts
