// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/alerts/alerts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>

#include <fmt/format.h>

#include "foundation/base/testing.h"
#include "foundation/net/testing.h"
#include "foundation/sys/sim_net.h"
#include "governance/resource/testing.h"
#include "lifecycle/alerts/kinds.h"
#include "lifecycle/alerts/notifications.h"

namespace falaj::alerts {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const Where kFlights{"acme", "flights"}, kPlatform{};

constexpr std::string_view kPlaces = R"(
{apiVersion: falaj/v1, kind: Zone, metadata: {name: uae}, spec: {residency: AE, backends: [local]}}
---
{apiVersion: falaj/v1, kind: Tenant, metadata: {name: acme}, spec: {zones: [uae]}}
---
{apiVersion: falaj/v1, kind: Project, metadata: {tenant: acme, name: flights}, spec: {zone: uae}}
)";

class Told final : public SignalSource {
 public:
  std::vector<Signal> read(const Question& question) override {
    asked = question;
    if (broken) throw Error(Code::unavailable, "the source is away");
    return signals;
  }
  std::vector<Signal> signals;
  bool broken = false;
  Question asked;
};

struct Received {
  std::string path, body, delivery, timestamp, signature, authorization;
};

class AlertsOf : public testing::TestWithParam<std::string>, public resource::ResourcesFixture {
 protected:
  AlertsOf() : ResourcesFixture(GetParam(), alert_kinds()) {
    database->migrate(Alerts::migrations());
    apply(kPlaces);
    net::ServerLimits limits;
    limits.host_names = {"hooks.example"};
    server = std::make_unique<net::TestServer>(limits);
    server->service.on_admit = [this](const net::Head&) {
      return net::run(net::Place::worker, 1 << 20, [this](net::Request& request) { return receive(request); });
    };
    resolver.set("hooks.example", {sys::Address::parse("127.0.0.1")});
    rules = {{"hooks.example"}, true, true};
    start();
  }
  ~AlertsOf() override { finish(); }

  void start() {
    const Alerts::Parts parts{*database, resources, clock, random, metrics_of_parts.emplace_back()};
    alerts = std::make_unique<Alerts>(parts, Sources{{"latency", &told}, {"metric", &told}});
    client = std::make_unique<net::Client>(net::ClientOptions{}, rules, resolver);
    mailer = std::make_unique<net::Mailer>(net::ClientOptions{}, rules, resolver);
    const auto reveal = [this](const std::string& tenant, const std::string& project, const std::string& name) {
      const auto found = secrets.find(fmt::format("{}/{}/{}", tenant, project, name));
      if (found == secrets.end()) throw Error(Code::not_found, fmt::format("no secret '{}' in this project", name));
      return found->second;
    };
    notifications = std::make_unique<Notifications>(parts, *alerts, *client, *mailer, reveal, options);
  }
  void finish() {
    notifications.reset();
    alerts.reset();
  }
  // As after a kill: what is in memory is gone, what was written is not.
  void kill() {
    finish();
    start();
  }

  net::Response receive(net::Request& request) {
    const auto text = [&](std::string_view name) { return std::string(request.head.headers.find(name).value_or("")); };
    Received one{request.head.path,         request.body.read_all(),   text("X-Falaj-Delivery-Id"),
                 text("X-Falaj-Timestamp"), text("X-Falaj-Signature"), text("Authorization")};
    Lock lock(mu);
    received.push_back(std::move(one));
    if (respond) return respond();
    return net::text_response(200, "thanks");
  }
  void answer(std::function<net::Response()> with) {
    Lock lock(mu);
    respond = std::move(with);
  }
  std::vector<Received> got() {
    Lock lock(mu);
    return received;
  }

