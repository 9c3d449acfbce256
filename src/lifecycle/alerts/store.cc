// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/alerts/store.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::alerts {
namespace {

// Tenant and project are '' for the platform's own. `about` is JSON, as is the body of a delivery, which is put into
// the words of its channel when it is sent.
constexpr sql::Migration kAlertMigrations[] = {
    {1, "alerts",
     "CREATE TABLE alerts_counter(name TEXT PRIMARY KEY, value BIGINT NOT NULL);"
     "CREATE TABLE alerts_alert(tenant TEXT NOT NULL, project TEXT NOT NULL, number BIGINT NOT NULL, rule TEXT NOT "
     "NULL,"
     " grouped TEXT NOT NULL, phase TEXT NOT NULL, severity TEXT NOT NULL, since_us BIGINT NOT NULL,"
     " fired_us BIGINT NOT NULL, resolved_us BIGINT NOT NULL, told_us BIGINT NOT NULL, cool_until_us BIGINT NOT NULL,"
     " acked_by TEXT NOT NULL, acked_us BIGINT NOT NULL, ack_note TEXT NOT NULL, about TEXT NOT NULL,"
     " PRIMARY KEY(tenant, project, number)) CLUSTERED;"
     // An alert is open once, whatever happens.
     "CREATE UNIQUE INDEX alerts_alert_open ON alerts_alert(tenant, project, rule, grouped) WHERE phase <> 'resolved';"
     "CREATE INDEX alerts_alert_cooling ON alerts_alert(tenant, project, cool_until_us) WHERE phase = 'resolved';"
     "CREATE INDEX alerts_alert_ended ON alerts_alert(resolved_us) WHERE phase = 'resolved';"
     "CREATE TABLE alerts_event(id BIGINT PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL,"
     " alert BIGINT NOT NULL, rule TEXT NOT NULL, what TEXT NOT NULL, at_us BIGINT NOT NULL, by_whom TEXT NOT NULL,"
     " why TEXT NOT NULL, told BIGINT NOT NULL, about TEXT NOT NULL);"
     "CREATE INDEX alerts_event_place ON alerts_event(tenant, project, id);"
     "CREATE INDEX alerts_event_alert ON alerts_event(tenant, project, alert, id);"
     "CREATE INDEX alerts_event_at ON alerts_event(at_us);"
     "CREATE TABLE alerts_silence(id BIGINT PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL,"
     " matcher TEXT NOT NULL, reason TEXT NOT NULL, created_by TEXT NOT NULL, created_us BIGINT NOT NULL,"
     " until_us BIGINT NOT NULL, ended_us BIGINT NOT NULL, ended_by TEXT NOT NULL);"
     "CREATE INDEX alerts_silence_place ON alerts_silence(tenant, project, until_us);"
     "CREATE TABLE alerts_delivery(id BIGINT PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL,"
     " channel TEXT NOT NULL, delivery_id TEXT NOT NULL, event BIGINT NOT NULL, alert BIGINT NOT NULL,"
     " what TEXT NOT NULL, body TEXT NOT NULL, state TEXT NOT NULL, tries BIGINT NOT NULL, created_us BIGINT NOT NULL,"
     " due_us BIGINT NOT NULL, status BIGINT NOT NULL, error TEXT NOT NULL);"
     "CREATE UNIQUE INDEX alerts_delivery_id ON alerts_delivery(delivery_id);"
     "CREATE INDEX alerts_delivery_due ON alerts_delivery(due_us, id) WHERE state = 'waiting';"
     "CREATE INDEX alerts_delivery_channel ON alerts_delivery(tenant, project, channel, state, due_us, id);"
     "CREATE INDEX alerts_delivery_ended ON alerts_delivery(created_us) WHERE state <> 'waiting'"},
};

About read_about(std::string_view text) { return decode<About>(parse_json(text), "alert"); }

Alert read_alert(const sql::Row& row) {
  Alert out;
  out.number = row.integer(0);
  out.rule = row.text(1);
  out.group = row.text(2);
  out.phase = parse_phase(row.text(3));
  out.since_us = row.integer(4);
  out.fired_us = row.integer(5);
  out.resolved_us = row.integer(6);
  out.told_us = row.integer(7);
  out.cool_until_us = row.integer(8);
  out.acked_by = row.text(9);
  out.acked_us = row.integer(10);
  out.ack_note = row.text(11);
  out.about = read_about(row.text(12));
  return out;
}

std::string counter_of(const Where& where) { return fmt::format("alert {}/{}", where.tenant, where.project); }

}  // namespace

std::span<const sql::Migration> alert_migrations() { return kAlertMigrations; }

std::int64_t next_number(sql::Writer& writer, std::string_view of) {
  std::int64_t last = 0;
  writer.query(
      "INSERT INTO alerts_counter(name, value) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = "
      "alerts_counter.value + 1 RETURNING value",
      {of}, [&](const sql::Row& row) { last = row.integer(0); });
  return last;
}

std::string scope_of_alert(const Where& where, std::int64_t number) {
  return iam::Scope::of(where.tenant, where.project, "alert", std::to_string(number)).str();
}

