// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/watch/performance_watch.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/crypto/aead.h"
#include "lifecycle/serving/kind.h"
#include "lifecycle/traffic/prediction.h"

namespace falaj::watch {
namespace {

constexpr std::int64_t kASecondUs = 1'000'000, kAMinuteUs = 60 * kASecondUs, kAnHourUs = 60 * kAMinuteUs;
constexpr std::size_t kJoinedAtOnce = 10'000, kPendingMax = 100'000, kGaugesMax = 500;
constexpr std::int64_t kLogDelayUs = 15 * kAMinuteUs;  // after so long a prediction is in the log, or never will be
constexpr std::int64_t kAgainUs = 2 * kASecondUs;      // until predictions are looked for again
constexpr int kTries = 10;

struct StateText {  // as JSON
  std::map<std::string, TestState> tests;
  std::map<std::string, RiseSeen> rises;
  std::vector<std::int64_t> began_us;
  std::string errors;
};

// By another rule everything is judged anew.
std::string performance_rule(const MonitorSpec& spec) {
  const auto& p = *spec.performance;
  return fmt::format("{} {} {} {} {} {} {}", spec.endpoint, reference_rule(spec), p.rows, p.windows, p.output, p.time,
                     p.task);
}

Bytes header_of(const Stream& s) {
  return to_bytes(fmt::format("outcomes {}/{}/{}/{}/{}", s.tenant, s.project, s.monitor, s.variant, s.version));
}

CameLabel read_label(const sql::Row& row) {
  return {row.integer(0),           row.integer(1),           row.integer(2),
          std::string(row.text(3)), std::string(row.text(4)), row.real(5)};
}

std::optional<traffic::Logging> log_of(resource::Resources& resources, const Where& where, const std::string& name) {
  const auto stored = resources.get({"Endpoint", where.tenant.str(), where.project.str(), name});
  return decode<serving::EndpointSpec>(stored.resource.spec, "endpoint").log;
}

}  // namespace
}  // namespace falaj::watch

template <>
struct falaj::Shape<falaj::watch::StateText> {
  using T = watch::StateText;
  static constexpr std::string_view name = "MonitorPerformanceState";
  static Fields fields() {
    return {field("tests", &T::tests, ""), field("rises", &T::rises, ""), field("began_us", &T::began_us, ""),
            field("errors", &T::errors, "")};
  }
};

