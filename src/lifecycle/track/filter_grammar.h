// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "lifecycle/track/filter.h"

namespace falaj::track {

using Ops = unsigned;  // one bit each
constexpr Ops bit(Op op) { return 1U << static_cast<unsigned>(op); }
inline constexpr Ops kNoOps = 0;
inline constexpr Ops kNumberOps = bit(Op::eq) | bit(Op::ne) | bit(Op::lt) | bit(Op::le) | bit(Op::gt) | bit(Op::ge);
inline constexpr Ops kTextOps = bit(Op::eq) | bit(Op::ne) | bit(Op::like) | bit(Op::ilike);
inline constexpr Ops kListOps = bit(Op::in) | bit(Op::not_in);
inline constexpr Ops kNullOps = bit(Op::is_null) | bit(Op::is_not_null);

// One spelling of an attribute. No operators: it only orders. Those with kNumberOps are compared with numbers.
struct Attribute {
  std::string_view spelling;
  std::string_view name;
  Ops ops;
  bool orders;
};

// What has free keys (or, of datasets, the three of kDatasetKeys).
struct Keyed {
  Entity entity;
  Ops ops;
  bool orders;
};
inline constexpr std::string_view kDatasetKeys[] = {"name", "digest", "context"};

struct Grammar {
  std::string_view things;
  std::span<const Attribute> attributes;
  std::span<const Keyed> keyed;
};

}  // namespace falaj::track
