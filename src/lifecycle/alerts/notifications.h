// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "foundation/net/client.h"
#include "foundation/net/mail.h"
#include "lifecycle/alerts/alerts.h"
#include "lifecycle/outbox/courier.h"

namespace falaj::alerts {

// What a channel was told, or is to be.
struct Delivery {
  std::string id;  // receivers see it too: the same for every try
  std::string channel, what;
  std::int64_t event = 0, alert = 0;
  outbox::State state = outbox::State::waiting;
  std::int64_t tries = 0, created_us = 0, due_us = 0;
  std::int64_t status = 0;
  std::string error;
};

// The value of a secret of a project; throws not_found.
using Reveal =
    std::function<std::string(const std::string& tenant, const std::string& project, const std::string& name)>;

// Brings what Alerts wrote to channels, at least once. Thread-safe.
class Notifications {
 public:
  // `client` and `mailer` have the outgoing rules and the limits of time. All of them outlive this.
  Notifications(Alerts::Parts parts, Alerts& alerts, net::Client& client, net::Mailer& mailer, Reveal reveal,
                outbox::Options options = {});
  ~Notifications();
  void start();
  void stop();  // returns when nothing is under way; idempotent

  // Sends on the caller's thread all that is due and nobody else is sending; how many tries that were.
  std::size_t deliver_due() { return courier_.deliver_due(); }
  void purge() { courier_.purge(); }

  // Sends a made-up alert now, once, and keeps nothing. Throws not_found.
  struct Tested {
    bool success = false;
    int status = 0;
    std::string answer, error;
  };
  Tested test(const Where& where, const std::string& channel);

  std::vector<Delivery> list(const Where& where, std::optional<outbox::State> state,
                             std::size_t limit);  // newest first
  // A dead one is tried again. Throws not_found.
  void retry(sql::Writer& writer, const Where& where, const std::string& id);

 private:
  class Rows;
  const Alerts::Parts parts_;
  Alerts& alerts_;
  const std::unique_ptr<Rows> rows_;
  outbox::Courier courier_;
};

}  // namespace falaj::alerts
