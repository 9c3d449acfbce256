// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "governance/resource/resources.h"
#include "lifecycle/alerts/signals.h"
#include "lifecycle/alerts/step.h"
#include "storage/sql/database.h"

namespace falaj::alerts {

// Something that happened to an alert. Ids count up over the whole platform and are never used twice: whoever acts on
// events keeps the last it saw and asks for those after it.
struct PastEvent {
  std::int64_t id = 0, alert = 0, at_us = 0;
  Where where;
  What what = What::fired;
  std::string rule, by, why;  // by: a principal, or "system/alerts"
  bool told = false;
  About about;
};

struct Silence {
  std::int64_t id = 0;
  std::string match, reason, created_by, ended_by;
  std::int64_t created_us = 0, until_us = 0, ended_us = 0;  // ended: somebody took it back; 0 = nobody did
};

// How a rule does.
struct RuleView {
  std::string name, on, severity, problem;  // problem: why it sees nothing
  std::int64_t pending = 0, firing = 0;
};

struct ListAlerts {
  bool resolved = false;    // those that ended, too
  std::int64_t before = 0;  // numbers below; 0 = all
  std::size_t limit = 100;
};
struct ListEvents {
  std::int64_t alert = 0;   // of one alert; 0 = of all
  std::int64_t before = 0;  // ids below; 0 = all
  std::size_t limit = 100;
};

inline constexpr std::size_t kSilencesMax = 1000, kDeliveriesWaitingMax = 10'000;
inline constexpr std::int64_t kSilenceUsMax = 366 * kDayUs, kKeepUs = 400 * kDayUs;

// Rules, looked at now and then; what they fired, who is told of it and who need not be. Thread-safe.
class Alerts {
 public:
  static std::span<const sql::Migration> migrations();
  struct Parts {
    sql::Database& database;
    resource::Resources& resources;
    const sys::Clock& clock;
    sys::Random& random;
    Metrics& metrics;
  };
  // All of them outlive this.
  Alerts(Parts parts, Sources sources);

  // Looks at all rules. What happens to alerts, what is told of it and the audit record are one write. Called now and
  // then, by one at a time.
  void look();
  // From now on told when there is something to send, after it is durable; {} = nobody.
  void on_notice(std::function<void()> wake);
  // Forgets what ended long ago.
  void purge();

  // ---- looking
  std::vector<Alert> list(const Where& where, const ListAlerts& which);        // newest first
  Alert get(const Where& where, std::int64_t number);                          // throws not_found
  std::vector<PastEvent> events(const Where& where, const ListEvents& which);  // newest first
  std::vector<RuleView> rules(const Where& where);
  // When a rule fired, after an event and a time, oldest first: for whoever acts on alerts, from a place that they
  // keep.
  std::vector<PastEvent> fired_after(const Where& where, const std::string& rule, std::int64_t id, std::int64_t at_us,
                                     std::size_t limit);

  // ---- changing
  // Somebody has seen it: it is not repeated. Throws not_found, and conflict when it does not fire.
  Alert acknowledge(sql::Writer& writer, const Where& where, std::int64_t number, const std::string& by,
                    const std::string& note);
  // Throws invalid, exhausted.
  Silence silence(sql::Writer& writer, const Where& where, const std::string& match, std::int64_t for_us,
                  const std::string& reason, const std::string& by);
  Silence unsilence(sql::Writer& writer, const Where& where, std::int64_t id, const std::string& by);
  std::vector<Silence> silences(const Where& where, bool ended);  // those that hold; or all, newest first

 private:
  using Rules = std::map<Where, std::vector<Look>>;
  Rules read_rules();
  void read_signals(const Where& where, std::vector<Look>& looks, std::int64_t now_us);
  void look_at(const Where& where, std::vector<Look> looks, std::int64_t now_us);
  void store(sql::Writer& writer, const Where& where, const Stepped& stepped, std::span<const Look> looks,
             std::int64_t now_us);
  void tell(sql::Writer& writer, const Where& where, const AlertEvent& event, std::int64_t id, std::int64_t repeat_us,
            std::int64_t now_us);
  void remember(const Where& where, const AlertState& state);
  Alert as_seen(const Where& where, Alert alert);
  void count_firing();
  void wake();

  const Parts parts_;
  const Sources sources_;
  Gauge &info_, &warning_, &critical_, &unread_;
  Counter &fired_, &resolved_, &left_out_;

  Mutex mu_;
  std::function<void()> wake_ GUARDED_BY(mu_);
  std::map<std::pair<Where, std::int64_t>, About> seen_ GUARDED_BY(mu_);           // what was last seen of live ones
  std::map<std::pair<Where, std::string>, std::string> problems_ GUARDED_BY(mu_);  // of rules
};

}  // namespace falaj::alerts