namespace falaj::watch {

Bytes PerformanceWatch::seal(const Stream& stream, BytesView plain) const {
  return crypto::seal(parts_.key, header_of(stream), plain);
}
Bytes PerformanceWatch::unseal(const Stream& stream, BytesView sealed) const {
  return crypto::open(parts_.key, header_of(stream), sealed);
}

// ---- labels that came

PerformanceWatch::Cursor PerformanceWatch::cursor(const Where& where, const std::string& monitor,
                                                  const std::string& rule) {
  const auto found = parts_.database.read([&](sql::Reader& r) {
    return r.first(
        "SELECT rule, number, waiting FROM watch_outcome_label WHERE tenant = ? AND project = ? AND monitor = ?",
        {where.tenant.str(), where.project.str(), monitor}, [](const sql::Row& row) {
          return Cursor{std::string(row.text(0)), row.integer(1),
                        decode<std::vector<std::int64_t>>(parse_json(row.text(2)), "labels that wait")};
        });
  });
  if (found && found->rule == rule) return *found;
  return {rule, 0, {}};
}

std::vector<CameLabel> PerformanceWatch::came(const Where& where, const std::string& endpoint, const Cursor& cursor) {
  const auto tenant = where.tenant.str(), project = where.project.str();
  return parts_.database.read([&](sql::Reader& r) {
    std::vector<CameLabel> out;
    for (const auto number : cursor.waiting)
      r.query(
          "SELECT number, version, predicted_us, prediction, variant, value FROM predictions_label WHERE number = ?",
          {number}, [&](const sql::Row& row) { out.push_back(read_label(row)); });
    r.query(
        "SELECT number, version, predicted_us, prediction, variant, value FROM predictions_label WHERE tenant = ? AND "
        "project = ? AND endpoint = ? AND number > ? ORDER BY number LIMIT ?",
        {tenant, project, endpoint, cursor.number, static_cast<std::int64_t>(kJoinedAtOnce - cursor.waiting.size())},
        [&](const sql::Row& row) { out.push_back(read_label(row)); });
    return out;
  });
}

// Looking for predictions makes a version of the log, so it is done for a window's worth of labels, some times again
// for those whose predictions are on their way, and now and then for the rest.
bool PerformanceWatch::is_due(const Stream& of, const PerformanceSpec& spec, const std::vector<CameLabel>& labels) {
  const auto now = parts_.clock.wall().count();
  auto& tries = tries_[of];
  const auto is_old = [&](const CameLabel& one) { return one.predicted_us < now - kAnHourUs; };
  const bool many = static_cast<std::int64_t>(labels.size()) >= spec.rows;
  if (now < tries.next_us) return false;
  if (!many && tries.left == 0 && !std::any_of(labels.begin(), labels.end(), is_old)) return false;
  tries.left = many ? kTries : std::max(0, tries.left - 1);
  tries.next_us = now + (many || tries.left > 0 ? kAgainUs : 10 * kAMinuteUs);
  return true;
}

PerformanceWatch::Turn& PerformanceWatch::turn(std::map<Stream, Turn>& turns, const Stream& stream,
                                               const std::string& rule) {
  if (const auto known = turns.find(stream); known != turns.end()) return known->second;
  auto& out = turns[stream];
  out.kept = kept(stream);
  if (out.kept.rule == rule) return out;
  out.anew = !out.kept.rule.empty();
  out.kept = {};
  out.kept.rule = rule;
  if (out.anew) out.findings.emplace();
  return out;
}

void PerformanceWatch::take(const Where& where, const std::string& monitor, const MonitorSpec& spec) {
  if (!spec.performance) return;
  Lock lock(taking_);
  const auto rule = performance_rule(spec);
  const Stream of{where.tenant.str(), where.project.str(), monitor, "", 0};
  for (;;) {
    auto at = cursor(where, monitor, rule);
    const auto labels = came(where, spec.endpoint, at);
    if (labels.empty() || !is_due(of, *spec.performance, labels)) return;
    const auto log = log_of(parts_.trainings.resources, where, spec.endpoint);
    if (!log) return;
    parts_.predictions.flush(where, spec.endpoint);
    std::string why_not;
    auto joined = join(parts_.datasets, where, spec.endpoint, *spec.performance, labels, &why_not);
    std::map<Stream, Turn> turns;
    at.waiting.clear();
    const auto now = parts_.clock.wall().count();
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const auto& label = labels[i];
      at.number = std::max(at.number, label.number);
      const bool logged = traffic::place_of(traffic::parse_prediction(label.prediction).id) < log->share;
      if (!joined[i] && logged && label.predicted_us > now - kLogDelayUs) {
        at.waiting.push_back(label.number);
        continue;
      }
      auto& one = turn(turns, {of.tenant, of.project, monitor, label.variant, label.version}, rule);
      if (!joined[i]) {
        ++one.kept.unmatched;
        if (!why_not.empty()) one.kept.reference = why_not;
        continue;
      }
      one.kept.late += one.kept.windows > 0 && joined[i]->at_us < one.kept.last_us ? 1 : 0;
      one.kept.pending.push_back(std::move(*joined[i]));
    }
    for (auto& [stream, one] : turns) make_windows(stream, spec, one);
    const auto waiting = json::serialize(encode(at.waiting));
    parts_.database.write(watch_act(of, "monitor.take"), [&](sql::Writer& w) {
      w.execute("DELETE FROM watch_outcome_label WHERE tenant = ? AND project = ? AND monitor = ?",
                {of.tenant, of.project, monitor});
      w.execute(
          "INSERT INTO watch_outcome_label(tenant, project, monitor, rule, number, waiting) VALUES (?, ?, ?, ?, ?, ?)",
          {of.tenant, of.project, monitor, rule, at.number, waiting});
      for (const auto& [stream, one] : turns) write(w, stream, spec, one);
    });
    for (const auto& [stream, one] : turns) note(stream, one);
    if (labels.size() < kJoinedAtOnce || at.waiting.size() == labels.size()) return;
    tries_[of] = {};  // there are more
  }
}

