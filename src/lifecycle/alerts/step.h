// SPDX-License-Identifier: Apache-2.0
#pragma once

// What becomes of alerts, decided by values alone.
//
//   (nothing) -> pending -> firing -> resolved -> (nothing)
//       ^           |
//       +-----------+   no longer so before `for` was over: nobody is told

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "governance/resource/selector.h"
#include "lifecycle/alerts/kinds.h"
#include "lifecycle/alerts/signals.h"

namespace falaj::alerts {

enum class Phase { pending, firing, resolved };
std::string_view name(Phase phase);
Phase parse_phase(std::string_view text);  // as it was stored

// What is said of an alert. Its worst signal stands for all that are grouped in it.
struct About {
  std::string subject, severity;
  double value = 0;
  std::string text;
  std::int64_t signals = 1;
  std::map<std::string, std::string> labels;  // of the rule and the group, and `rule` and `severity`
  std::vector<std::string> notify;
};

struct Alert {
  std::int64_t number = 0;  // counts up within its project
  std::string rule, group;  // group: canonical JSON of the labels it is grouped by; with the rule what makes it one
  Phase phase = Phase::pending;
  std::int64_t since_us = 0, fired_us = 0, resolved_us = 0;
  std::int64_t told_us = 0;  // when somebody was last told; 0 = never
  std::int64_t cool_until_us = 0;
  std::string acked_by, ack_note;
  std::int64_t acked_us = 0;
  About about;
};

using AlertKey = std::pair<std::string, std::string>;  // rule and group
struct AlertState {
  std::map<AlertKey, Alert> live;            // pending and firing
  std::map<AlertKey, std::int64_t> cooling;  // resolved ones: until when they do not fire again
  std::int64_t last_number = 0;
};

// What a rule sees now; not known: its source cannot tell, and its alerts stay as they are.
struct Look {
  std::string rule;
  RuleSpec spec;
  bool known = true;
  std::vector<Signal> signals{};
};

struct Quiet {  // a silence that holds
  resource::Selector match;
  std::int64_t until_us = 0;
};

enum class What { fired, unsilenced, repeated, resolved, acknowledged };
std::string_view name(What what);
std::optional<What> parse_what(std::string_view text);

struct AlertEvent {
  What what = What::fired;
  Alert alert;        // as it is then
  bool tell = false;  // whether its channels are told
  std::string why;
};

struct Stepped {
  AlertState state;
  std::vector<AlertEvent> events;
  std::set<std::int64_t> changed;  // numbers of alerts to be written
  std::set<std::int64_t> gone;     // of those that were pending and are no more
  std::int64_t left_out = 0;       // groups beyond what one rule may have
  bool same() const { return changed.empty() && gone.empty(); }
};

inline constexpr std::size_t kAlertsOfRuleMax = 200;

// Pure. `looks`: one of every rule that does not rest; alerts of rules that are not among them are resolved.
// The value and text of what stays as it was are brought up to date too, but do not count as a change.
Stepped step(std::span<const Look> looks, AlertState state, std::span<const Quiet> silences, std::int64_t now_us);

}  // namespace falaj::alerts

template <>
struct falaj::Shape<falaj::alerts::About> {
  using T = alerts::About;
  static constexpr std::string_view name = "AlertAbout";
  static Fields fields() {
    return {field("subject", &T::subject, "What it is about."),
            field("severity", &T::severity, "How bad it is."),
            field("value", &T::value, "Of the worst signal."),
            field("text", &T::text, "In words."),
            field("signals", &T::signals, "How many are grouped in it."),
            field("labels", &T::labels, "Its labels."),
            field("notify", &T::notify, "Channels that are told.")};
  }
};
