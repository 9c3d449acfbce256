// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "foundation/base/error.h"
#include "foundation/base/metrics.h"
#include "foundation/base/mutex.h"
#include "foundation/net/client.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "lifecycle/models/webhooks.h"
#include "storage/sql/database.h"

namespace falaj::models {

struct DeliveryOptions {
  std::size_t threads = 2;
  std::int64_t tries_max = 8;
  std::int64_t first_wait_us = 10'000'000;  // doubles with each try
  std::int64_t wait_max_us = std::int64_t{3600} * 1'000'000;
  std::int64_t keep_us = std::int64_t{30} * 24 * 3600 * 1'000'000;  // what is done or dead can be looked at so long
};

// How a try went: the status of the answer, or what kept it from coming.
struct Attempt {
  int status = 0;
  std::optional<Code> failed;
};
struct Verdict {
  DeliveryState state = DeliveryState::waiting;
  std::int64_t wait_us = 0;  // until the next try
};
// Pure. `tries`: this one included. `jitter`: 0 to 1, spreads those that failed together over half as long again.
// What the outgoing rules or the URL's grammar refuse is dead at once: trying again changes nothing.
Verdict judge(const Attempt& attempt, std::int64_t tries, const DeliveryOptions& options, double jitter);

// The headers that say who sent it: X-MLflow-Delivery-Id, X-MLflow-Timestamp (seconds since 1970) and, with a secret,
// X-MLflow-Signature: "v1," and the base64 of HMAC-SHA256(secret, "<delivery id>.<timestamp>.<body>").
net::Headers delivery_headers(const std::string& delivery_id, std::int64_t unix_s, const std::string& body,
                              const std::string& secret);

// Sends what Webhooks wrote, at least once, to each webhook one at a time: a slow one holds up only itself.
// Thread-safe.
class Deliveries {
 public:
  // `client` has the outgoing rules and the limits of time. All of them outlive this.
  Deliveries(sql::Database& database, Webhooks& webhooks, net::Client& client, const sys::Clock& clock,
             sys::Random& random, Metrics& metrics, DeliveryOptions options = {});
  ~Deliveries();
  void start();
  void stop();  // returns when nothing is under way; idempotent

  // Sends on the caller's thread all that is due and nobody else is sending; how many tries that were.
  std::size_t deliver_due();
  // Sends a made-up event now, once, and keeps nothing.
  struct Tested {
    bool success = false;
    int status = 0;
    std::string body, error;  // the first kilobyte of the answer; why there was none
  };
  Tested test(const Where& where, const std::string& id, const std::string& event);
  // Forgets what ended long ago.
  void purge();

 private:
  struct Due;
  void run();
  std::optional<std::int64_t> claim();  // a webhook with something due, now ours
  std::size_t deliver_for(std::int64_t webhook);
  void release(std::int64_t webhook);
  Attempt send(const Webhooks::Target& target, const std::string& delivery_id, const std::string& body,
               std::string& error, std::string* answer);
  std::int64_t until_next_us();

  sql::Database& database_;
  Webhooks& webhooks_;
  net::Client& client_;
  const sys::Clock& clock_;
  sys::Random& random_;
  const DeliveryOptions options_;
  Counter &done_, &failed_, &dead_;

  Mutex mu_;  // taken while Webhooks holds its own, never the other way round
  std::condition_variable changed_;
  std::set<std::int64_t> busy_ GUARDED_BY(mu_);  // webhooks somebody is sending to
  std::uint64_t wakes_ GUARDED_BY(mu_) = 0;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace falaj::models
