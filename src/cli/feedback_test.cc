// SPDX-License-Identifier: Apache-2.0
#include "cli/feedback.h"

#include <sstream>

#include <gtest/gtest.h>

#include "foundation/base/testing.h"

namespace falaj::cli {
namespace {

std::string labels(const std::string& text) {
  std::istringstream in(text);
  return json::serialize(read_labels(in));
}

TEST(LabelFiles, AreCsvOrJson) {
  EXPECT_EQ(labels("prediction_id,value\na:b:1:1,0.5\n\n\"c:b:1:1\",true\n"),
            R"([{"prediction_id":"a:b:1:1","value":5E-1},{"prediction_id":"c:b:1:1","value":true}])");
  EXPECT_EQ(labels("at, prediction_id ,label,note\n2026-01-31T12:00:00Z,x,1,n\n,y,2,n\n"),
            R"([{"at":"2026-01-31T12:00:00Z","prediction_id":"x","value":1E0},{"prediction_id":"y","value":2E0}])");
  EXPECT_EQ(labels("{\"prediction_id\":\"x\",\"label\":1}\n"), R"([{"prediction_id":"x","label":1}])");
}

TEST(LabelFiles, SayWhichLineIsWrong) {
  for (const auto* text : {"", "prediction_id\nx\n", "id,value\nx,1\n", "prediction_id,value\nx\n",
                           "prediction_id,value\nx,yes\n", "prediction_id,value,label\nx,1,1\n", "{\"a\"\n"}) {
    SCOPED_TRACE(text);
    EXPECT_ERROR(labels(text), Code::invalid);
  }
}

}  // namespace
}  // namespace falaj::cli