  void channel(const std::string& name, const std::string& more) {
    apply(
        fmt::format("{{apiVersion: falaj/v1, kind: Channel, metadata: {{tenant: acme, project: flights, name: {}}}, "
                    "spec: {{{}}}}}",
                    name, more));
  }
  void webhook(const std::string& more = "") {
    secrets["acme/flights/hook-key"] = "s3cret";
    channel("ops", fmt::format("type: webhook, url: 'http://hooks.example:{}/hook', secret: hook-key{}", server->port(),
                               more));
  }
  void rule(const std::string& more = "") {
    apply(fmt::format(
        "{{apiVersion: falaj/v1, kind: AlertRule, metadata: {{tenant: acme, project: flights, name: slow}}, "
        "spec: {{on: latency, threshold: 1, notify: [ops]{}}}}}",
        more));
  }
  void see(double value) { told.signals = {{"endpoint/late", {{"endpoint", "late"}}, value, "it is slow", 0}}; }
  void look_after(std::int64_t seconds) {
    clock.advance(std::chrono::seconds(seconds));
    alerts->look();
  }
  std::vector<std::string> history() {
    std::vector<std::string> out;
    for (const auto& e : alerts->events(kFlights, {}))
      out.insert(out.begin(), fmt::format("{}{}", name(e.what), e.told ? "!" : ""));
    return out;
  }

  Told told;
  std::map<std::string, std::string> secrets;
  sys::SimResolver resolver;
  net::OutgoingRules rules;
  outbox::Options options;
  std::list<Metrics> metrics_of_parts;
  Mutex mu;
  std::vector<Received> received GUARDED_BY(mu);
  std::function<net::Response()> respond GUARDED_BY(mu);
  std::unique_ptr<net::TestServer> server;
  std::unique_ptr<net::Client> client;
  std::unique_ptr<net::Mailer> mailer;
  std::unique_ptr<Alerts> alerts;
  std::unique_ptr<Notifications> notifications;
};

TEST_P(AlertsOf, FireAreToldAndResolve) {
  webhook();
  rule(", for: 1m");
  see(2);
  look_after(1);
  ASSERT_THAT(alerts->list(kFlights, {}), SizeIs(1));
  EXPECT_EQ(alerts->list(kFlights, {})[0].phase, Phase::pending);
  EXPECT_EQ(notifications->deliver_due(), 0U);
  look_after(60);
  EXPECT_EQ(alerts->get(kFlights, 1).phase, Phase::firing);
  EXPECT_EQ(notifications->deliver_due(), 1U);
  ASSERT_THAT(got(), SizeIs(1));
  const auto one = got()[0];
  const auto body = parse_json(one.body);
  EXPECT_EQ(body.at("action").as_string(), "fired");
  EXPECT_EQ(body.at("data").at("subject").as_string(), "endpoint/late");
  const auto wanted =
      outbox::signed_headers("X-Falaj", one.delivery, clock.wall().count() / kSecondUs, one.body, "s3cret");
  EXPECT_EQ(one.signature, wanted.find("X-Falaj-Signature"));
  see(0.5);
  look_after(10);
  EXPECT_EQ(notifications->deliver_due(), 1U);
  EXPECT_EQ(parse_json(got()[1].body).at("action").as_string(), "resolved");
  EXPECT_THAT(alerts->list(kFlights, {}), IsEmpty());
  EXPECT_THAT(alerts->list(kFlights, {.resolved = true}), SizeIs(1));
  EXPECT_THAT(history(), ElementsAre("fired!", "resolved!"));
}

TEST_P(AlertsOf, AreTheSameAfterAKillAtAnyPoint) {
  webhook();
  rule(", for: 1m, repeat: 1h");
  see(2);
  look_after(1);
  kill();
  look_after(60);
  kill();  // between the event and its delivery
  EXPECT_EQ(notifications->deliver_due(), 1U);
  kill();
  look_after(1);
  EXPECT_EQ(notifications->deliver_due(), 0U) << "told once";
  look_after(3600);
  kill();
  EXPECT_EQ(notifications->deliver_due(), 1U);
  see(0);
  look_after(1);
  kill();
  EXPECT_EQ(notifications->deliver_due(), 1U);
  EXPECT_THAT(history(), ElementsAre("fired!", "repeated!", "resolved!"));
  EXPECT_THAT(got(), SizeIs(3));
}

