// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "compute/serve/host.h"

namespace falaj::serve {
namespace {

struct Line {
  std::string_view name, type, help;
  std::uint64_t (*value)(const ServedVariant&);
};

// Names that dashboards for inference servers of this field already show.
constexpr Line kLines[] = {
    {"nv_inference_request_success", "counter", "Requests answered.",
     [](const ServedVariant& v) { return v.counts->success.count.load(); }},
    {"nv_inference_request_failure", "counter", "Requests refused or failed.",
     [](const ServedVariant& v) { return v.counts->fail.count.load(); }},
    {"nv_inference_count", "counter", "Rows inferred.", [](const ServedVariant& v) { return v.counts->rows.load(); }},
    {"nv_inference_exec_count", "counter", "Calls of the model.",
     [](const ServedVariant& v) { return v.counts->calls.load(); }},
    {"nv_inference_request_duration_us", "counter", "Time that requests took.",
     [](const ServedVariant& v) { return v.counts->success.us.load(); }},
    {"nv_inference_queue_duration_us", "counter", "Time that requests waited.",
     [](const ServedVariant& v) { return v.counts->queue.us.load(); }},
    {"nv_inference_compute_input_duration_us", "counter", "Time in which inputs of several requests were put together.",
     [](const ServedVariant& v) { return v.counts->input.us.load(); }},
    {"nv_inference_compute_infer_duration_us", "counter", "Time in the model.",
     [](const ServedVariant& v) { return v.counts->infer.us.load(); }},
    {"nv_inference_compute_output_duration_us", "counter", "Time in which answers were made of what the model said.",
     [](const ServedVariant& v) { return v.counts->output.us.load(); }},
    {"nv_inference_pending_request_count", "gauge", "Requests that are not answered yet.",
     [](const ServedVariant& v) { return static_cast<std::uint64_t>(std::max<std::int64_t>(0, v.counts->pending)); }},
    {"nv_cache_num_hits_per_model", "counter", "Requests answered as an equal one was before.",
     [](const ServedVariant& v) { return v.counts->cache_hit.count.load(); }},
    {"nv_cache_num_misses_per_model", "counter", "Requests that a cache did not know.",
     [](const ServedVariant& v) { return v.counts->cache_miss.count.load(); }},
    {"falaj_serve_refused_total", "counter", "Requests refused because too many waited.",
     [](const ServedVariant& v) { return v.counts->refused.load(); }},
    {"falaj_serve_late_total", "counter", "Requests whose deadline passed while they waited.",
     [](const ServedVariant& v) { return v.counts->late.load(); }},
    {"falaj_serve_model_bytes", "gauge", "Memory of the model.",
     [](const ServedVariant& v) { return std::uint64_t{v.held->model ? v.held->model->resident_bytes() : 0}; }},
    {"falaj_serve_asleep", "gauge", "1 while the model is not in memory, as nobody asked for a while.",
     [](const ServedVariant& v) { return std::uint64_t{v.held->model ? 0u : 1u}; }},
    {"falaj_serve_woken_requests_total", "counter", "Requests that waited for a model that was asleep.",
     [](const ServedVariant& v) { return v.counts->woken.count.load(); }},
    {"falaj_serve_woken_duration_us", "counter", "Time that they waited for it.",
     [](const ServedVariant& v) { return v.counts->woken.us.load(); }},
    {"falaj_serve_slow_calls_total", "counter", "Calls made on threads of their own, as they take long.",
     [](const ServedVariant& v) { return v.counts->slow.load(); }},
    {"falaj_serve_shadow_dropped_total", "counter", "Copies for a shadow that could not keep up.",
     [](const ServedVariant& v) { return v.counts->dropped_shadows.load(); }},
};

// Where the histogram is cut for Prometheus: each is the top of a bucket of ours, so nothing is guessed.
constexpr std::int64_t kCutsUs[] = {64,     128,    256,    512,     1'024,   2'048,   4'096,     8'192,
                                    16'384, 32'768, 65'536, 131'072, 262'144, 524'288, 1'048'576, 4'194'304};

void write_histogram(std::string& out, const std::string& labels, const ServedVariant& variant) {
  const auto buckets = variant.counts->latency.snapshot();
  std::uint64_t below = 0;
  std::size_t at = 0;
  for (const auto cut : kCutsUs) {
    while (at < buckets.size() && Latencies::top_us(at) <= cut) below += buckets[at++];
    fmt::format_to(std::back_inserter(out), "falaj_serve_latency_seconds_bucket{{{},le=\"{}\"}} {}\n", labels,
                   static_cast<double>(cut) / 1e6, below);
  }
  while (at < buckets.size()) below += buckets[at++];
  fmt::format_to(std::back_inserter(out),
                 "falaj_serve_latency_seconds_bucket{{{0},le=\"+Inf\"}} {1}\nfalaj_serve_latency_seconds_sum{{{0}}} "
                 "{2}\nfalaj_serve_latency_seconds_count{{{0}}} {1}\n",
                 labels, below, static_cast<double>(variant.counts->success.us.load()) / 1e6);
}

void write_tallies(std::string& out, const Catalogue& from, const KnownCaller& caller, const Predictions& predictions) {
  const auto each = [&](std::string_view name, std::string_view help, std::uint64_t Predictions::Tally::*value) {
    fmt::format_to(std::back_inserter(out), "# HELP {0} {1}\n# TYPE {0} counter\n", name, help);
    for (const auto place : caller.endpoints) {
      const auto& endpoint = from.endpoints[place];
      if (!endpoint.log) continue;
      fmt::format_to(std::back_inserter(out), "{}{{endpoint=\"{}\"}} {}\n", name, endpoint.full_name,
                     predictions.tally(endpoint.full_name).*value);
    }
  };
  each("falaj_serve_log_rows_total", "Rows written to the prediction log.", &Predictions::Tally::rows);
  each("falaj_serve_log_dropped_total", "Rows that should have been, and are lost.", &Predictions::Tally::dropped);
}

}  // namespace

std::string Host::metrics(const protocol::Caller& caller) const {
  const auto from = catalogue();
  const auto& known = authenticate(*from, caller);
  std::string out;
  const auto each = [&](auto write) {
    for (const auto place : known.endpoints) {
      const auto& endpoint = from->endpoints[place];
      for (const auto& variant : endpoint.variants)
        write(fmt::format("model=\"{}\",version=\"{}\",endpoint=\"{}\",variant=\"{}\"", endpoint.plan.name,
                          variant.plan.version, endpoint.full_name, variant.plan.name),
              variant);
    }
  };
  for (const auto& line : kLines) {
    fmt::format_to(std::back_inserter(out), "# HELP {0} {2}\n# TYPE {0} {1}\n", line.name, line.type, line.help);
    each([&](const std::string& labels, const ServedVariant& variant) {
      fmt::format_to(std::back_inserter(out), "{}{{{}}} {}\n", line.name, labels, line.value(variant));
    });
  }
  if (predictions_) write_tallies(out, *from, known, *predictions_);
  out +=
      "# HELP falaj_serve_latency_seconds From a request's coming to its answer.\n"
      "# TYPE falaj_serve_latency_seconds histogram\n";
  each([&](const std::string& labels, const ServedVariant& variant) { write_histogram(out, labels, variant); });
  std::vector<std::pair<std::string, const EndpointFeatures*>> with_features;
  for (const auto place : known.endpoints)
    if (const auto& endpoint = from->endpoints[place]; endpoint.features)
      with_features.emplace_back(endpoint.full_name, endpoint.features.get());
  write_feature_metrics(out, with_features);
  return out;
}

}  // namespace falaj::serve
