// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/pipeline_graph.h"

namespace falaj::cli {
namespace {

using testing::HasSubstr;

const json::array kSteps = {
    {{"id", "a"}, {"kind", "run"}, {"phase", "succeeded"}, {"why", ""}, {"needs", json::array{}}},
    {{"id", "b"}, {"kind", "gate"}, {"phase", "failed"}, {"why", "<worse> & \"old\""}, {"needs", json::array{"a"}}},
    {{"id", "c"}, {"kind", "run"}, {"phase", "blocked"}, {"why", ""}, {"needs", json::array{"a", "b"}}}};

TEST(PipelineGraph, AsTextEachStepStandsBehindThoseItNeeds) {
  EXPECT_EQ(graph_text(kSteps, false),
            "+ a      run       succeeded \n"
            "x   b    gate      failed    <worse> & \"old\"\n"
            "!     c  run       blocked   after a, b\n");
}

TEST(PipelineGraph, AsAPictureEveryNeedIsALineAndNoTextIsMarkup) {
  const auto svg = graph_svg(kSteps, "p <1>");
  std::size_t lines = 0;
  for (auto at = svg.find("stroke=\"#888\""); at != std::string::npos; at = svg.find("stroke=\"#888\"", at + 1))
    ++lines;
  EXPECT_EQ(lines, 3u);
  EXPECT_THAT(svg, HasSubstr("&lt;worse&gt; &amp; &quot;old&quot;"));
  EXPECT_THAT(svg, HasSubstr("p &lt;1&gt;"));
}

TEST(PipelineGraph, WhatOthersNamedDoesNotDriveTheTerminal) {
  const json::array steps = {
      {{"id", "a"}, {"kind", "run"}, {"phase", "failed"}, {"why", "\033[2J"}, {"needs", json::array{}}}};
  EXPECT_EQ(graph_text(steps, false).find('\033'), std::string::npos);
}

}  // namespace
}  // namespace falaj::cli
