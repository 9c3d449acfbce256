// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/alerts/step.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "foundation/base/json.h"
#include "foundation/base/text.h"

namespace falaj::alerts {
namespace {

constexpr std::string_view kPhases[] = {"pending", "firing", "resolved"};
constexpr std::string_view kWhats[] = {"fired", "unsilenced", "repeated", "resolved", "acknowledged"};

using LabelMap = std::map<std::string, std::string>;

// A signal's labels, and what it is about among them.
LabelMap labels_of(const Signal& signal) {
  auto out = signal.labels;
  out["subject"] = signal.subject;
  return out;
}

bool holds(const RuleSpec& spec, const Signal& signal) {
  if (!std::isfinite(signal.value)) return false;
  const auto labels = labels_of(signal);
  for (const auto& [key, glob] : spec.select) {
    const auto found = labels.find(key);
    if (found == labels.end() || !matches_glob(glob, found->second)) return false;
  }
  if (!spec.threshold) return true;
  return spec.when == "below" ? signal.value < *spec.threshold : signal.value > *spec.threshold;
}

LabelMap grouped_by(const Look& look, const Signal& signal) {
  auto labels = labels_of(signal);
  if (look.spec.group_by.empty()) return labels;
  labels["rule"] = look.rule;
  LabelMap out;
  for (const auto& key : look.spec.group_by) {
    const auto found = labels.find(key);
    out[key] = found == labels.end() ? "" : found->second;
  }
  return out;
}

// Signals of one rule that make one alert.
struct Group {
  LabelMap labels;
  Signal worst;
  std::int64_t signals = 0, since_us = 0;
};

std::map<std::string, Group> groups_of(const Look& look, std::int64_t now_us) {
  std::map<std::string, Group> out;
  for (const auto& signal : look.signals) {
    if (!holds(look.spec, signal)) continue;
    auto labels = grouped_by(look, signal);
    json::object text;
    for (const auto& [key, value] : labels) text[key] = value;
    auto& group = out[canonical(text)];
    const auto since = signal.since_us > 0 ? std::min(signal.since_us, now_us) : now_us;
    const bool worse = look.spec.when == "below" ? signal.value < group.worst.value : signal.value > group.worst.value;
    group.since_us = group.signals == 0 ? since : std::min(group.since_us, since);
    if (group.signals == 0 || worse) group.worst = signal;
    group.labels = std::move(labels);
    ++group.signals;
  }
  return out;
}

About about(const Look& look, const Group& group) {
  About out{group.worst.subject, look.spec.severity, group.worst.value, group.worst.text,
            group.signals,       look.spec.labels,   look.spec.notify};
  for (const auto& [key, value] : group.labels) out.labels[key] = value;
  out.labels["rule"] = look.rule;
  out.labels["severity"] = look.spec.severity;
  if (group.signals > 1) out.text += fmt::format(" (the worst of {})", group.signals);
  return out;
}

class Stepper {
 public:
  Stepper(AlertState state, std::span<const Quiet> silences, std::int64_t now_us)
      : silences_(silences), now_us_(now_us) {
    out_.state = std::move(state);
    std::erase_if(out_.state.cooling, [&](const auto& entry) { return entry.second <= now_us; });
  }

  void look(const Look& look) {
    const auto groups = groups_of(look, now_us_);
    std::size_t count = 0;
    std::vector<AlertKey> over;
    auto& live = out_.state.live;
    for (auto at = live.lower_bound({look.rule, ""}); at != live.end() && at->first.first == look.rule; ++at) {
      auto& [key, alert] = *at;
      ++count;
      const auto found = groups.find(key.second);
      if (found == groups.end()) {
        over.push_back(key);
        continue;
      }
      alert.about = about(look, found->second);
      go_on(look.spec, alert);
    }
    for (const auto& key : over) end(key, look.spec.cool_down_us, "no longer so");
    for (const auto& [group, of] : groups) {
      const AlertKey key{look.rule, group};
      if (live.contains(key)) continue;
      if (++count > kAlertsOfRuleMax)
        ++out_.left_out;
      else
        begin(look, key, of);
    }
  }

