// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/alerts/notice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace falaj::alerts {
namespace {

using testing::HasSubstr;

Notice slow_notice() {
  Notice n;
  n.event = 7;
  n.alert = 3;
  n.what = "fired";
  n.state = "firing";
  n.rule = "slow";
  n.tenant = "acme";
  n.project = "flights";
  n.at_us = n.fired_us = 1'700'000'000'000'000;
  n.since_us = n.at_us - 60 * kSecondUs;
  n.repeat_us = 3600 * kSecondUs;
  n.about = {
      "endpoint/late", "critical", 0.5, "it takes <500> ms & more", 1, {{"rule", "slow"}, {"data.set", "a"}}, {}};
  return n;
}

TEST(Notices, AreTitledAndTold) {
  EXPECT_EQ(title_of(slow_notice()), "[FIRING] critical: slow on endpoint/late");
  const auto text = text_of(slow_notice());
  EXPECT_THAT(text, HasSubstr("it takes <500> ms & more\n"));
  EXPECT_THAT(text, HasSubstr("falaj alerts show 3 -t acme -p flights\n"));
}

TEST(Notices, AreJsonForWebhooksAndSlack) {
  const auto body = webhook_body(slow_notice());
  EXPECT_EQ(body.at("event").as_int64(), 7);
  EXPECT_EQ(body.at("action").as_string(), "fired");
  EXPECT_EQ(body.at("data").at("labels").at("rule").as_string(), "slow");
  EXPECT_FALSE(body.at("data").as_object().contains("resolved"));
  const auto slack = slack_body(slow_notice());
  EXPECT_EQ(slack.at("attachments").at(0).at("color").as_string(), "danger");
  EXPECT_THAT(std::string(slack.at("attachments").at(0).at("text").as_string()),
              HasSubstr("&lt;500&gt; ms &amp; more"));
}

TEST(Notices, SayToAnAlertmanagerHowLongTheyHold) {
  auto notice = slow_notice();
  auto alert = alertmanager_body(notice).at(0);
  EXPECT_EQ(alert.at("labels").at("alertname").as_string(), "slow");
  EXPECT_EQ(alert.at("labels").at("data_set").as_string(), "a");
  EXPECT_EQ(alert.at("labels").at("project").as_string(), "flights");
  EXPECT_EQ(alert.at("startsAt").as_string(), "2023-11-14T22:13:20.000Z");
  EXPECT_EQ(alert.at("endsAt").as_string(), "2023-11-15T00:18:20.000Z") << "two repetitions and five minutes";
  notice.state = "resolved";
  notice.resolved_us = notice.at_us + 10 * kSecondUs;
  alert = alertmanager_body(notice).at(0);
  EXPECT_EQ(alert.at("endsAt").as_string(), "2023-11-14T22:13:30.000Z");
}

TEST(Notices, AreLetters) {
  ChannelSpec channel;
  channel.from = "falaj@example.org";
  channel.to = {"ops@example.org"};
  const auto letter = letter_of(slow_notice(), channel, "abc");
  EXPECT_EQ(letter.subject, "[FIRING] critical: slow on endpoint/late");
  EXPECT_EQ(letter.message_id, "abc");
  EXPECT_EQ(letter.unix_s, 1'700'000'000);
}

}  // namespace
}  // namespace falaj::alerts