// ---- windows

// In the order of time, as far as late labels need not be waited for.
void PerformanceWatch::make_windows(const Stream& stream, const MonitorSpec& spec, Turn& turn) {
  const auto& performance = *spec.performance;
  auto& pending = turn.kept.pending;
  std::string why_not;
  const auto known = reference(stream, spec, turn, &why_not);
  auto task = known ? known->outcomes.task() : stats::parse_task(performance.task);
  if (!task && past_of(spec)) {  // while a time is waited for, the training says what kind of answers there are
    std::string untrained;
    const auto trained = trained_reference(parts_.trainings, stream, spec.endpoint, &untrained);
    if (trained && trained->performance) task = trained->performance->outcomes.task();
  }
  if (!task) {
    turn.kept.reference = why_not + "; say performance.task: binary, classes or regression";
    pending.clear();
    return;
  }
  std::stable_sort(pending.begin(), pending.end(),
                   [](const Labelled& a, const Labelled& b) { return a.at_us < b.at_us; });
  const auto rows = static_cast<std::size_t>(performance.rows);
  std::int64_t newest = parts_.clock.wall().count();
  if (!performance.time.empty()) newest = pending.empty() ? 0 : std::max(turn.kept.last_us, pending.back().at_us);
  const auto is_ripe = [&](const Labelled& row) { return row.at_us <= newest - performance.wait_us; };
  std::size_t taken = 0;
  while (pending.size() - taken >= rows &&
         (is_ripe(pending[taken + rows - 1]) || pending.size() - taken > kPendingMax)) {
    judge(stream, spec, *task, std::span(pending).subspan(taken, rows), turn);
    taken += rows;
  }
  pending.erase(pending.begin(), pending.begin() + static_cast<std::ptrdiff_t>(taken));
}

void PerformanceWatch::judge(const Stream& stream, const MonitorSpec& spec, stats::Task task,
                             std::span<const Labelled> rows, Turn& turn) {
  auto& kept = turn.kept;
  OutcomeWindow window{kept.windows, rows.front().at_us, rows.back().at_us, stats::Outcomes(task)};
  std::vector<double> losses;
  for (const auto& row : rows) {
    if (const auto loss = window.outcomes.add(row.answer, row.label))
      losses.push_back(*loss);
    else
      ++kept.unmatched;  // no answer to hold it against
  }
  if (losses.empty()) return;
  kept.last_us = window.until_us;
  std::string why_not;
  const auto compared = reference(stream, spec, turn, &why_not);
  std::vector<MetricSeen> metrics;
  if (compared) {
    auto looked = look(*compared, spec.horizon, level_of_each(spec), std::move(kept.state), window, losses);
    kept.state = std::move(looked.state);
    kept.reference = fmt::format("how it did {}", compared->is);
    turn.findings = std::move(looked.findings);
    metrics = std::move(looked.metrics);
  } else {
    metrics = metrics_seen(window, nullptr);
    kept.reference = why_not;
  }
  ++kept.windows;
  turn.judged.push_back({std::move(window), std::move(metrics)});
}

std::shared_ptr<const PerformanceReference> PerformanceWatch::reference(const Stream& stream, const MonitorSpec& spec,
                                                                        const Turn& turn, std::string* why_not) {
  if (turn.anew) references_.erase(stream);
  if (const auto known = references_.find(stream); known != references_.end()) return known->second;
  if (const auto chosen = past_of(spec)) {
    if (turn.kept.last_us <= chosen->to_us) {
      *why_not = fmt::format("it is compared with a time that lasts until {}", format_time(chosen->to_us));
      return nullptr;
    }
    if (auto found = past(stream, turn, *chosen, why_not))
      return references_[stream] = std::make_shared<const PerformanceReference>(std::move(*found));
  }
  if (spec.reference == "training" || spec.reference == "past") {
    if (const auto trained = trained_reference(parts_.trainings, stream, spec.endpoint, why_not)) {
      const bool fits = trained->performance && trained->performance->outcomes.count() > 0 &&
                        (spec.performance->task.empty() ||
                         spec.performance->task == stats::name(trained->performance->outcomes.task()));
      if (fits) return references_[stream] = std::make_shared<const PerformanceReference>(*trained->performance);
      *why_not = fmt::format("{} does not say how well", trained->is);
    }
  }
  const auto many = spec.performance->windows;
  if (turn.kept.windows < many) {
    *why_not = fmt::format("{}{}{} of the {} windows that make a reference", *why_not, why_not->empty() ? "" : ": ",
                           turn.kept.windows, many);
    return nullptr;
  }
  std::vector<stats::Outcomes> first;
  for (auto& window : windows_of(stream, turn, 0, many - 1)) first.push_back(std::move(window.outcomes));
  return references_[stream] = std::make_shared<const PerformanceReference>(
             make_performance_reference(first, fmt::format("in its first {} windows", first.size())));
}