AlertState load_state(sql::Reader& reader, const Where& where, std::int64_t now_us) {
  AlertState out;
  for (auto& alert : reader.all(
           "SELECT number, rule, grouped, phase, since_us, fired_us, resolved_us, told_us, cool_until_us, acked_by,"
           " acked_us, ack_note, about FROM alerts_alert WHERE tenant = ? AND project = ? AND phase <> 'resolved'",
           {where.tenant, where.project}, read_alert)) {
    AlertKey key{alert.rule, alert.group};
    out.live.emplace(std::move(key), std::move(alert));
  }
  reader.query(
      "SELECT rule, grouped, cool_until_us FROM alerts_alert WHERE tenant = ? AND project = ? AND phase = 'resolved'"
      " AND cool_until_us > ?",
      {where.tenant, where.project, now_us}, [&](const sql::Row& row) {
        auto& until = out.cooling[{std::string(row.text(0)), std::string(row.text(1))}];
        until = std::max(until, row.integer(2));
      });
  out.last_number = reader
                        .first("SELECT value FROM alerts_counter WHERE name = ?", {counter_of(where)},
                               [](const sql::Row& row) { return row.integer(0); })
                        .value_or(0);
  return out;
}

std::vector<Quiet> load_silences(sql::Reader& reader, const Where& where, std::int64_t now_us) {
  return reader.all(
      "SELECT matcher, until_us FROM alerts_silence WHERE tenant = ? AND project = ? AND until_us > ? AND ended_us = 0",
      {where.tenant, where.project, now_us}, [](const sql::Row& row) {
        return Quiet{resource::Selector::parse(row.text(0)), row.integer(1)};
      });
}

std::vector<Where> places_with_alerts(sql::Reader& reader) {
  return reader.all("SELECT DISTINCT tenant, project FROM alerts_alert WHERE phase <> 'resolved'", {},
                    [](const sql::Row& row) {
                      return Where{std::string(row.text(0)), std::string(row.text(1))};
                    });
}

void write_alert(sql::Writer& writer, const Where& where, const Alert& alert) {
  writer.execute(
      "INSERT INTO alerts_counter(name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
      " WHERE alerts_counter.value < excluded.value",
      {counter_of(where), alert.number});
  writer.execute(
      "INSERT INTO alerts_alert(tenant, project, number, rule, grouped, phase, severity, since_us, fired_us,"
      " resolved_us, told_us, cool_until_us, acked_by, acked_us, ack_note, about)"
      " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, project, number) DO UPDATE SET"
      " phase = excluded.phase, severity = excluded.severity, since_us = excluded.since_us,"
      " fired_us = excluded.fired_us, resolved_us = excluded.resolved_us, told_us = excluded.told_us,"
      " cool_until_us = excluded.cool_until_us, acked_by = excluded.acked_by, acked_us = excluded.acked_us,"
      " ack_note = excluded.ack_note, about = excluded.about",
      {where.tenant, where.project, alert.number, alert.rule, alert.group, name(alert.phase), alert.about.severity,
       alert.since_us, alert.fired_us, alert.resolved_us, alert.told_us, alert.cool_until_us, alert.acked_by,
       alert.acked_us, alert.ack_note, canonical(encode(alert.about))});
}

void delete_alert(sql::Writer& writer, const Where& where, std::int64_t number) {
  writer.execute("DELETE FROM alerts_alert WHERE tenant = ? AND project = ? AND number = ?",
                 {where.tenant, where.project, number});
}

std::int64_t write_event(sql::Writer& writer, const Where& where, const AlertEvent& event, std::int64_t at_us,
                         const std::string& by) {
  const auto id = next_number(writer, "event");
  writer.execute(
      "INSERT INTO alerts_event(id, tenant, project, alert, rule, what, at_us, by_whom, why, told, about)"
      " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      {id, where.tenant, where.project, event.alert.number, event.alert.rule, name(event.what), at_us, by, event.why,
       std::int64_t{event.tell && !event.alert.about.notify.empty()}, canonical(encode(event.alert.about))});
  return id;
}

std::optional<Alert> find_alert(sql::Reader& reader, const Where& where, std::int64_t number) {
  return reader.first(
      "SELECT number, rule, grouped, phase, since_us, fired_us, resolved_us, told_us, cool_until_us, acked_by,"
      " acked_us, ack_note, about FROM alerts_alert WHERE tenant = ? AND project = ? AND number = ?",
      {where.tenant, where.project, number}, read_alert);
}

// Columns: id, tenant, project, alert, rule, what, at_us, by_whom, why, told, about.
PastEvent read_event(const sql::Row& row) {
  PastEvent out;
  out.id = row.integer(0);
  out.where = {std::string(row.text(1)), std::string(row.text(2))};
  out.alert = row.integer(3);
  out.rule = row.text(4);
  out.what = parse_what(row.text(5)).value_or(What::fired);
  out.at_us = row.integer(6);
  out.by = row.text(7);
  out.why = row.text(8);
  out.told = row.integer(9) != 0;
  out.about = read_about(row.text(10));
  return out;
}

std::vector<Alert> list_alerts(sql::Reader& reader, const Where& where, const ListAlerts& which) {
  const auto before = which.before > 0 ? which.before : std::numeric_limits<std::int64_t>::max();
  const auto limit = static_cast<std::int64_t>(which.limit);
  if (which.resolved)
    return reader.all(
        "SELECT number, rule, grouped, phase, since_us, fired_us, resolved_us, told_us, cool_until_us, acked_by,"
        " acked_us, ack_note, about FROM alerts_alert WHERE tenant = ? AND project = ? AND number < ?"
        " ORDER BY number DESC LIMIT ?",
        {where.tenant, where.project, before, limit}, read_alert);
  return reader.all(
      "SELECT number, rule, grouped, phase, since_us, fired_us, resolved_us, told_us, cool_until_us, acked_by,"
      " acked_us, ack_note, about FROM alerts_alert WHERE tenant = ? AND project = ? AND number < ?"
      " AND phase <> 'resolved' ORDER BY number DESC LIMIT ?",
      {where.tenant, where.project, before, limit}, read_alert);
}

}  // namespace falaj::alerts
