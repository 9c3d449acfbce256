// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "governance/resource/resources.h"
#include "lifecycle/alerts/alerts.h"
#include "lifecycle/flow/flow.h"
#include "lifecycle/loop/decide.h"
#include "lifecycle/serving/endpoints.h"
#include "storage/sql/database.h"

namespace falaj::loop {

using vault::Where;

// Something a policy did, or did not do, and why.
struct PastRecord {
  std::int64_t id = 0, at_us = 0;
  std::string policy;
  Record record;
};

struct PolicyView {
  std::string name;
  PolicySpec spec;
  State state;
};

// Carries policies out: looks at alerts, begins runs of pipelines, takes canaries back, and puts down why. What was
// decided is on disk before it is done, and is done once however often it is tried. Thread-safe.
class Loop {
 public:
  static std::span<const sql::Migration> migrations();
  struct Parts {
    sql::Database& database;
    resource::Resources& resources;
    alerts::Alerts& alerts;
    flow::Flow& flow;
    serving::Endpoints& endpoints;
    const sys::Clock& clock;
    Metrics& metrics;
  };
  explicit Loop(Parts parts);  // all of them outlive this

  // Looks at every policy. Called now and then, by one at a time.
  void look();

  std::vector<PolicyView> policies(const Where& where);
  PolicyView policy(const Where& where, const std::string& name);  // throws not_found
  // Newest first; of one policy, or of all: "".
  std::vector<PastRecord> history(const Where& where, const std::string& policy, std::size_t limit);
  std::string explain(const Where& where, const std::string& name);  // what it would do now, in words; not_found
  std::size_t forget(std::int64_t before_us);                        // what was put down before then; how much it was
  // A policy that stopped goes on. Throws not_found, and conflict when it did not stop.
  PolicyView resume(const Where& where, const std::string& name, const sql::Act& act);
  // Policies that stopped, or whose runs fail and that say so, as something to be told of.
  std::vector<alerts::Signal> stopped(const alerts::Where& where);

 private:
  struct Kept {
    State state;
    bool there = false;
  };
  Kept load(sql::Reader& reader, const Where& where, const std::string& name);
  void store(sql::Writer& writer, const Where& where, const std::string& name, const State& state,
             std::span<const Record> records);
  void look_at(const Where& where, const std::string& name, const PolicySpec& spec);
  Facts facts_of(const Where& where, const PolicySpec& spec, const State& state);
  void carry_out(const Where& where, const std::string& name, const PolicySpec& spec, State& state);

  const Parts parts_;
  Counter &begun_, &blocked_;
  Gauge& stopped_;
  Mutex looking_;  // one look at a time
};

}  // namespace falaj::loop
