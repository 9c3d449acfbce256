// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

namespace falaj {

using Counter = prometheus::Counter;
using Gauge = prometheus::Gauge;
using Histogram = prometheus::Histogram;
using Labels = std::map<std::string, std::string>;

// Every number of a process. A module declares its own in a struct Probe (probe.h) made from a Metrics&.
// Names are falaj_<module>_<noun>_<unit>; labels take values from a small fixed set. Thread-safe.
class Metrics {
 public:
  Counter& counter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge& gauge(const std::string& name, const std::string& help, const Labels& labels = {});
  Histogram& histogram(const std::string& name, const std::string& help, const std::vector<double>& buckets,
                       const Labels& labels = {});
  // Runs before each rendering, to set gauges that are read rather than kept.
  void before_render(std::function<void()> refresh);
  std::string render();  // Prometheus text format

  static std::vector<double> seconds_buckets();  // 100 us to 60 s
  static std::vector<double> count_buckets();    // 1 to 65,536 by factors of two
  static std::vector<double> bytes_buckets();    // 1 KiB to 16 GiB by factors of eight

 private:
  prometheus::Registry registry_;
  std::vector<std::function<void()>> refreshers_;
};

}  // namespace falaj
