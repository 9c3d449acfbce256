// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/deliveries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "foundation/base/testing.h"
#include "foundation/net/testing.h"
#include "foundation/sys/sim_net.h"
#include "lifecycle/models/testing.h"

namespace falaj::models {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

struct Received {
  std::string event, body;
  std::string delivery, timestamp, signature;
};

class DeliveriesOf : public testing::TestWithParam<std::string>, public RegistryFixture {
 protected:
  DeliveriesOf() : RegistryFixture(GetParam()) {
    server.service.on_admit = [this](const net::Head&) {
      return net::run(net::Place::worker, 1 << 20, [this](net::Request& request) { return receive(request); });
    };
    resolver.set("hooks.example", {sys::Address::parse("127.0.0.1")});
    rules.hosts = {"hooks.example"};
    rules.plain_http = rules.local_addresses = true;
  }

  net::Response receive(net::Request& request) {
    const auto text = [&](std::string_view name) { return std::string(request.head.headers.find(name).value_or("")); };
    Received one{request.head.path, request.body.read_all(), text("X-MLflow-Delivery-Id"), text("X-MLflow-Timestamp"),
                 text("X-MLflow-Signature")};
    Lock lock(mu);
    received.push_back(std::move(one));
    came.notify_all();
    return net::text_response(status, "thanks");
  }
  Deliveries& deliveries() {
    if (!sender) {
      client = std::make_unique<net::Client>(net::ClientOptions{}, rules, resolver);
      sender = std::make_unique<Deliveries>(*base.database, *webhooks, *client, base.clock, base.random, *base.metrics,
                                            options);
    }
    return *sender;
  }
  Webhook hook(const std::string& host = "hooks.example",
               std::vector<std::string> events = {"registered_model.created"}) {
    WebhookChange wanted;
    wanted.name = "ci";
    wanted.url = fmt::format("http://{}:{}/hook", host, server.port());
    wanted.events = std::move(events);
    wanted.secret = "s3cret";
    return webhooks->create(kFlights, wanted, act());
  }
  std::vector<Delivery> of(const Webhook& webhook) { return webhooks->deliveries(kFlights, webhook.id, {}, 100); }
  std::size_t count() {
    Lock lock(mu);
    return received.size();
  }