TEST_P(AlertsOf, AreTriedAgainUnderTheSameNameAndGivenUp) {
  options.tries_max = 2;
  kill();
  webhook();
  rule();
  answer([] { return net::text_response(500, "no"); });
  see(2);
  look_after(1);
  EXPECT_EQ(notifications->deliver_due(), 1U);
  kill();
  clock.advance(std::chrono::seconds(20));
  EXPECT_EQ(notifications->deliver_due(), 1U);
  const auto dead = notifications->list(kFlights, outbox::State::dead, 10);
  ASSERT_THAT(dead, SizeIs(1));
  EXPECT_EQ(dead[0].error, "answered 500");
  ASSERT_THAT(got(), SizeIs(2));
  EXPECT_EQ(got()[0].delivery, got()[1].delivery);
  EXPECT_EQ(got()[0].delivery, dead[0].id);
  answer({});
  write([&](sql::Writer& w) { notifications->retry(w, kFlights, dead[0].id); });
  EXPECT_EQ(notifications->deliver_due(), 1U);
  EXPECT_EQ(notifications->list(kFlights, {}, 10)[0].state, outbox::State::done);
  EXPECT_ERROR(write([&](sql::Writer& w) { notifications->retry(w, kFlights, dead[0].id); }), Code::not_found);
}

TEST_P(AlertsOf, AreNotHarmedByHostileReceivers) {
  webhook();
  rule();
  answer([] {
    auto response = net::text_response(302, "");
    response.headers.set("Location", "http://169.254.169.254/latest");
    return response;
  });
  see(2);
  look_after(1);
  notifications->deliver_due();
  EXPECT_EQ(notifications->list(kFlights, {}, 1)[0].error, "answered 302") << "it is not followed";
  answer([] { return net::text_response(200, std::string(1 << 20, 'x')); });
  clock.advance(std::chrono::hours(1));
  notifications->deliver_due();
  EXPECT_THAT(notifications->list(kFlights, {}, 1)[0].error, HasSubstr("longer than"));
  EXPECT_EQ(notifications->list(kFlights, {}, 1)[0].state, outbox::State::waiting);
  // What the name leads to is looked at each time.
  rules.local_addresses = false;
  kill();
  clock.advance(std::chrono::hours(1));
  notifications->deliver_due();
  const auto last = notifications->list(kFlights, {}, 1)[0];
  EXPECT_EQ(last.state, outbox::State::dead);
  EXPECT_THAT(last.error, HasSubstr("not on the public internet"));
}

TEST_P(AlertsOf, AreSilencedAcknowledgedAndAudited) {
  webhook();
  rule(", repeat: 1h");
  const auto made = write(
      [&](sql::Writer& w) { return alerts->silence(w, kFlights, "rule=slow", 60 * kSecondUs, "we know", "user/ada"); });
  see(2);
  look_after(1);
  EXPECT_EQ(notifications->deliver_due(), 0U);
  EXPECT_THAT(alerts->silences(kFlights, false), SizeIs(1));
  write([&](sql::Writer& w) { alerts->unsilence(w, kFlights, made.id, "user/ada"); });
  EXPECT_THAT(alerts->silences(kFlights, false), IsEmpty());
  EXPECT_EQ(alerts->silences(kFlights, true)[0].ended_by, "user/ada");
  look_after(1);
  EXPECT_EQ(notifications->deliver_due(), 1U);
  write([&](sql::Writer& w) { alerts->acknowledge(w, kFlights, 1, "user/ada", "on it"); });
  look_after(3600);
  notifications->deliver_due();
  EXPECT_THAT(got(), SizeIs(1)) << "people have seen it";
  EXPECT_EQ(notifications->list(kFlights, {}, 1)[0].error, "not sent: it was acknowledged");
  EXPECT_EQ(alerts->get(kFlights, 1).acked_by, "user/ada");
  EXPECT_THAT(history(), ElementsAre("fired", "unsilenced!", "acknowledged", "repeated!"));
  see(0);
  look_after(1);
  EXPECT_ERROR(write([&](sql::Writer& w) { alerts->acknowledge(w, kFlights, 1, "user/ada", ""); }), Code::conflict);
  EXPECT_ERROR(write([&](sql::Writer& w) { alerts->acknowledge(w, kFlights, 9, "user/ada", ""); }), Code::not_found);
  EXPECT_ERROR(write([&](sql::Writer& w) { alerts->silence(w, kFlights, "", kSecondUs, "x", "user/ada"); }),
               Code::invalid);
  EXPECT_ERROR(write([&](sql::Writer& w) { alerts->silence(w, kFlights, "Rule=x", kSecondUs, "x", "user/ada"); }),
               Code::invalid);
  EXPECT_ERROR(write([&](sql::Writer& w) { alerts->silence(w, kFlights, "rule=x", kSecondUs, " ", "user/ada"); }),
               Code::invalid);
  EXPECT_ERROR(write([&](sql::Writer& w) { alerts->unsilence(w, kFlights, made.id, "user/ada"); }), Code::not_found);
}

