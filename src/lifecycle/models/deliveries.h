// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "foundation/base/metrics.h"
#include "foundation/net/client.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "lifecycle/models/webhooks.h"
#include "lifecycle/outbox/courier.h"
#include "storage/sql/database.h"

namespace falaj::models {

// outbox::signed_headers as MLflow's own webhooks call them.
net::Headers delivery_headers(const std::string& delivery_id, std::int64_t unix_s, const std::string& body,
                              const std::string& secret);

// Sends what Webhooks wrote, at least once, to each webhook one at a time: a slow one holds up only itself.
// Thread-safe.
class Deliveries {
 public:
  // `client` has the outgoing rules and the limits of time. All of them outlive this.
  Deliveries(sql::Database& database, Webhooks& webhooks, net::Client& client, const sys::Clock& clock,
             sys::Random& random, Metrics& metrics, outbox::Options options = {});
  ~Deliveries();
  void start();
  void stop();  // returns when nothing is under way; idempotent

  // Sends on the caller's thread all that is due and nobody else is sending; how many tries that were.
  std::size_t deliver_due() { return courier_.deliver_due(); }
  // Sends a made-up event now, once, and keeps nothing.
  struct Tested {
    bool success = false;
    int status = 0;
    std::string body, error;  // the first kilobyte of the answer; why there was none
  };
  Tested test(const Where& where, const std::string& id, const std::string& event);
  // Forgets what ended long ago.
  void purge() { courier_.purge(); }

 private:
  class Rows;

  Webhooks& webhooks_;
  const sys::Clock& clock_;
  sys::Random& random_;
  const std::unique_ptr<Rows> rows_;
  outbox::Courier courier_;
};

}  // namespace falaj::models