// Those of a time, in the words and the clock of `performance.time`, if there are enough of them.
std::optional<PerformanceReference> PerformanceWatch::past(const Stream& stream, const Turn& turn, const Past& past,
                                                           std::string* why_not) {
  auto windows = windows_of(stream, turn, 0, INT64_MAX);
  std::erase_if(windows, [&](const OutcomeWindow& window) {
    return window.until_us < past.from_us || window.until_us > past.to_us;
  });
  const auto most = static_cast<std::size_t>(past.windows > 0 ? past.windows : kPastWindowsMax);
  if (windows.size() > most) windows.erase(windows.begin(), windows.end() - static_cast<std::ptrdiff_t>(most));
  const auto wanted = std::max(kPastWindowsMin, past.windows);
  if (static_cast<std::int64_t>(windows.size()) < wanted) {
    *why_not = fmt::format("{} windows of that time, and {} make a reference", windows.size(), wanted);
    return std::nullopt;
  }
  std::vector<stats::Outcomes> outcomes;
  for (const auto& window : windows) outcomes.push_back(window.outcomes);
  return make_performance_reference(
      outcomes, fmt::format("in {} windows, {} to {}", windows.size(), format_time(windows.front().from_us),
                            format_time(windows.back().until_us)));
}

// Windows with these numbers, in the order of time: of the disk, and those of this turn, which are not there yet.
std::vector<OutcomeWindow> PerformanceWatch::windows_of(const Stream& stream, const Turn& turn, std::int64_t from,
                                                        std::int64_t to) {
  std::vector<OutcomeWindow> out;
  if (!turn.anew) parts_.database.read([&](sql::Reader& r) { out = windows_on_disk(r, stream, from, to); });
  for (const auto& one : turn.judged)
    if (one.window.number >= from && one.window.number <= to) out.push_back(one.window);
  return out;
}

std::vector<OutcomeWindow> PerformanceWatch::windows_on_disk(sql::Reader& r, const Stream& stream, std::int64_t from,
                                                             std::int64_t to) {
  return r.all(
      "SELECT number, from_us, until_us, sealed FROM watch_outcome WHERE tenant = ? AND project = ? AND monitor = ? "
      "AND variant = ? AND version = ? AND number >= ? AND number <= ? ORDER BY number",
      {stream.tenant, stream.project, stream.monitor, stream.variant, stream.version, from, to},
      [&](const sql::Row& row) {
        const auto plain = unseal(stream, row.bytes(3));
        ByteReader in(plain);
        return OutcomeWindow{row.integer(0), row.integer(1), row.integer(2), stats::Outcomes::decode(in)};
      });
}

PerformanceWatch::Kept PerformanceWatch::kept(const Stream& stream) {
  Kept out;
  parts_.database.read([&](sql::Reader& r) {
    r.query(
        "SELECT rule, windows, unmatched, late, last_us, reference, state, pending FROM watch_outcome_state WHERE "
        "tenant "
        "= ? AND project = ? AND monitor = ? AND variant = ? AND version = ?",
        {stream.tenant, stream.project, stream.monitor, stream.variant, stream.version}, [&](const sql::Row& row) {
          out.rule = row.text(0);
          out.windows = row.integer(1);
          out.unmatched = row.integer(2);
          out.late = row.integer(3);
          out.last_us = row.integer(4);
          out.reference = row.text(5);
          const auto text = decode<StateText>(parse_json(row.text(6)), "state of a monitor");
          out.state.tests = text.tests;
          out.state.rises = text.rises;
          out.state.began_us = text.began_us;
          out.state.errors = from_base64(text.errors);
          out.pending = decode_labelled(unseal(stream, row.bytes(7)));
        });
    const auto first = std::max<std::int64_t>(0, (out.windows / kRemembered - 1) * kRemembered);
    for (auto& window : windows_on_disk(r, stream, first, INT64_MAX)) remember(out.state, std::move(window));
  });
  return out;
}

