// SPDX-License-Identifier: Apache-2.0
#include "cli/report.h"

#include <gtest/gtest.h>

#include "foundation/base/json.h"

namespace falaj::cli {
namespace {

TEST(Report, APageHoldsTextWhateverItIs) {
  const auto report = parse_json(R"({"made": "2026-01-01T00:00:00Z",
    "model": {"model": {"name": "<b>late</b>", "description": "a & b", "created_by": "user/acme/ada", "tags": {"limits": "not <for> cargo"}}},
    "version": {"version": {"version": 3, "aliases": ["champion"]}, "manifest": {}},
    "run": {"metrics": {"auc": {"value": 0.75}, "auc_low": {"value": 0.74}, "auc_high": {"value": 0.76}, "system/cpu": {"value": 1},
      "auc/origin/SEA": {"value": 0.7}, "auc/origin/SEA_low": {"value": 0.6}, "auc/origin/SEA_high": {"value": 0.8}}},
    "history": {"changes": [], "promotions": [{"id": 4, "version": 3, "alias": "champion", "evidence": {"pipeline": "retrain",
      "gates": {"good": {"evidence": ["auc 0.75; at least <0.7>"]}}, "checks": {"sure": {"kind": "approve", "why": "approved by user/eve"}}}}]},
    "monitors": [{"name": "m", "findings": [{"since": "2026-01-02T00:00:00Z", "kind": "quality", "column": "distance",
      "text": "it moved", "diagnosis": "looks multiplied by 1.609"}],
      "windows": [{"columns": [{"column": "distance", "distances": {"psi": 2.5}}]}, {"columns": [{"column": "distance", "distances": {"psi": 0.1}}]}]}],
    "not_shown": ["/v1/alerts/history: denied"]})");
  const auto page = report_page(report.as_object());
  EXPECT_EQ(page.find("<b>late"), std::string::npos);
  for (const auto* part : {"Model &lt;b&gt;late", "a &amp; b", "0.74 to 0.76", "not &lt;for&gt; cargo",
                           "looks multiplied by 1.609", "<svg", "/v1/alerts/history: denied", "user/acme/ada",
                           "By origin", "<td>SEA</td><td>0.7</td><td>0.6 to 0.8</td>", "auc 0.75; at least &lt;0.7&gt;",
                           "approve sure", "approved by user/eve"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(page.find("system/cpu"), std::string::npos);
  EXPECT_FALSE(report_page({}).empty());
}

TEST(Report, ATimelineIsInOrder) {
  const auto parts = parse_json(R"({
    "alerts": [{"at": "2026-01-03T00:00:00Z", "what": "fired", "alert": 7, "rule": "drift", "text": "so it is"}],
    "findings": [{"found": "2026-01-02T00:00:00Z", "ended": "2026-01-06T00:00:00Z", "kind": "quality", "endpoint": "late",
      "variant": "champion", "version": 1, "column": "distance", "text": "it moved", "diagnosis": "kilometres"}],
    "loop": [{"at": "2026-01-04T00:00:00Z", "what": "blocked", "policy": "keep", "why": "data are broken"}],
    "runs": [{"created": "2026-01-05T00:00:00Z", "number": 1, "pipeline": "retrain", "phase": "running"}],
    "endpoints": {"late": {"items": [{"at": "2026-01-01T00:00:00Z", "why": "declared"}]}}})");
  std::string said;
  for (const auto& item : timeline_of(parts.as_object())) said += std::string(item.at("what").as_string()) + "; ";
  EXPECT_EQ(said, "served; found quality; alert fired; policy blocked; pipeline begun; quality is over; ");
  EXPECT_TRUE(timeline_of({}).empty());
}

TEST(Report, WhatAnotherFindingGoesOnSayingIsNotOver) {
  const auto parts = parse_json(R"({"findings": [
    {"found": "2026-01-01T00:00:00Z", "ended": "2026-01-02T00:00:00Z", "kind": "quality", "monitor": "m", "column": "distance"},
    {"found": "2026-01-02T00:00:00Z", "ended": "2026-01-03T00:00:00Z", "kind": "quality", "monitor": "m", "column": "distance"},
    {"found": "2026-01-01T00:00:00Z", "kind": "quality", "monitor": "m", "column": "delay"}]})");
  std::string said;
  for (const auto& item : timeline_of(parts.as_object()))
    if (item.at("what") == "quality is over") said += std::string(item.at("time").as_string()) + "; ";
  EXPECT_EQ(said, "2026-01-03T00:00:00Z; ");
}

}  // namespace
}  // namespace falaj::cli
