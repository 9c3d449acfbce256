// SPDX-License-Identifier: Apache-2.0
#include "foundation/base/metrics.h"

#include <prometheus/text_serializer.h>

namespace falaj {

Counter& Metrics::counter(const std::string& name, const std::string& help, const Labels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry_).Add(labels);
}
Gauge& Metrics::gauge(const std::string& name, const std::string& help, const Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry_).Add(labels);
}
Histogram& Metrics::histogram(const std::string& name, const std::string& help, const std::vector<double>& buckets,
                              const Labels& labels) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry_).Add(labels, buckets);
}
void Metrics::before_render(std::function<void()> refresh) { refreshers_.push_back(std::move(refresh)); }

std::string Metrics::render() {
  for (const auto& refresh : refreshers_) refresh();
  return prometheus::TextSerializer().Serialize(registry_.Collect());
}

std::vector<double> Metrics::seconds_buckets() {
  return {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
}
std::vector<double> Metrics::count_buckets() {
  std::vector<double> out;
  for (double v = 1; v <= 65536; v *= 2) out.push_back(v);
  return out;
}
std::vector<double> Metrics::bytes_buckets() {
  std::vector<double> out;
  for (double v = 1024; v <= 17179869184.0; v *= 8) out.push_back(v);
  return out;
}

}  // namespace falaj
