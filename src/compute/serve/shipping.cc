// SPDX-License-Identifier: Apache-2.0
// the prediction log on its way: from the worker into the spool, from there to the control plane

#include <algorithm>

#include <fmt/format.h>

#include "compute/serve/supervisor.h"
#include "foundation/base/log.h"

namespace falaj::serve {
namespace {

constexpr std::int64_t kShipEveryUs = 5'000'000, kShipLookUs = 250'000;
constexpr std::uint64_t kShipBytes = std::uint64_t{2} << 20;

// What will be refused however often it is sent.
bool is_final(const Error& error) {
  return error.code() == Code::invalid || error.code() == Code::not_found || error.code() == Code::corrupt;
}

}  // namespace

void Supervisor::take_segment(const json::value& segment) {
  if (spool_.put(segment)) return;
  log::warn("log_spool_full", {{"rows", segment.at("rows").to_number<std::int64_t>()}, {"bytes", spool_.bytes()}});
  tell_lost(segment.as_object());
}

void Supervisor::tell_lost(const json::object& segment) {
  if (segment.contains("watched")) return;  // no rows of the log
  const auto text = [&](const char* key) { return std::string_view(segment.at(key).as_string()); };
  const auto said = json::object{
      {"lost", json::object{{"endpoint", fmt::format("{}.{}.{}", text("tenant"), text("project"), text("endpoint"))},
                            {"rows", segment.at("rows")}}}};
  Lock lock(mu_);
  if (!link_) return;
  try {
    link_->send(said);
  } catch (const Error&) {
    // Whoever counts is gone, and with it the count.
  }
}

void Supervisor::send_batch(client::ApiClient& control, const std::vector<json::object>& segments) {
  json::array pieces;
  const auto& first = segments.front();
  const bool watched = first.contains("watched");
  for (const auto& segment : segments)
    pieces.push_back(watched ? json::object{{"segment", segment.at("segment")}, {"watched", segment.at("watched")}}
                             : json::object{{"segment", segment.at("segment")},
                                            {"rows", segment.at("rows")},
                                            {"lines", segment.at("lines")}});
  json::object body{{"tenant", first.at("tenant")},
                    {"project", first.at("project")},
                    {"endpoint", first.at("endpoint")},
                    {"segments", std::move(pieces)}};
  if (!watched) body["columns"] = first.at("columns");
  try {
    control.post(watched ? "/v1/serving/watched" : "/v1/serving/predictions", body);
  } catch (const Error& e) {
    if (!is_final(e)) throw;
    log::warn("log_segments_refused", {{"segments", segments.size()}, {"why", e.what()}});
    for (const auto& segment : segments) tell_lost(segment);
  }
  for (const auto& segment : segments) spool_.remove(segment);
}

// Acknowledged is what the control plane has on disk. What it got, but could not say so of, is sent again under the
// same names, which it knows.
void Supervisor::send_segments() {
  auto control = std::make_unique<client::ApiClient>(target(), 1);
  auto sent = clock_.now() - sys::Micros(kShipEveryUs);
  while (pause(kShipLookUs)) {
    if (spool_.bytes() == 0) continue;
    if (spool_.bytes() < kShipBytes && (clock_.now() - sent).count() < kShipEveryUs) continue;
    try {
      for (auto batch = spool_.oldest(kShipBytes); !batch.empty(); batch = spool_.oldest(kShipBytes)) {
        send_batch(*control, batch);
        if (!pause(0)) return;
      }
      sent = clock_.now();
    } catch (const Error& e) {
      log::debug("log_segments_wait", {{"why", e.what()}});
      if (auto now = target(); now.url != control->target().url)
        control = std::make_unique<client::ApiClient>(std::move(now), 1);
      if (!pause(1'000'000)) return;
    } catch (const std::exception& e) {  // a file of the spool that is not what we wrote
      log::error("log_segments_not_sent", {{"why", e.what()}});
      if (!pause(1'000'000)) return;
    }
  }
}

}  // namespace falaj::serve
