// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "api/alert_sources.h"
#include "api/testing.h"
#include "foundation/base/testing.h"
#include "lifecycle/alerts/alerts.h"
#include "lifecycle/alerts/kinds.h"
#include "lifecycle/jobs/jobs.h"
#include "lifecycle/jobs/testing.h"
#include "lifecycle/serving/endpoints.h"

namespace falaj::api {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr std::string_view kSlow = R"(
{apiVersion: falaj/v1, kind: AlertRule, metadata: {tenant: acme, project: flights, name: slow},
 spec: {on: latency, threshold: 0.1, labels: {team: air}}}
)";

serving::ServerReport report_of(std::int64_t requests, std::int64_t failures, double p99_us) {
  serving::VariantReport variant;
  variant.tenant = "acme";
  variant.project = "flights";
  variant.endpoint = "late";
  variant.variant = "champion";
  variant.version = 1;
  variant.state = "ready";
  variant.requests = requests;
  variant.failures = failures;
  variant.latency = {static_cast<std::int64_t>(alerts::TimeWindows::Times::bucket(static_cast<std::int64_t>(p99_us))),
                     requests};
  serving::ServerReport report;
  report.server = "here";
  report.variants = {variant};
  return report;
}

class AlertRoutes : public testing::Test {
 protected:
  alerts::Question question(const std::string& on, std::int64_t window_s = 60) {
    return {{"acme", "flights"}, on, "", window_s * alerts::kSecondUs, api.clock.wall().count()};
  }
  TestApi api;
};

