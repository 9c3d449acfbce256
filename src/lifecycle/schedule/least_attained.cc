// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "lifecycle/schedule/simulate.h"

namespace falaj::schedule {
namespace {

struct Attained {
  double left = 0;      // seconds it still has to run
  double attained = 0;  // seconds times places
  bool demoted = false;
  bool runs = false;
};

}  // namespace

Outcome simulate_least_attained(const Trace& trace, Micros threshold) {
  double places = 0;
  for (const Node& node : trace.nodes) {
    places += node.devices.empty() ? static_cast<double>(node.capacity.cpu_millis) / 1000
                                   : static_cast<double>(node.devices.size());
  }
  std::vector<Attained> jobs(trace.jobs.size());
  std::set<std::pair<bool, std::size_t>> active;  // not demoted first, then as they came
  std::vector<std::size_t> running;
  Outcome out;
  out.jobs = trace.jobs.size();
  double now = 0, completion = 0, slowdown = 0;
  const auto width = [&](std::size_t i) { return static_cast<double>(trace.jobs[i].tasks); };
  for (std::size_t next = 0; next < trace.jobs.size() || !active.empty();) {
    double moment = next < trace.jobs.size() ? in_seconds(trace.jobs[next].submitted) : 1e300;
    for (const std::size_t i : running) {
      moment = std::min(moment, now + jobs[i].left);
      if (!jobs[i].demoted) moment = std::min(moment, now + (in_seconds(threshold) - jobs[i].attained) / width(i));
    }
    const double passed = std::max(0.0, moment - now);
    now = std::max(now, moment);
    for (const std::size_t i : running) {
      jobs[i].left -= passed;
      jobs[i].attained += passed * width(i);
      if (jobs[i].left <= 1e-9) {
        active.erase({jobs[i].demoted, i});
        const double took = now - in_seconds(trace.jobs[i].submitted);
        const double ran = in_seconds(trace.jobs[i].ran);
        completion += took;
        slowdown += std::max(1.0, took / std::max(ran, 10.0));
        out.wait_mean += took - ran;
        out.wait_max = std::max(out.wait_max, took - ran);
      } else if (!jobs[i].demoted && jobs[i].attained >= in_seconds(threshold) - 1e-6) {
        active.erase({false, i});
        jobs[i].demoted = true;
        active.emplace(true, i);
      }
    }
    for (; next < trace.jobs.size() && in_seconds(trace.jobs[next].submitted) <= now; ++next) {
      jobs[next].left = std::max(in_seconds(trace.jobs[next].ran), 1e-3);
      active.emplace(false, next);
    }
    double free = places;
    std::vector<std::size_t> chosen;
    for (const auto& [demoted, i] : active) {
      if (free <= 0) break;
      if (width(i) > free) continue;
      free -= width(i);
      chosen.push_back(i);
    }
    for (const std::size_t i : running) jobs[i].runs = false;
    for (const std::size_t i : chosen) jobs[i].runs = true;
    for (const std::size_t i : running) out.preemptions += !jobs[i].runs && jobs[i].left > 1e-9 ? 1 : 0;
    running = std::move(chosen);
  }
  const double count = std::max<double>(1, static_cast<double>(out.jobs));
  out.wait_mean /= count;
  out.completion_mean = completion / count;
  out.slowdown_mean = slowdown / count;
  return out;
}

}  // namespace falaj::schedule
