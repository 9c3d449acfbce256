// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/spool.h"

#include <gtest/gtest.h>

#include "foundation/sys/testing.h"

namespace falaj::serve {
namespace {

json::object piece(const std::string& endpoint, const std::string& lines, const std::string& column = "x") {
  return {{"tenant", "t"},       {"project", "p"}, {"endpoint", endpoint},
          {"columns", {column}}, {"rows", 1},      {"lines", lines}};
}

struct SpoolTest : testing::Test {
  sys::TempDir dir;
  sys::SimClock clock;
  sys::SimRandom random{3};
  std::unique_ptr<sys::Files> files = sys::open_files(dir.path());
};

TEST_F(SpoolTest, KeepsSegmentsUntilTheyAreTakenAndTheirNamesForEver) {
  std::vector<std::string> names;
  {
    Spool spool(*files, clock, random);
    EXPECT_TRUE(spool.oldest(1000).empty());
    for (const auto* lines : {"1", "2"}) EXPECT_TRUE(spool.put(piece("e", lines)));
    for (const auto& segment : spool.oldest(1000)) names.emplace_back(segment.at("segment").as_string());
    ASSERT_EQ(names.size(), 2u);
    EXPECT_NE(names[0], names[1]);
  }  // as a kill would: nothing was acknowledged
  clock.advance(sys::Micros(1));
  Spool spool(*files, clock, random);
  EXPECT_TRUE(spool.put(piece("e", "3")));
  const auto segments = spool.oldest(1000);
  ASSERT_EQ(segments.size(), 3u);
  EXPECT_EQ(segments[0].at("segment"), json::value(names[0])) << "sent again under the same name";
  EXPECT_EQ(segments[2].at("lines"), "3");
  for (const auto& segment : segments) spool.remove(segment);
  for (const auto& segment : segments) spool.remove(segment);  // twice is no harm
  EXPECT_EQ(spool.bytes(), 0u);
  EXPECT_TRUE(files->list("spool").empty());
}

TEST_F(SpoolTest, PutsTogetherOnlyWhatIsOfOneEndpointAndItsColumns) {
  Spool spool(*files, clock, random);
  for (const auto& segment :
       {piece("a", "1"), piece("b", "2"), piece("a", "3"), piece("a", "4", "y"), piece("a", std::string(500, '5'))})
    ASSERT_TRUE(spool.put(segment));
  const auto segments = spool.oldest(400);
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_EQ(segments[0].at("lines"), "1");
  EXPECT_EQ(segments[1].at("lines"), "3");
}

TEST_F(SpoolTest, TakesNoMoreThanItMay) {
  Spool spool(*files, clock, random, 300);
  EXPECT_TRUE(spool.put(piece("a", std::string(100, '1'))));
  EXPECT_FALSE(spool.put(piece("a", std::string(100, '2'))));
  const auto segments = spool.oldest(1000);
  ASSERT_EQ(segments.size(), 1u);
  spool.remove(segments[0]);
  EXPECT_TRUE(spool.put(piece("a", std::string(100, '3'))));
}

TEST_F(SpoolTest, WhatIsNoSegmentIsNotInTheWay) {
  files->write_all("spool/0000-not-ours", as_bytes("{half"));
  Spool spool(*files, clock, random);
  EXPECT_TRUE(spool.put(piece("a", "1")));
  ASSERT_EQ(spool.oldest(1000).size(), 1u);
  EXPECT_FALSE(files->stat("spool/0000-not-ours"));
}

}  // namespace
}  // namespace falaj::serve
