// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/base/mutex.h"
#include "lifecycle/alerts/notifications.h"
#include "lifecycle/alerts/signals.h"
#include "lifecycle/alerts/windows.h"

namespace falaj::jobs {
class Jobs;
}
namespace falaj::loop {
class Loop;
}
namespace falaj::serving {
class Endpoints;
}
namespace falaj::watch {
class Watch;
}

namespace falaj::api {

// latency and errors: what servers of models say of each variant.
class EndpointSignals final : public alerts::SignalSource {
 public:
  explicit EndpointSignals(serving::Endpoints& endpoints) : endpoints_(endpoints) {}
  std::vector<alerts::Signal> read(const alerts::Question& question) override;

 private:
  std::vector<alerts::Signal> latencies(const alerts::Question& question) EXCLUDES(mu_);
  std::vector<alerts::Signal> errors(const alerts::Question& question) EXCLUDES(mu_);

  serving::Endpoints& endpoints_;
  Mutex mu_;
  alerts::Windows windows_ GUARDED_BY(mu_);
  alerts::TimeWindows times_ GUARDED_BY(mu_);
};

// drift, quality, performance and skew: what monitors found and still stands; its value is how sure they are.
class FindingSignals final : public alerts::SignalSource {
 public:
  explicit FindingSignals(watch::Watch& watch) : watch_(watch) {}
  std::vector<alerts::Signal> read(const alerts::Question& question) override;

 private:
  watch::Watch& watch_;
};

// queueWait, jobFailures and budget.
class JobSignals final : public alerts::SignalSource {
 public:
  explicit JobSignals(jobs::Jobs& jobs) : jobs_(jobs) {}
  std::vector<alerts::Signal> read(const alerts::Question& question) override;

 private:
  jobs::Jobs& jobs_;
};

// metric: this server's own numbers.
class MetricSignals final : public alerts::SignalSource {
 public:
  explicit MetricSignals(Metrics& metrics) : metrics_(metrics) {}
  std::vector<alerts::Signal> read(const alerts::Question& question) override;

 private:
  Metrics& metrics_;
  Mutex mu_;
  alerts::Windows windows_ GUARDED_BY(mu_);
};

// loop: policies that wait for a person. Policies act on alerts and alerts tell of policies: alerts are made first.
class LoopSignals final : public alerts::SignalSource {
 public:
  void tell_of(loop::Loop& loop) EXCLUDES(mu_);
  std::vector<alerts::Signal> read(const alerts::Question& question) override;

 private:
  Mutex mu_;
  loop::Loop* loop_ GUARDED_BY(mu_) = nullptr;
};

alerts::Sources alert_sources(EndpointSignals& endpoints, FindingSignals& findings, JobSignals& jobs, LoopSignals& loop,
                              MetricSignals& metrics);
// How channels get secrets of projects.
alerts::Reveal reveal_of(jobs::Jobs& jobs);

}  // namespace falaj::api
