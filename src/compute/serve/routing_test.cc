// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/routing.h"

#include <cstdint>
#include <span>
#include <string>

#include <gtest/gtest.h>

namespace falaj::serve {
namespace {

template <class T>
std::string key_of(T value, graph::Element element = graph::element_of<T>()) {
  protocol::Ask ask;
  auto& input = ask.inputs.emplace_back();
  input.name = "user";
  input.element = element;
  input.bytes = std::as_bytes(std::span(&value, 1));
  return sticky_key(ask, "user");
}

std::string key_in_row(const char* rows) {
  protocol::Predict ask;
  ask.rows = parse_json(rows).as_array();
  return sticky_key(ask, "user");
}

TEST(StickyKey, IsTheSameForTheSameValueWhateverItsType) {
  for (const auto& key :
       {key_of(std::int8_t{42}), key_of(std::int32_t{42}), key_of(std::int64_t{42}), key_of(std::uint16_t{42}),
        key_of(std::uint64_t{42}), key_of(42.0f), key_of(42.0), key_of(std::uint16_t{0x5140}, graph::Element::float16),
        key_of(std::uint16_t{0x4228}, graph::Element::bfloat16), key_in_row(R"([{"user": 42}, {"user": 7}])"),
        key_in_row(R"([{"user": 42.0}])"), key_in_row(R"([{"user": "42"}])"), key_in_row(R"([{"user": [42, 1]}])")})
    EXPECT_EQ(key, "42");
  EXPECT_EQ(key_of(0.1f), key_in_row(R"([{"user": 0.1}])"));
  EXPECT_EQ(key_of(std::uint8_t{1}, graph::Element::boolean), key_in_row(R"([{"user": true}])"));
  EXPECT_EQ(key_of(std::uint64_t{18'446'744'073'709'551'615u}), "18446744073709551615");
  EXPECT_EQ(key_of(-3), "-3");
}

TEST(StickyKey, IsNothingWhereNothingIsSaid) {
  for (const auto* rows : {"[]", "[{}]", R"([{"user": null}])", R"([{"user": []}])", R"([{"other": 1}])"})
    EXPECT_EQ(key_in_row(rows), "") << rows;
  EXPECT_EQ(sticky_key(protocol::Ask(), "user"), "");
}

}  // namespace
}  // namespace falaj::serve
