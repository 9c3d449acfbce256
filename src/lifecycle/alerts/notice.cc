// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/alerts/notice.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::alerts {
namespace {

constexpr std::int64_t kGraceUs = 300 * kSecondUs;

// Slack reads these three as markup.
std::string for_slack(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

// A name that Prometheus takes for a label: letters, digits and '_', no digit first.
std::string label_name(std::string_view text) {
  std::string out(text);
  for (auto& c : out)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))) c = '_';
  if (out.empty() || (out[0] >= '0' && out[0] <= '9')) out.insert(0, 1, '_');
  return out;
}

std::string state_word(const Notice& notice) { return notice.state == "resolved" ? "RESOLVED" : "FIRING"; }

std::string place_of(const Notice& notice) {
  return notice.project.empty() ? "the platform" : fmt::format("{}/{}", notice.tenant, notice.project);
}

}  // namespace

Notice notice_of(const Where& where, const AlertEvent& event, std::int64_t id, std::int64_t at_us,
                 std::int64_t repeat_us) {
  const auto& alert = event.alert;
  return {id,
          alert.number,
          std::string(name(event.what)),
          alert.phase == Phase::resolved ? "resolved" : "firing",
          alert.rule,
          where.tenant,
          where.project,
          event.why,
          at_us,
          alert.since_us,
          alert.fired_us,
          alert.resolved_us,
          repeat_us,
          !alert.acked_by.empty(),
          alert.about};
}

std::string title_of(const Notice& n) {
  return fmt::format("[{}] {}: {} on {}", state_word(n), n.about.severity, n.rule, n.about.subject);
}

std::string text_of(const Notice& n) {
  std::string out = fmt::format("{}\n\n", n.about.text);
  out += fmt::format("alert     {} of {}\nrule      {}\nseverity  {}\nsince     {}\n", n.alert, place_of(n), n.rule,
                     n.about.severity, format_time(n.since_us));
  if (n.fired_us > 0) out += fmt::format("fired     {}\n", format_time(n.fired_us));
  if (n.resolved_us > 0) out += fmt::format("resolved  {}, {}\n", format_time(n.resolved_us), n.why);
  for (const auto& [key, value] : n.about.labels)
    if (key != "rule" && key != "severity") out += fmt::format("{}={}\n", key, value);
  const auto flags = n.project.empty() ? std::string() : fmt::format(" -t {} -p {}", n.tenant, n.project);
  return out + fmt::format("\nfalaj alerts show {}{}\n", n.alert, flags);
}

json::value webhook_body(const Notice& n) {
  json::object labels;
  for (const auto& [key, value] : n.about.labels) labels[key] = value;
  json::object alert{{"id", n.alert},
                     {"rule", n.rule},
                     {"state", n.state},
                     {"severity", n.about.severity},
                     {"subject", n.about.subject},
                     {"value", n.about.value},
                     {"text", n.about.text},
                     {"signals", n.about.signals},
                     {"labels", std::move(labels)},
                     {"tenant", n.tenant},
                     {"project", n.project},
                     {"since", format_time(n.since_us)}};
  if (n.fired_us > 0) alert["fired"] = format_time(n.fired_us);
  if (n.resolved_us > 0) alert["resolved"] = format_time(n.resolved_us);
  return json::object{{"event", n.event},
                      {"entity", "alert"},
                      {"action", n.what},
                      {"timestamp", format_time(n.at_us)},
                      {"data", std::move(alert)}};
}

json::value slack_body(const Notice& n) {
  const auto* colour = n.state == "resolved" ? "good" : n.about.severity == "critical" ? "danger" : "warning";
  const auto title = for_slack(title_of(n));
  return json::object{
      {"text", title},
      {"attachments",
       json::array{json::object{
           {"color", colour}, {"fallback", title}, {"text", for_slack(text_of(n))}, {"ts", n.at_us / kSecondUs}}}}};
}

json::value alertmanager_body(const Notice& n) {
  json::object labels;
  for (const auto& [key, value] : n.about.labels)
    if (!value.empty()) labels[label_name(key)] = value;
  labels["alertname"] = n.rule;
  if (!n.project.empty()) labels["tenant"] = n.tenant, labels["project"] = n.project;
  const auto until =
      n.resolved_us > 0 ? n.resolved_us : n.at_us + (n.repeat_us > 0 ? 2 * n.repeat_us + kGraceUs : 365 * kDayUs);
  return json::array{json::object{{"labels", std::move(labels)},
                                  {"annotations", json::object{{"summary", title_of(n)},
                                                               {"description", n.about.text},
                                                               {"alert", std::to_string(n.alert)},
                                                               {"value", fmt::format("{}", n.about.value)}}},
                                  {"startsAt", format_time(n.fired_us)},
                                  {"endsAt", format_time(until)}}};
}

net::Letter letter_of(const Notice& n, const ChannelSpec& channel, const std::string& delivery_id) {
  return {channel.from, channel.to, title_of(n), text_of(n), delivery_id, n.at_us / kSecondUs};
}

}  // namespace falaj::alerts