  // What has no rule any more.
  void drop(const std::set<std::string>& rules) {
    std::vector<AlertKey> over;
    for (const auto& [key, alert] : out_.state.live)
      if (!rules.contains(key.first)) over.push_back(key);
    for (const auto& key : over) end(key, 0, "its rule is gone or rests");
  }

  Stepped done() && { return std::move(out_); }

 private:
  bool silenced(const Alert& alert) const {
    return std::any_of(silences_.begin(), silences_.end(), [&](const Quiet& quiet) {
      return now_us_ < quiet.until_us && quiet.match.accepts(alert.about.labels);
    });
  }

  void begin(const Look& look, const AlertKey& key, const Group& group) {
    Alert alert;
    alert.number = ++out_.state.last_number;
    alert.rule = key.first;
    alert.group = key.second;
    alert.since_us = group.since_us;
    alert.about = about(look, group);
    out_.changed.insert(alert.number);
    go_on(look.spec, out_.state.live.emplace(key, std::move(alert)).first->second);
  }

  void go_on(const RuleSpec& spec, Alert& alert) {
    if (alert.phase == Phase::pending) {
      const bool cools = out_.state.cooling.contains({alert.rule, alert.group});
      if (cools || now_us_ - alert.since_us < spec.for_us) return;
      alert.phase = Phase::firing;
      alert.fired_us = now_us_;
      tell(What::fired, alert, !silenced(alert), "");
    } else if (alert.told_us == 0) {
      if (!silenced(alert)) tell(What::unsilenced, alert, true, "it is no longer silenced");
    } else if (spec.repeat_us > 0 && now_us_ - alert.told_us >= spec.repeat_us && !silenced(alert)) {
      tell(What::repeated, alert, true, "it still fires");
    }
  }

  // Whoever was told that it fires is told that it is over, silenced or not: somebody may be waiting for it.
  void end(const AlertKey& key, std::int64_t cool_down_us, std::string why) {
    const auto found = out_.state.live.find(key);
    auto& alert = found->second;
    if (alert.phase == Phase::pending) {
      // One that was made only now was never written.
      if (out_.changed.erase(alert.number) == 0) out_.gone.insert(alert.number);
    } else {
      alert.phase = Phase::resolved;
      alert.resolved_us = now_us_;
      alert.cool_until_us = now_us_ + cool_down_us;
      if (cool_down_us > 0) out_.state.cooling[key] = alert.cool_until_us;
      out_.changed.insert(alert.number);
      out_.events.push_back({What::resolved, alert, alert.told_us > 0, std::move(why)});
    }
    out_.state.live.erase(found);
  }

  void tell(What what, Alert& alert, bool aloud, std::string why) {
    if (aloud) alert.told_us = now_us_;
    out_.changed.insert(alert.number);
    out_.events.push_back({what, alert, aloud, std::move(why)});
  }

  const std::span<const Quiet> silences_;
  const std::int64_t now_us_;
  Stepped out_;
};

}  // namespace

std::string_view name(Phase phase) { return kPhases[static_cast<std::size_t>(phase)]; }
Phase parse_phase(std::string_view text) {
  return text == "firing" ? Phase::firing : text == "resolved" ? Phase::resolved : Phase::pending;
}
std::string_view name(What what) { return kWhats[static_cast<std::size_t>(what)]; }
std::optional<What> parse_what(std::string_view text) {
  const auto found = std::find(std::begin(kWhats), std::end(kWhats), text);
  if (found == std::end(kWhats)) return std::nullopt;
  return static_cast<What>(found - std::begin(kWhats));
}

Stepped step(std::span<const Look> looks, AlertState state, std::span<const Quiet> silences, std::int64_t now_us) {
  Stepper stepper(std::move(state), silences, now_us);
  std::set<std::string> rules;
  for (const auto& look : looks) {
    rules.insert(look.rule);
    if (look.known) stepper.look(look);
  }
  stepper.drop(rules);
  return std::move(stepper).done();
}

}  // namespace falaj::alerts
