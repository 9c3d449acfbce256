// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/alerts/alerts.h"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/alerts/store.h"

namespace falaj::alerts {
namespace {

constexpr std::size_t kReasonMax = 1000, kNoteMax = 1000, kMatchMax = 1000;
constexpr std::int64_t kPurgeAtOnce = 10'000;
constexpr const char* kSystem = "system/alerts";

const resource::Authorise kAll = [](std::string_view, const iam::Scope&) { return std::optional<std::string>(); };

std::string random_id(sys::Random& random) {
  std::array<std::byte, 16> bytes;
  random.fill(bytes);
  return to_hex(bytes);
}

Gauge& firing_gauge(Metrics& metrics, const char* severity) {
  return metrics.gauge("falaj_alerts_firing", "Alerts that fire now.", {{"severity", severity}});
}
Counter& event_counter(Metrics& metrics, const char* what) {
  return metrics.counter("falaj_alerts_events_total", "What happened to alerts.", {{"what", what}});
}

void check_text(std::string_view field, const std::string& text, std::size_t most) {
  if (text.size() > most || !is_utf8(text))
    throw Error(Code::invalid, fmt::format("{}: must be at most {} bytes of UTF-8", field, most));
}

std::string scope_of_silence(const Where& where, std::int64_t id) {
  return iam::Scope::of(where.tenant, where.project, "silence", std::to_string(id)).str();
}

// Columns: id, matcher, reason, created_by, created_us, until_us, ended_us, ended_by.
Silence read_silence(const sql::Row& row) {
  Silence out;
  out.id = row.integer(0);
  out.match = row.text(1);
  out.reason = row.text(2);
  out.created_by = row.text(3);
  out.created_us = row.integer(4);
  out.until_us = row.integer(5);
  out.ended_us = row.integer(6);
  out.ended_by = row.text(7);
  return out;
}

const Alert* find_changed(const Stepped& stepped, std::int64_t number) {
  for (const auto& [key, alert] : stepped.state.live)
    if (alert.number == number) return &alert;
  for (const auto& event : stepped.events)
    if (event.alert.number == number) return &event.alert;
  return nullptr;
}

}  // namespace

std::span<const sql::Migration> Alerts::migrations() { return alert_migrations(); }

Alerts::Alerts(Parts parts, Sources sources)
    : parts_(parts),
      sources_(std::move(sources)),
      info_(firing_gauge(parts.metrics, "info")),
      warning_(firing_gauge(parts.metrics, "warning")),
      critical_(firing_gauge(parts.metrics, "critical")),
      unread_(parts.metrics.gauge("falaj_alerts_rules_unread", "Rules whose signals could not be read.")),
      fired_(event_counter(parts.metrics, "fired")),
      resolved_(event_counter(parts.metrics, "resolved")),
      left_out_(parts.metrics.counter("falaj_alerts_left_out_total",
                                      "Signals beyond the number of alerts that one rule may have.")) {}

// ---- looking at rules

Alerts::Rules Alerts::read_rules() {
  Rules out;
  resource::ListOptions options;
  options.limit = 1000;
  do {
    const auto page = parts_.resources.list("AlertRule", options, kAll);
    for (const auto& stored : page.items) {
      const auto& metadata = stored.resource.metadata;
      Look look{metadata.name, decode<RuleSpec>(stored.resource.spec, "alert rule")};
      if (!look.spec.suspended) out[{metadata.tenant, metadata.project}].push_back(std::move(look));
    }
    options.cursor = page.next;
  } while (!options.cursor.empty());
  return out;
}

void Alerts::read_signals(const Where& where, std::vector<Look>& looks, std::int64_t now_us) {
  std::map<Question, std::vector<Signal>> read;  // rules that ask the same share the answer
  for (auto& look : looks) {
    std::string problem;
    const Question question{where, look.spec.on, look.spec.metric, look.spec.window_us, now_us};
    const auto source = sources_.find(look.spec.on);
    if (source == sources_.end()) {
      problem = "this server has no source of such signals";
    } else {
      try {
        auto found = read.find(question);
        if (found == read.end()) found = read.emplace(question, source->second->read(question)).first;
        look.signals = found->second;
      } catch (const Error& e) {
        problem = e.what();
        log::warn("alert_rule_not_read", {{"rule", look.rule}, {"scope", where.scope().str()}, {"why", problem}});
      }
    }
    look.known = problem.empty();
    Lock lock(mu_);
    if (problem.empty())
      problems_.erase({where, look.rule});
    else
      problems_[{where, look.rule}] = std::move(problem);
  }
}

void Alerts::look() {
  const auto now = parts_.clock.wall().count();
  auto rules = read_rules();
  for (const auto& where : parts_.database.read(places_with_alerts)) rules.try_emplace(where);
  std::int64_t unread = 0;
  for (auto& [where, looks] : rules) {
    try {
      read_signals(where, looks, now);
      unread += std::count_if(looks.begin(), looks.end(), [](const Look& look) { return !look.known; });
      look_at(where, std::move(looks), now);
    } catch (const Error& e) {
      log::warn("alerts_not_looked_at", {{"scope", where.scope().str()}, {"why", e.what()}});
    }
  }
  unread_.Set(static_cast<double>(unread));
  count_firing();
}

// Decided first on what can be read without waiting for anybody: most often nothing changes. What does is decided again
// inside the write, where nobody can have come between.
void Alerts::look_at(const Where& where, std::vector<Look> looks, std::int64_t now_us) {
  const auto decide = [&](sql::Reader& reader) {
    return step(looks, load_state(reader, where, now_us), load_silences(reader, where, now_us), now_us);
  };
  auto stepped = parts_.database.read(decide);
  if (!stepped.same())
    stepped = parts_.database.write({kSystem, "alert.step", where.scope().str(), ""}, [&](sql::Writer& writer) {
      auto again = decide(writer);
      store(writer, where, again, looks, now_us);
      return again;
    });
  left_out_.Increment(static_cast<double>(stepped.left_out));
  for (const auto& event : stepped.events) {
    if (event.what == What::fired) fired_.Increment();
    if (event.what == What::resolved) resolved_.Increment();
    log::info("alert", {{"what", std::string(name(event.what))},
                        {"scope", scope_of_alert(where, event.alert.number)},
                        {"rule", event.alert.rule},
                        {"subject", event.alert.about.subject}});
  }
  remember(where, stepped.state);
}

void Alerts::store(sql::Writer& writer, const Where& where, const Stepped& stepped, std::span<const Look> looks,
                   std::int64_t now_us) {
  for (const auto number : stepped.gone) delete_alert(writer, where, number);
  // Those that are over make room first: an alert may end and begin anew at once.
  for (const bool over : {true, false})
    for (const auto number : stepped.changed) {
      const auto* alert = find_changed(stepped, number);
      CHECK(alert, "an alert that changed is neither live nor in an event");
      if ((alert->phase == Phase::resolved) == over) write_alert(writer, where, *alert);
    }
  for (const auto& event : stepped.events) {
    const auto id = write_event(writer, where, event, now_us, kSystem);
    const auto of_rule = [&](const Look& look) { return look.rule == event.alert.rule; };
    const auto look = std::find_if(looks.begin(), looks.end(), of_rule);
    if (event.tell) tell(writer, where, event, id, look == looks.end() ? 0 : look->spec.repeat_us, now_us);
    writer.record({scope_of_alert(where, event.alert.number), std::nullopt,
                   crypto::sha256(fmt::format("{} {}", id, name(event.what)))});
  }
}

// One delivery for each channel, in the write of what it tells of.
void Alerts::tell(sql::Writer& writer, const Where& where, const AlertEvent& event, std::int64_t id,
                  std::int64_t repeat_us, std::int64_t now_us) {
  const auto body = canonical(encode(notice_of(where, event, id, now_us, repeat_us)));
  for (const auto& channel : event.alert.about.notify) {
    const auto waiting = *writer.first(
        "SELECT COUNT(*) FROM alerts_delivery WHERE tenant = ? AND project = ? AND channel = ? AND state = 'waiting'",
        {where.tenant, where.project, channel}, [](const sql::Row& row) { return row.integer(0); });
    const bool full = waiting >= static_cast<std::int64_t>(kDeliveriesWaitingMax);
    writer.execute(
        "INSERT INTO alerts_delivery(id, tenant, project, channel, delivery_id, event, alert, what, body, state, tries,"
        " created_us, due_us, status, error) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, 0, ?)",
        {next_number(writer, "delivery"), where.tenant, where.project, channel, random_id(parts_.random), id,
         event.alert.number, name(event.what), body, full ? "dead" : "waiting", now_us, now_us,
         full ? "too many deliveries were waiting" : ""});
  }
  writer.after_commit([this] { wake(); });
}

void Alerts::on_notice(std::function<void()> wake) {
  Lock lock(mu_);
  wake_ = std::move(wake);
}

// Under the lock: once on_notice({}) returned nobody is inside.
void Alerts::wake() {
  Lock lock(mu_);
  if (wake_) wake_();
}

void Alerts::remember(const Where& where, const AlertState& state) {
  Lock lock(mu_);
  std::erase_if(seen_, [&](const auto& entry) { return entry.first.first == where; });
  for (const auto& [key, alert] : state.live) seen_[{where, alert.number}] = alert.about;
}

void Alerts::count_firing() {
  std::map<std::string, std::int64_t> by;
  parts_.database.read([&](sql::Reader& reader) {
    reader.query("SELECT severity, COUNT(*) FROM alerts_alert WHERE phase = 'firing' GROUP BY severity", {},
                 [&](const sql::Row& row) { by[std::string(row.text(0))] = row.integer(1); });
  });
  info_.Set(static_cast<double>(by["info"]));
  warning_.Set(static_cast<double>(by["warning"]));
  critical_.Set(static_cast<double>(by["critical"]));
}

void Alerts::purge() {
  const auto before = parts_.clock.wall().count() - kKeepUs;
  const auto old = parts_.database.read([&](sql::Reader& reader) {
    return reader.all("SELECT id FROM alerts_event WHERE at_us < ? ORDER BY id LIMIT ?", {before, kPurgeAtOnce},
                      [](const sql::Row& row) { return row.integer(0); });
  });
  if (old.empty()) return;
  parts_.database.write({kSystem, "alert.purge", "/", ""}, [&](sql::Writer& writer) {
    for (const auto id : old) writer.execute("DELETE FROM alerts_event WHERE id = ?", {id});
    writer.execute("DELETE FROM alerts_alert WHERE phase = 'resolved' AND resolved_us < ?", {before});
    writer.execute("DELETE FROM alerts_silence WHERE until_us < ?", {before});
  });
}

// ---- what people ask

// What is stored of a live alert is as it was when something last happened to it.
Alert Alerts::as_seen(const Where& where, Alert alert) {
  Lock lock(mu_);
  const auto found = seen_.find({where, alert.number});
  if (alert.phase != Phase::resolved && found != seen_.end()) alert.about = found->second;
  return alert;
}

std::vector<Alert> Alerts::list(const Where& where, const ListAlerts& which) {
  auto out = parts_.database.read([&](sql::Reader& reader) { return list_alerts(reader, where, which); });
  for (auto& alert : out) alert = as_seen(where, std::move(alert));
  return out;
}

Alert Alerts::get(const Where& where, std::int64_t number) {
  auto found = parts_.database.read([&](sql::Reader& reader) { return find_alert(reader, where, number); });
  if (!found) throw Error(Code::not_found, fmt::format("no alert {} here", number));
  return as_seen(where, std::move(*found));
}

std::vector<PastEvent> Alerts::events(const Where& where, const ListEvents& which) {
  const auto before = which.before > 0 ? which.before : std::numeric_limits<std::int64_t>::max();
  const auto limit = static_cast<std::int64_t>(which.limit);
  return parts_.database.read([&](sql::Reader& reader) {
    if (which.alert > 0)
      return reader.all(
          "SELECT id, tenant, project, alert, rule, what, at_us, by_whom, why, told, about FROM alerts_event"
          " WHERE tenant = ? AND project = ? AND alert = ? AND id < ? ORDER BY id DESC LIMIT ?",
          {where.tenant, where.project, which.alert, before, limit}, read_event);
    return reader.all(
        "SELECT id, tenant, project, alert, rule, what, at_us, by_whom, why, told, about FROM alerts_event"
        " WHERE tenant = ? AND project = ? AND id < ? ORDER BY id DESC LIMIT ?",
        {where.tenant, where.project, before, limit}, read_event);
  });
}

std::vector<PastEvent> Alerts::fired_after(const Where& where, const std::string& rule, std::int64_t id,
                                           std::int64_t at_us, std::size_t limit) {
  return parts_.database.read([&](sql::Reader& reader) {
    return reader.all(
        "SELECT id, tenant, project, alert, rule, what, at_us, by_whom, why, told, about FROM alerts_event"
        " WHERE tenant = ? AND project = ? AND rule = ? AND what = ? AND id > ? AND at_us > ? ORDER BY id LIMIT ?",
        {where.tenant, where.project, rule, name(What::fired), id, at_us, static_cast<std::int64_t>(limit)},
        read_event);
  });
}

std::vector<RuleView> Alerts::rules(const Where& where) {
  std::map<std::string, RuleView> by;
  resource::ListOptions options;
  options.tenant = where.tenant;
  options.project = where.project;
  options.limit = 1000;
  do {
    const auto page = parts_.resources.list("AlertRule", options, kAll);
    for (const auto& stored : page.items) {
      const auto& metadata = stored.resource.metadata;
      if (metadata.tenant != where.tenant || metadata.project != where.project) continue;
      const auto spec = decode<RuleSpec>(stored.resource.spec, "alert rule");
      by[metadata.name] = {metadata.name, spec.on, spec.severity, spec.suspended ? "it is suspended" : "", 0, 0};
    }
    options.cursor = page.next;
  } while (!options.cursor.empty());
  const auto now = parts_.clock.wall().count();
  const auto state = parts_.database.read([&](sql::Reader& reader) { return load_state(reader, where, now); });
  for (const auto& [key, alert] : state.live) {
    const auto found = by.find(alert.rule);
    if (found != by.end()) ++(alert.phase == Phase::firing ? found->second.firing : found->second.pending);
  }
  std::vector<RuleView> out;
  Lock lock(mu_);
  for (auto& [rule, view] : by) {
    const auto problem = problems_.find({where, rule});
    if (problem != problems_.end() && view.problem.empty()) view.problem = problem->second;
    out.push_back(std::move(view));
  }
  return out;
}

// ---- what people do

Alert Alerts::acknowledge(sql::Writer& writer, const Where& where, std::int64_t number, const std::string& by,
                          const std::string& note) {
  check_text("note", note, kNoteMax);
  auto alert = find_alert(writer, where, number);
  if (!alert) throw Error(Code::not_found, fmt::format("no alert {} here", number));
  if (alert->phase != Phase::firing)
    throw Error(Code::conflict,
                fmt::format("alert {} is {}, so there is nothing to acknowledge", number, name(alert->phase)));
  const auto now = parts_.clock.wall().count();
  alert->acked_by = by;
  alert->acked_us = now;
  alert->ack_note = note;
  write_alert(writer, where, *alert);
  const auto id = write_event(writer, where, {What::acknowledged, *alert, false, note}, now, by);
  writer.record({scope_of_alert(where, number), std::nullopt, crypto::sha256(fmt::format("{} acknowledged", id))});
  return *alert;
}

Silence Alerts::silence(sql::Writer& writer, const Where& where, const std::string& match, std::int64_t for_us,
                        const std::string& reason, const std::string& by) {
  check_text("reason", reason, kReasonMax);
  check_text("match", match, kMatchMax);
  if (trim(reason).empty()) throw Error(Code::invalid, "reason: whoever wonders later why nobody was told reads it");
  if (trim(match).empty())
    throw Error(Code::invalid, "match: of which alerts, such as rule=slow or severity!=critical,endpoint=late");
  (void)resource::Selector::parse(match);
  if (for_us < kSecondUs || for_us > kSilenceUsMax)
    throw Error(Code::invalid, fmt::format("for: must be 1s to {}", format_duration_us(kSilenceUsMax)));
  const auto now = parts_.clock.wall().count();
  if (load_silences(writer, where, now).size() >= kSilencesMax)
    throw Error(Code::exhausted, fmt::format("at most {} silences at once", kSilencesMax));
  Silence out{next_number(writer, "silence"), match, reason, by, "", now, now + for_us, 0};
  writer.execute(
      "INSERT INTO alerts_silence(id, tenant, project, matcher, reason, created_by, created_us, until_us, ended_us,"
      " ended_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, '')",
      {out.id, where.tenant, where.project, match, reason, by, now, out.until_us});
  writer.record({scope_of_silence(where, out.id), std::nullopt, crypto::sha256(match)});
  return out;
}

Silence Alerts::unsilence(sql::Writer& writer, const Where& where, std::int64_t id, const std::string& by) {
  const auto now = parts_.clock.wall().count();
  auto found = writer.first(
      "SELECT id, matcher, reason, created_by, created_us, until_us, ended_us, ended_by FROM alerts_silence"
      " WHERE tenant = ? AND project = ? AND id = ? AND ended_us = 0 AND until_us > ?",
      {where.tenant, where.project, id, now}, read_silence);
  if (!found) throw Error(Code::not_found, fmt::format("no silence {} that holds here", id));
  writer.execute("UPDATE alerts_silence SET ended_us = ?, ended_by = ? WHERE id = ?", {now, by, id});
  writer.record({scope_of_silence(where, id), crypto::sha256(found->match), std::nullopt});
  found->ended_us = now;
  found->ended_by = by;
  return *found;
}

std::vector<Silence> Alerts::silences(const Where& where, bool ended) {
  const auto now = parts_.clock.wall().count();
  return parts_.database.read([&](sql::Reader& reader) {
    if (ended)
      return reader.all(
          "SELECT id, matcher, reason, created_by, created_us, until_us, ended_us, ended_by FROM alerts_silence"
          " WHERE tenant = ? AND project = ? ORDER BY id DESC LIMIT ?",
          {where.tenant, where.project, static_cast<std::int64_t>(kSilencesMax)}, read_silence);
    return reader.all(
        "SELECT id, matcher, reason, created_by, created_us, until_us, ended_us, ended_by FROM alerts_silence"
        " WHERE tenant = ? AND project = ? AND ended_us = 0 AND until_us > ? ORDER BY id DESC",
        {where.tenant, where.project, now}, read_silence);
  });
}

}  // namespace falaj::alerts
