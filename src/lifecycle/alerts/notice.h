// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "foundation/base/json.h"
#include "foundation/net/mail.h"
#include "lifecycle/alerts/step.h"

namespace falaj::alerts {

// What channels are told of an event; kept until it has arrived.
struct Notice {
  std::int64_t event = 0, alert = 0;
  std::string what, state;  // state: "firing" or "resolved"
  std::string rule, tenant, project, why;
  std::int64_t at_us = 0, since_us = 0, fired_us = 0, resolved_us = 0;
  std::int64_t repeat_us = 0;
  bool acknowledged = false;
  About about;
};
Notice notice_of(const Where& where, const AlertEvent& event, std::int64_t id, std::int64_t at_us,
                 std::int64_t repeat_us);

// ---- the same in the words of each kind of channel; pure
std::string title_of(const Notice& notice);  // "[FIRING] critical: slow on endpoint/late"
std::string text_of(const Notice& notice);   // some lines for people
json::value webhook_body(const Notice& notice);
json::value slack_body(const Notice& notice);
// One alert of the Alertmanager's API, v2. It ends by itself when we are not heard of for two intervals of repetition.
json::value alertmanager_body(const Notice& notice);
net::Letter letter_of(const Notice& notice, const ChannelSpec& channel, const std::string& delivery_id);

}  // namespace falaj::alerts

template <>
struct falaj::Shape<falaj::alerts::Notice> {
  using T = alerts::Notice;
  static constexpr std::string_view name = "AlertNotice";
  static Fields fields() {
    return {field("event", &T::event, "The event."),
            field("alert", &T::alert, "The alert."),
            field("what", &T::what, "What happened."),
            field("state", &T::state, "firing or resolved."),
            field("rule", &T::rule, "Its rule."),
            field("tenant", &T::tenant, "Whose."),
            field("project", &T::project, "Whose."),
            field("why", &T::why, "In words."),
            field("at_us", &T::at_us, "When."),
            field("since_us", &T::since_us, "It has been so since."),
            field("fired_us", &T::fired_us, "When it fired."),
            field("resolved_us", &T::resolved_us, "When it was over."),
            field("repeat_us", &T::repeat_us, "Told again after."),
            field("acknowledged", &T::acknowledged, "Whether somebody has seen it."),
            field("about", &T::about, "What it is about.")};
  }
};
