// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/net/mail.h"
#include "governance/resource/kind.h"
#include "lifecycle/alerts/signals.h"
#include "lifecycle/outbox/post.h"

namespace falaj::alerts {

inline constexpr std::int64_t kSecondUs = 1'000'000, kDayUs = 86'400 * kSecondUs;

// When somebody must be told of something, and who.
struct RuleSpec {
  std::string on;
  std::string metric;
  std::map<std::string, std::string> select;
  std::optional<double> threshold;
  std::string when = "above";
  std::int64_t window_us = 300 * kSecondUs;
  std::int64_t for_us = 0;
  std::string severity = "warning";
  std::vector<std::string> group_by;
  std::int64_t cool_down_us = 0;
  std::int64_t repeat_us = 4 * 3600 * kSecondUs;
  std::map<std::string, std::string> labels;
  std::vector<std::string> notify;
  bool suspended = false;
};
inline constexpr std::string_view kWhens[] = {"above", "below"};
inline constexpr std::string_view kSeverities[] = {"info", "warning", "critical"};

// How somebody is told.
struct ChannelSpec {
  std::string type;
  std::string url, url_secret;
  std::string secret;
  std::string server, tls = "starttls", user, from;
  std::vector<std::string> to;
  bool send_resolved = true;
};
inline constexpr std::string_view kChannelTypes[] = {"webhook", "alertmanager", "slack", "email"};
inline constexpr std::string_view kTlsWays[] = {"starttls", "tls", "none"};

// "smtp.example.org", "smtp.example.org:2525", "[::1]:25"; without a port that of the way TLS is spoken.
struct MailHost {
  std::string host;
  std::uint16_t port = 0;
};
std::optional<MailHost> parse_mail_host(std::string_view text, std::string_view tls);

// Channel and AlertRule, in the order in which they are applied.
std::vector<resource::Kind> alert_kinds();

}  // namespace falaj::alerts

namespace falaj {

template <>
struct Shape<alerts::RuleSpec> {
  using T = alerts::RuleSpec;
  static constexpr std::string_view name = "AlertRuleSpec";
  static Fields fields() {
    return {
        field("on", &T::on, "What is watched.").required().one_of(alerts::kSignals),
        field("metric", &T::metric, "With on: metric, which of the server's own; /metrics lists them.").length(0, 200),
        field("select", &T::select,
              "Only signals with these labels, such as endpoint, variant, monitor, column, queue; '*' stands for "
              "anything.")
            .length(0, 16),
        field("threshold", &T::threshold,
              "Seconds for latency and queueWait, a share for errors, a number otherwise; absent, with findings of "
              "monitors: each of them."),
        field("when", &T::when, "On which side of the threshold.").one_of(alerts::kWhens),
        field("window", &T::window_us, "Over how long errors, failures, cost and counters are looked at.")
            .duration()
            .range(10 * alerts::kSecondUs, 366 * alerts::kDayUs),
        field("for", &T::for_us, "It must hold so long before anybody is told.")
            .duration()
            .range(0, 30 * alerts::kDayUs),
        field("severity", &T::severity, "How bad it is.").one_of(alerts::kSeverities),
        field("groupBy", &T::group_by,
              "Signals with equal values of these labels are one alert; [rule]: all of them; absent: each is its own.")
            .length(0, 16)
            .text({is_name, kNameRule}),
        field("coolDown", &T::cool_down_us, "Once resolved it does not fire again for so long.")
            .duration()
            .range(0, 30 * alerts::kDayUs),
        field("repeat", &T::repeat_us, "Whoever was told is told again after so long; 0: once is enough.")
            .duration()
            .range(0, 365 * alerts::kDayUs),
        field("labels", &T::labels, "More labels of its alerts, to route and to silence by.").length(0, 32),
        field("notify", &T::notify, "Channels, by name.").length(0, 16).text({is_name, kNameRule}),
        field("suspended", &T::suspended, "Whether it rests; what it fired is resolved.")};
  }
};
template <>
struct Shape<alerts::ChannelSpec> {
  using T = alerts::ChannelSpec;
  static constexpr std::string_view name = "ChannelSpec";
  static Fields fields() {
    return {
        field("type", &T::type, "Who is told.").required().one_of(alerts::kChannelTypes),
        field("url", &T::url, "Where to; webhooks.hosts of the server's settings must allow it.")
            .length(0, static_cast<std::int64_t>(outbox::kReceiverUrlMax)),
        field("urlSecret", &T::url_secret, "Instead of url: the secret that holds it, as such of Slack are secret.")
            .length(0, 200),
        field("secret", &T::secret,
              "A secret, by name: what webhooks are signed with, the token for an Alertmanager, the password of mail. "
              "TENANT/PROJECT/NAME for a channel of the platform.")
            .length(0, 200),
        field("server", &T::server, "Of mail: HOST or HOST:PORT.").length(0, 255),
        field("tls", &T::tls, "Of mail.").one_of(alerts::kTlsWays),
        field("user", &T::user, "Of mail: who logs in; nobody when absent.").length(0, 254),
        field("from", &T::from, "Of mail: its sender.").length(0, 254),
        field("to", &T::to, "Of mail: who gets it.").length(0, 50).text({net::is_mail_address, net::kMailAddressRule}),
        field("sendResolved", &T::send_resolved, "Whether it is also told when it is over.")};
  }
};

}  // namespace falaj