TEST_P(AlertsOf, GoToAnAlertmanagerAndToSlackByASecretUrl) {
  secrets["acme/flights/token"] = "t0ken";
  secrets["acme/flights/slack"] = fmt::format("http://hooks.example:{}/slack", server->port());
  channel("ops", fmt::format("type: alertmanager, url: 'http://hooks.example:{}/am/', secret: token", server->port()));
  channel("chat", "type: slack, urlSecret: slack, sendResolved: false");
  rule(", repeat: 0s, labels: {team: air}");
  apply(
      "{apiVersion: falaj/v1, kind: AlertRule, metadata: {tenant: acme, project: flights, name: other}, "
      "spec: {on: latency, threshold: 1, notify: [chat]}}");
  see(2);
  look_after(1);
  EXPECT_EQ(notifications->deliver_due(), 2U);
  see(0);
  look_after(1);
  notifications->deliver_due();
  std::map<std::string, std::vector<std::string>> bodies;
  for (const auto& one : got()) {
    bodies[one.path].push_back(one.body);
    EXPECT_EQ(one.authorization, one.path == "/slack" ? "" : "Bearer t0ken");
  }
  ASSERT_THAT(bodies["/am/api/v2/alerts"], SizeIs(2));
  EXPECT_EQ(parse_json(bodies["/am/api/v2/alerts"][0]).at(0).at("labels").at("team").as_string(), "air");
  ASSERT_THAT(bodies["/slack"], SizeIs(1)) << "it is not told of the end";
  EXPECT_THAT(bodies["/slack"][0], HasSubstr("[FIRING] warning: other on endpoint/late"));
}

TEST_P(AlertsOf, StayAsTheyAreWhenTheSourceIsAway) {
  webhook();
  rule();
  see(2);
  look_after(1);
  told.broken = true;
  look_after(1);
  EXPECT_EQ(alerts->get(kFlights, 1).phase, Phase::firing);
  ASSERT_THAT(alerts->rules(kFlights), SizeIs(1));
  EXPECT_EQ(alerts->rules(kFlights)[0].problem, "the source is away");
  EXPECT_EQ(alerts->rules(kFlights)[0].firing, 1);
  told.broken = false;
  look_after(1);
  EXPECT_EQ(alerts->rules(kFlights)[0].problem, "");
  remove({"AlertRule", "acme", "flights", "slow"});
  look_after(1);
  EXPECT_EQ(alerts->get(kFlights, 1).phase, Phase::resolved) << "its rule is gone";
}

TEST_P(AlertsOf, CanBeFollowedFromAnyEvent) {
  webhook();
  rule();
  see(2);
  look_after(1);
  see(0);
  look_after(1);
  see(2);
  look_after(1);
  const auto all = alerts->fired_after(kFlights, "slow", 0, 0, 10);
  ASSERT_THAT(all, SizeIs(2)) << "that it was resolved in between is no firing";
  EXPECT_EQ(all[0].where, kFlights);
  EXPECT_EQ(all[0].what, What::fired);
  EXPECT_EQ(all[0].about.labels.at("endpoint"), "late");
  EXPECT_LT(all[0].id, all[1].id);
  EXPECT_THAT(alerts->fired_after(kFlights, "slow", all[0].id, 0, 10), SizeIs(1));
  EXPECT_THAT(alerts->fired_after(kFlights, "slow", 0, all[0].at_us, 10), SizeIs(1));
  EXPECT_THAT(alerts->fired_after(kFlights, "other", 0, 0, 10), IsEmpty());
  see(0);
  look_after(1);
  clock.advance(std::chrono::hours(24 * 500));
  alerts->purge();
  EXPECT_THAT(alerts->fired_after(kFlights, "slow", 0, 0, 10), IsEmpty());
  see(2);
  look_after(1);
  EXPECT_GT(alerts->fired_after(kFlights, "slow", 0, 0, 10).at(0).id, all[1].id) << "no id is used twice";
  EXPECT_GT(alerts->list(kFlights, {}).at(0).number, 1);
}