void PerformanceWatch::write(sql::Writer& w, const Stream& s, const MonitorSpec& spec, const Turn& turn) const {
  if (turn.anew)
    w.execute(
        "DELETE FROM watch_outcome WHERE tenant = ? AND project = ? AND monitor = ? AND variant = ? AND version = ?",
        {s.tenant, s.project, s.monitor, s.variant, s.version});
  for (const auto& [window, metrics] : turn.judged) {
    ByteWriter plain;
    window.outcomes.encode(plain);
    const auto sealed = seal(s, plain.bytes());
    const auto told = json::serialize(encode(metrics));
    w.execute(
        "INSERT INTO watch_outcome(tenant, project, monitor, variant, version, number, from_us, until_us, labels, "
        "seen, "
        "sealed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        {s.tenant, s.project, s.monitor, s.variant, s.version, window.number, window.from_us, window.until_us,
         static_cast<std::int64_t>(window.outcomes.count()), told, BytesView(sealed)});
  }
  w.execute(
      "DELETE FROM watch_outcome_state WHERE tenant = ? AND project = ? AND monitor = ? AND variant = ? AND version = "
      "?",
      {s.tenant, s.project, s.monitor, s.variant, s.version});
  const auto& kept = turn.kept;
  const auto state = json::serialize(
      encode(StateText{kept.state.tests, kept.state.rises, kept.state.began_us, to_base64(kept.state.errors)}));
  const auto pending = seal(s, encode_labelled(kept.pending));
  w.execute(
      "INSERT INTO watch_outcome_state(tenant, project, monitor, variant, version, rule, windows, waiting, unmatched, "
      "late, last_us, reference, state, pending) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      {s.tenant, s.project, s.monitor, s.variant, s.version, kept.rule, kept.windows,
       static_cast<std::int64_t>(kept.pending.size()), kept.unmatched, kept.late, kept.last_us, kept.reference, state,
       BytesView(pending)});
  if (!turn.findings) return;
  auto named = s;
  named.variant += kPerformanceOf;
  write_findings(w, named, spec.endpoint, *turn.findings, parts_.clock.wall().count());
}

void PerformanceWatch::note(const Stream& s, const Turn& turn) {
  if (turn.judged.empty()) return;
  for (const auto& metric : turn.judged.back().metrics) {
    auto& gauge = gauges_[fmt::format("{}/{}/{}/{}/{}", s.tenant, s.project, s.monitor, s.variant, metric.name)];
    if (!gauge && gauges_.size() <= kGaugesMax)
      gauge = &metrics_.gauge("falaj_watch_performance", "Metric of the newest window of labelled predictions.",
                              {{"tenant", s.tenant},
                               {"project", s.project},
                               {"monitor", s.monitor},
                               {"variant", s.variant},
                               {"metric", metric.name}});
    if (gauge) gauge->Set(metric.value);
  }
}

// ---- for those who ask

std::vector<PerformanceSeen> PerformanceWatch::seen(const Where& where, const std::string& monitor,
                                                    const MonitorSpec& spec) {
  if (!spec.performance) return {};
  auto out = parts_.database.read([&](sql::Reader& r) {
    return r.all(
        "SELECT variant, version, windows, last_us, waiting, unmatched, late, reference FROM watch_outcome_state WHERE "
        "tenant = ? AND project = ? AND monitor = ? ORDER BY variant, version",
        {where.tenant.str(), where.project.str(), monitor}, [](const sql::Row& row) {
          return PerformanceSeen{std::string(row.text(0)), row.integer(1), row.integer(2), row.integer(3),
                                 row.integer(4),           row.integer(5), row.integer(6), std::string(row.text(7))};
        });
  });
  if (!out.empty()) return out;
  PerformanceSeen none;
  none.reference = log_of(parts_.trainings.resources, where, spec.endpoint)
                       ? fmt::format("fewer than {} labels so far", spec.performance->rows)
                       : fmt::format("endpoint {} keeps no log of its predictions (spec.log)", spec.endpoint);
  return {none};
}