TEST_F(AlertRoutes, ShowWhatFiresAndLetPeopleActOnIt) {
  api.apply(kSlow);
  api.endpoints->report(report_of(10, 0, 250'000));
  api.alerts->look();
  EXPECT_TRUE(api.get("/v1/alerts?" + kProject).json().at("items").as_array().empty())
      << "what was before is not known";
  api.clock.advance(std::chrono::seconds(1));
  api.endpoints->report(report_of(20, 0, 250'000));
  api.alerts->look();
  const auto list = api.get("/v1/alerts?" + kProject);
  ASSERT_EQ(list.status, 200) << list.body;
  const auto alert = list.json().at("items").at(0);
  EXPECT_EQ(alert.at("state").as_string(), "firing");
  EXPECT_EQ(alert.at("subject").as_string(), "endpoint/late");
  EXPECT_EQ(alert.at("labels").at("team").as_string(), "air");
  EXPECT_NEAR(alert.at("value").to_number<double>(), 0.25, 0.25 / 16);
  EXPECT_EQ(api.get("/v1/alerts/rules?" + kProject).json().at("items").at(0).at("firing").as_int64(), 1);

  EXPECT_EQ(api.post("/v1/alerts/1/ack?" + kProject, R"({"note":"on it"})").status, 200);
  const auto shown = api.get("/v1/alerts/1?" + kProject).json();
  EXPECT_EQ(shown.at("alert").at("acknowledged_by").as_string(), "user/admin");
  EXPECT_EQ(shown.at("events").as_array().size(), 2U);
  EXPECT_EQ(api.audited("alert.acknowledge"), 1U);

  const auto silence = api.post("/v1/silences?" + kProject, R"({"match":"team=air","for":"1h","reason":"we know"})");
  ASSERT_EQ(silence.status, 200) << silence.body;
  EXPECT_EQ(api.get("/v1/silences?" + kProject).json().at("items").as_array().size(), 1U);
  EXPECT_EQ(api.del("/v1/silences/1?" + kProject).status, 200);
  EXPECT_EQ(api.audited("silence.create"), 1U);
  EXPECT_EQ(api.audited("silence.delete"), 1U);

  api.clock.advance(std::chrono::minutes(10));
  api.endpoints->report(report_of(20, 0, 250'000));
  api.alerts->look();
  EXPECT_TRUE(api.get("/v1/alerts?" + kProject).json().at("items").as_array().empty());
  EXPECT_EQ(api.get("/v1/alerts?resolved=true&" + kProject).json().at("items").as_array().size(), 1U);
  EXPECT_EQ(api.get("/v1/alerts/history?" + kProject).json().at("items").at(0).at("what").as_string(), "resolved");
  EXPECT_EQ(api.get("/v1/alerts/history?limit=1&" + kProject).json().at("next").as_string(), "3");
}

TEST_F(AlertRoutes, SayWhatIsWrong) {
  EXPECT_EQ(api.get("/v1/alerts?scope=/t/acme").error(), "invalid");
  EXPECT_EQ(api.get("/v1/alerts/none?" + kProject).error(), "not_found");
  EXPECT_EQ(api.get("/v1/alerts/7?" + kProject).error(), "not_found");
  EXPECT_EQ(api.get("/v1/alerts?cursor=x&" + kProject).error(), "invalid");
  EXPECT_EQ(api.post("/v1/silences?" + kProject, R"({"match":"team=air","for":"1000d","reason":"x"})").error(),
            "invalid");
  EXPECT_EQ(api.post("/v1/silences?" + kProject, R"({"match":"A b","for":"1h","reason":"x"})").error(), "invalid");
  EXPECT_EQ(api.post("/v1/channels/none/test?" + kProject, "").error(), "not_found");
  EXPECT_EQ(api.call(Question{Method::get, "/v1/alerts?" + kProject}.by(api.ada)).error(), "denied");
}

TEST_F(AlertRoutes, ChannelsAreToldNothingBeyondTheRules) {
  api.apply(R"({apiVersion: falaj/v1, kind: Channel, metadata: {tenant: acme, project: flights, name: mail},
    spec: {type: email, server: mail.example, from: a@b, to: [c@d]}})");
  const auto tested = api.post("/v1/channels/mail/test?" + kProject, "");
  ASSERT_EQ(tested.status, 200) << tested.body;
  EXPECT_FALSE(tested.json().at("success").as_bool());
  EXPECT_THAT(tested.body, HasSubstr("allow-list"));
  EXPECT_EQ(api.audited("channel.test"), 1U);
}

TEST_F(AlertRoutes, EndpointsFailWithinAWindow) {
  api.endpoints->report(report_of(100, 50, 1000));
  EXPECT_TRUE(api.endpoint_signals->read(question("errors")).empty()) << "what was before is not known";
  api.clock.advance(std::chrono::seconds(10));
  api.endpoints->report(report_of(190, 60, 1000));
  const auto signals = api.endpoint_signals->read(question("errors"));
  ASSERT_THAT(signals, SizeIs(1));
  EXPECT_DOUBLE_EQ(signals[0].value, 0.1);
  EXPECT_EQ(signals[0].labels.at("variant"), "champion");
  EXPECT_TRUE(api.endpoint_signals->read({{"acme", "cargo"}, "errors", "", 1, 1}).empty());
}

TEST_F(AlertRoutes, FindingsAreReadByKind) {
  for (const auto* kind : {"drift", "quality", "performance", "skew"})
    EXPECT_TRUE(api.finding_signals->read(question(kind)).empty());
}

TEST_F(AlertRoutes, JobsWaitFailAndCost) {
  EXPECT_TRUE(api.job_signals->read(question("queueWait")).empty());
  const auto submitted =
      api.post("/v1/jobs?" + kProject, R"({"jobs":[{"name":"huge","spec":{"command":["true"],"cpus":5000}}]})");
  ASSERT_EQ(submitted.status, 200) << submitted.body;
  api.clock.advance(std::chrono::seconds(30));
  const auto waits = api.job_signals->read(question("queueWait"));
  ASSERT_THAT(waits, SizeIs(1));
  EXPECT_EQ(waits[0].subject, "queue/default");
  EXPECT_EQ(waits[0].value, 30);
  EXPECT_TRUE(api.job_signals->read(question("jobFailures")).empty());
  const auto cost = api.job_signals->read(question("budget"));
  ASSERT_THAT(cost, SizeIs(1));
  EXPECT_EQ(cost[0].value, 0);
}

TEST_F(AlertRoutes, MetricsAreReadByName) {
  auto& gauge = api.metrics.gauge("falaj_test_level", "A level.", {{"of", "water"}});
  auto& counter = api.metrics.counter("falaj_test_total", "A count.");
  gauge.Set(3);
  counter.Increment(5);
  auto asked = question("metric");
  asked.metric = "falaj_test_level";
  const auto level = api.metric_signals->read(asked);
  ASSERT_THAT(level, SizeIs(1));
  EXPECT_EQ(level[0].value, 3);
  EXPECT_EQ(level[0].labels.at("of"), "water");
  asked.metric = "falaj_test_total";
  EXPECT_EQ(api.metric_signals->read(asked).at(0).value, 0);
  counter.Increment(20);
  asked.now_us += 10 * alerts::kSecondUs;
  EXPECT_EQ(api.metric_signals->read(asked).at(0).value, 2);
  asked.metric = "falaj_test_none";
  EXPECT_ERROR(api.metric_signals->read(asked), Code::not_found);
  asked.metric = "falaj_api_request_seconds";
  EXPECT_ERROR(api.metric_signals->read(asked), Code::invalid);
}

}  // namespace
}  // namespace falaj::api