TEST_P(AlertsOf, TestAChannelAndTellTheAnswer) {
  webhook();
  const auto good = notifications->test(kFlights, "ops");
  EXPECT_TRUE(good.success) << good.error;
  EXPECT_EQ(good.answer, "thanks");
  answer([] { return net::text_response(418, "teapot"); });
  EXPECT_EQ(notifications->test(kFlights, "ops").error, "answered 418");
  secrets.clear();
  EXPECT_EQ(notifications->test(kFlights, "ops").error, "no secret 'hook-key' in this project");
  EXPECT_ERROR(notifications->test(kFlights, "none"), Code::not_found);
  EXPECT_THAT(notifications->list(kFlights, {}, 10), IsEmpty());
}

TEST_P(AlertsOf, OfThePlatformWatchMetrics) {
  apply(
      "{apiVersion: falaj/v1, kind: AlertRule, metadata: {name: many}, "
      "spec: {on: metric, metric: falaj_x, threshold: 1}}");
  see(2);
  look_after(1);
  EXPECT_EQ(told.asked.metric, "falaj_x");
  EXPECT_THAT(alerts->list(kPlatform, {}), SizeIs(1));
  EXPECT_THAT(alerts->list(kFlights, {}), IsEmpty());
}

TEST_P(AlertsOf, SayWhatIsWrongWithARuleOrAChannel) {
  const auto faults = [&](const std::string& kind, const std::string& spec) {
    try {
      apply(
          fmt::format("{{apiVersion: falaj/v1, kind: {}, metadata: {{tenant: acme, project: flights, name: x}}, spec: "
                      "{{{}}}}}",
                      kind, spec));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(faults("AlertRule", "on: latency"), HasSubstr("spec.threshold: required with on: latency"));
  EXPECT_THAT(faults("AlertRule", "on: latency, threshold: 1, notify: [nobody]"), HasSubstr("spec.notify[0]"));
  EXPECT_THAT(faults("AlertRule", "on: metric, metric: x, threshold: 1"), HasSubstr("whole platform"));
  EXPECT_THAT(faults("AlertRule", "on: latency, threshold: 1, labels: {Team: x}"), HasSubstr("spec.labels"));
  EXPECT_EQ(faults("AlertRule", "on: drift"), "none");
  EXPECT_THAT(faults("Channel", "type: webhook"), HasSubstr("either url or urlSecret"));
  EXPECT_THAT(faults("Channel", "type: webhook, url: 'ftp://x'"), HasSubstr("spec.url"));
  EXPECT_THAT(faults("Channel", "type: webhook, url: 'https://h/', secret: a/b/c"), HasSubstr("spec.secret"));
  EXPECT_THAT(faults("Channel", "type: email, server: h, from: a@b, to: ['a b@c']"), HasSubstr("spec.to[0]"));
  EXPECT_THAT(faults("Channel", "type: email, server: 'h:0', from: a@b, to: [c@d]"), HasSubstr("spec.server"));
  EXPECT_THAT(faults("Channel", "type: email, server: h, tls: none, user: u, secret: s, from: a@b, to: [c@d]"),
              HasSubstr("in the clear"));
  EXPECT_EQ(faults("Channel", "type: email, server: 'h:25', from: a@b, to: [c@d]"), "none");
}

INSTANTIATE_TEST_SUITE_P(Engines, AlertsOf, testing::ValuesIn(sql::engines()));

}  // namespace
}  // namespace falaj::alerts