std::vector<PerformanceWindowSeen> PerformanceWatch::windows(const Where& where, const std::string& monitor,
                                                             std::size_t limit) {
  return parts_.database.read([&](sql::Reader& r) {
    return r.all(
        "SELECT variant, version, number, from_us, until_us, labels, seen FROM watch_outcome WHERE tenant = ? AND "
        "project "
        "= ? AND monitor = ? ORDER BY until_us DESC, number DESC LIMIT ?",
        {where.tenant.str(), where.project.str(), monitor, static_cast<std::int64_t>(limit)}, [](const sql::Row& row) {
          PerformanceWindowSeen out{std::string(row.text(0)),
                                    row.integer(1),
                                    row.integer(2),
                                    row.integer(3),
                                    row.integer(4),
                                    row.integer(5),
                                    {}};
          out.metrics = decode<std::vector<MetricSeen>>(parse_json(row.text(6)), "a window");
          return out;
        });
  });
}

// ---- the end

// The windows that are the reference stay as long as it is compared with, and those that blocks are made of.
void PerformanceWatch::forget(const Where& where, const std::string& monitor, const MonitorSpec& spec,
                              std::int64_t before_us) {
  if (!spec.performance) return;
  const auto tenant = where.tenant.str(), project = where.project.str();
  struct Old {
    Stream stream;
    std::int64_t below = 0;  // windows with such numbers are not needed for blocks
    Numbers stay;
    std::int64_t many = 0;
  };
  auto all = parts_.database.read([&](sql::Reader& r) {
    return r.all(
        "SELECT variant, version, windows FROM watch_outcome_state WHERE tenant = ? AND project = ? AND monitor = ?",
        {tenant, project, monitor}, [&](const sql::Row& row) {
          return Old{{tenant, project, monitor, std::string(row.text(0)), row.integer(1)},
                     row.integer(2) - 2 * kRemembered,
                     {},
                     0};
        });
  });
  const auto first = spec.performance->windows;
  parts_.database.read([&](sql::Reader& r) {
    for (auto& old : all) {
      const auto& s = old.stream;
      old.stay = chosen_outcomes(r, s, past_of(spec));
      old.many = *r.first(
          "SELECT COUNT(*) FROM watch_outcome WHERE tenant = ? AND project = ? AND monitor = ? AND variant = ? AND "
          "version = ? AND number >= ? AND NOT (number BETWEEN ? AND ?) AND number < ? AND until_us < ?",
          {s.tenant, s.project, s.monitor, s.variant, s.version, first, old.stay.from, old.stay.to, old.below,
           before_us},
          [](const sql::Row& row) { return row.integer(0); });
    }
  });
  std::erase_if(all, [](const Old& old) { return old.many == 0; });
  if (all.empty()) return;
  parts_.database.write(watch_act({tenant, project, monitor, "", 0}, "monitor.forget"), [&](sql::Writer& w) {
    for (const auto& old : all) {
      const auto& s = old.stream;
      w.execute(
          "DELETE FROM watch_outcome WHERE tenant = ? AND project = ? AND monitor = ? AND variant = ? AND version = ? "
          "AND number >= ? AND NOT (number BETWEEN ? AND ?) AND number < ? AND until_us < ?",
          {s.tenant, s.project, s.monitor, s.variant, s.version, first, old.stay.from, old.stay.to, old.below,
           before_us});
    }
  });
}

void PerformanceWatch::remove(sql::Writer& w, const Where& where, const std::string& monitor) {
  const auto tenant = where.tenant.str(), project = where.project.str();
  w.execute("DELETE FROM watch_outcome WHERE tenant = ? AND project = ? AND monitor = ?", {tenant, project, monitor});
  w.execute("DELETE FROM watch_outcome_state WHERE tenant = ? AND project = ? AND monitor = ?",
            {tenant, project, monitor});
  w.execute("DELETE FROM watch_outcome_label WHERE tenant = ? AND project = ? AND monitor = ?",
            {tenant, project, monitor});
}

}  // namespace falaj::watch