  Mutex mu;
  std::condition_variable came;
  std::vector<Received> received GUARDED_BY(mu);
  std::atomic<int> status{200};
  net::ServerLimits limits = [] {
    net::ServerLimits out;
    out.host_names = {"hooks.example"};
    return out;
  }();
  net::TestServer server{limits};
  sys::SimResolver resolver;
  net::OutgoingRules rules;
  outbox::Options options;
  std::unique_ptr<net::Client> client;
  std::unique_ptr<Deliveries> sender;
};

TEST_P(DeliveriesOf, BringWhatHappenedWithASignature) {
  const auto webhook = hook();
  registry->create_model(kFlights, "delay", {{"team", "ops"}}, "how late", act());
  registry->create_model(kCargo, "other", {}, "", act());
  EXPECT_EQ(deliveries().deliver_due(), 1U);
  EXPECT_EQ(deliveries().deliver_due(), 0U);
  Lock lock(mu);
  ASSERT_THAT(received, SizeIs(1));
  const auto& got = received[0];
  const auto body = parse_json(got.body);
  EXPECT_EQ(body.at("entity").as_string(), "registered_model");
  EXPECT_EQ(body.at("action").as_string(), "created");
  EXPECT_EQ(body.at("data").at("name").as_string(), "delay");
  EXPECT_EQ(body.at("data").at("tags").at("team").as_string(), "ops");
  const auto wanted = delivery_headers(got.delivery, base.clock.wall().count() / 1'000'000, got.body, "s3cret");
  EXPECT_EQ(got.signature, wanted.find("X-MLflow-Signature"));
  EXPECT_EQ(got.timestamp, wanted.find("X-MLflow-Timestamp"));
  const auto kept = of(webhook);
  ASSERT_THAT(kept, SizeIs(1));
  EXPECT_EQ(kept[0].state, DeliveryState::done);
  EXPECT_EQ(kept[0].status, 200);
  EXPECT_EQ(kept[0].id, got.delivery);
}

TEST_P(DeliveriesOf, TellOfEverythingThatIsAskedFor) {
  hook("hooks.example", {std::begin(kWebhookEvents), std::end(kWebhookEvents)});
  const auto version = version_of(kFlights, "delay", run_with(kFlights, {{"model/a", "x"}}));
  registry->set_version_tag(kFlights, "delay", 1, {"k", "v"}, act());
  registry->delete_version_tag(kFlights, "delay", 1, "k", act());
  registry->set_alias(kFlights, "delay", "a", 1, act());
  registry->delete_alias(kFlights, "delay", "a", act());
  promotions->require_approval(kFlights, "delay", true, act());
  const auto first = promotions->promote(kFlights, {"delay", 1, "b", "why", {}}, act());
  promotions->decide(kFlights, first.id, true, "", act("user/eve"));
  const auto second = promotions->promote(kFlights, {"delay", 1, "b", "why", {}}, act());
  promotions->decide(kFlights, second.id, false, "no", act("user/eve"));
  deliveries().deliver_due();
  Lock lock(mu);
  std::vector<std::string> events;
  for (const auto& got : received) {
    const auto body = parse_json(got.body);
    events.push_back(
        fmt::format("{}.{}", std::string(body.at("entity").as_string()), std::string(body.at("action").as_string())));
  }
  EXPECT_THAT(events, ElementsAre("registered_model.created", "model_version.created", "model_version_tag.set",
                                  "model_version_tag.deleted", "model_version_alias.created",
                                  "model_version_alias.deleted", "promotion.requested", "model_version_alias.created",
                                  "promotion.done", "promotion.requested", "promotion.rejected"));
}

TEST_P(DeliveriesOf, AreTriedAgainAndThenLeftForPeopleToSee) {
  options.tries_max = 3;
  const auto webhook = hook();
  status = 503;
  registry->create_model(kFlights, "delay", {}, "", act());
  EXPECT_EQ(deliveries().deliver_due(), 1U);
  EXPECT_EQ(deliveries().deliver_due(), 0U) << "not before its time";
  EXPECT_EQ(of(webhook).at(0).error, "answered 503");
  base.clock.advance(std::chrono::seconds(15));
  EXPECT_EQ(deliveries().deliver_due(), 1U);
  base.clock.advance(std::chrono::hours(2));
  EXPECT_EQ(deliveries().deliver_due(), 1U);
  EXPECT_EQ(of(webhook).at(0).state, DeliveryState::dead);
  base.clock.advance(std::chrono::hours(2));
  EXPECT_EQ(deliveries().deliver_due(), 0U);
  EXPECT_THAT(webhooks->deliveries(kFlights, webhook.id, DeliveryState::waiting, 10), IsEmpty());

  status = 200;
  const auto dead = webhooks->deliveries(kFlights, webhook.id, DeliveryState::dead, 10).at(0);
  webhooks->retry(kFlights, webhook.id, dead.id, act());
  EXPECT_EQ(deliveries().deliver_due(), 1U);
  EXPECT_EQ(of(webhook).at(0).state, DeliveryState::done);
  EXPECT_ERROR(webhooks->retry(kFlights, webhook.id, dead.id, act()), Code::not_found);
  Lock lock(mu);
  ASSERT_THAT(received, SizeIs(4));
  for (const auto& got : received) EXPECT_EQ(got.delivery, dead.id) << "one delivery, however often it is tried";
}

TEST_P(DeliveriesOf, ObeyTheOutgoingRules) {
  const auto elsewhere = hook("127.0.0.1");
  registry->create_model(kFlights, "one", {}, "", act());
  deliveries().deliver_due();
  EXPECT_EQ(of(elsewhere).at(0).state, DeliveryState::dead);
  sender.reset();
  rules.local_addresses = false;
  const auto inward = hook();
  registry->create_model(kFlights, "two", {}, "", act());
  deliveries().deliver_due();
  EXPECT_EQ(of(inward).at(0).state, DeliveryState::dead);
  sender.reset();
  rules.local_addresses = true;
  rules.plain_http = false;
  const auto tested = deliveries().test(kFlights, inward.id, "registered_model.created");
  EXPECT_FALSE(tested.success);
  EXPECT_FALSE(tested.error.empty());
  EXPECT_EQ(count(), 0U);
}

TEST_P(DeliveriesOf, NeverFollowARedirect) {
  const auto webhook = hook();
  server.service.on_admit = [this](const net::Head&) {
    return net::run(net::Place::worker, 1 << 20, [this](net::Request& request) {
      receive(request);
      auto response = net::text_response(302, "");
      response.headers.set("Location", "/elsewhere");
      return response;
    });
  };
  registry->create_model(kFlights, "delay", {}, "", act());
  deliveries().deliver_due();
  EXPECT_EQ(count(), 1U);
  EXPECT_EQ(of(webhook).at(0).error, "answered 302");
}

TEST_P(DeliveriesOf, AreNotMadeWhenTheWriteFails) {
  const auto webhook = hook("hooks.example", {"registered_model.created", "model_version.created"});
  registry->create_model(kFlights, "delay", {}, "", act());
  EXPECT_ERROR(registry->create_model(kFlights, "delay", {}, "", act()), Code::exists);
  EXPECT_THAT(of(webhook), SizeIs(1));
}

TEST_P(DeliveriesOf, TestAWebhookAndTellTheAnswer) {
  const auto webhook = hook();
  const auto good = deliveries().test(kFlights, webhook.id, "model_version.created");
  EXPECT_TRUE(good.success);
  EXPECT_EQ(good.status, 200);
  EXPECT_EQ(good.body, "thanks");
  status = 418;
  const auto bad = deliveries().test(kFlights, webhook.id, "model_version.created");
  EXPECT_FALSE(bad.success);
  EXPECT_EQ(bad.error, "answered 418");
  EXPECT_THAT(of(webhook), IsEmpty());
  EXPECT_ERROR(deliveries().test(kCargo, webhook.id, "model_version.created"), Code::not_found);
  EXPECT_ERROR(deliveries().test(kFlights, webhook.id, "nothing"), Code::invalid);
}

TEST_P(DeliveriesOf, GoOutByThemselvesOnceWritten) {
  hook();
  deliveries().start();
  registry->create_model(kFlights, "delay", {}, "", act());
  {
    Lock lock(mu);
    while (received.empty()) lock.wait(came);
  }
  deliveries().stop();
  deliveries().stop();
  registry->create_model(kFlights, "after", {}, "", act());
  EXPECT_EQ(count(), 1U);
}

TEST_P(DeliveriesOf, AreDeadAtOnceWhenTooManyWait) {
  const auto webhook = hook();
  registry->create_model(kFlights, "first", {}, "", act());
  base.scratch->tamper(fmt::format(
      "WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < {}) "
      "INSERT INTO models_delivery SELECT n.i, d.webhook, d.delivery_id, d.event, d.body, d.state, d.tries, "
      "d.created_us, d.due_us, d.status, d.error FROM models_delivery d, n",
      1000 + kDeliveriesWaitingMax - 3));
  registry->create_model(kFlights, "last", {}, "", act());
  EXPECT_THAT(webhooks->deliveries(kFlights, webhook.id, DeliveryState::dead, 10), IsEmpty());
  registry->create_model(kFlights, "one past", {}, "", act());
  const auto dead = webhooks->deliveries(kFlights, webhook.id, DeliveryState::dead, 10);
  ASSERT_THAT(dead, SizeIs(1));
  EXPECT_EQ(dead[0].error, "too many deliveries were waiting");
}

TEST_P(DeliveriesOf, AreForgottenInTime) {
  const auto webhook = hook();
  registry->create_model(kFlights, "delay", {}, "", act());
  deliveries().deliver_due();
  deliveries().purge();
  EXPECT_THAT(of(webhook), SizeIs(1));
  base.clock.advance(std::chrono::hours(24 * 31));
  registry->create_model(kFlights, "late", {}, "", act());
  deliveries().purge();
  EXPECT_THAT(of(webhook), SizeIs(1)) << "what still waits stays";
}

TEST_P(DeliveriesOf, WebhooksAreKeptWithTheirSecretsSealed) {
  const auto webhook = hook();
  EXPECT_TRUE(webhook.has_secret);
  EXPECT_THAT(webhooks->list(kFlights), SizeIs(1));
  EXPECT_THAT(webhooks->list(kCargo), IsEmpty());
  EXPECT_ERROR(webhooks->get(kCargo, webhook.id), Code::not_found);
  base.database->read([&](sql::Reader& r) {
    r.query("SELECT secret FROM models_webhook", {},
            [](const sql::Row& row) { EXPECT_EQ(as_text(row.bytes(0)).find("s3cret"), std::string_view::npos); });
  });
  WebhookChange change;
  change.active = false;
  change.secret = "";
  EXPECT_FALSE(webhooks->update(kFlights, webhook.id, change, act()).has_secret);
  registry->create_model(kFlights, "delay", {}, "", act());
  EXPECT_THAT(of(webhook), IsEmpty()) << "it is not active";
  for (const std::string url : {"", "ftp://x/", "https://", "https://user:pw@host/", "https://h/a b", "https://h/#f"}) {
    change = {};
    change.url = url;
    EXPECT_ERROR(webhooks->update(kFlights, webhook.id, change, act()), Code::invalid);
  }
  change = {};
  change.events = {"model.exploded"};
  EXPECT_ERROR(webhooks->update(kFlights, webhook.id, change, act()), Code::invalid);
  webhooks->remove(kFlights, webhook.id, act());
  EXPECT_ERROR(webhooks->get(kFlights, webhook.id), Code::not_found);
}

INSTANTIATE_TEST_SUITE_P(Engines, DeliveriesOf, testing::ValuesIn(sql::engines()));

}  // namespace
}  // namespace falaj::models
