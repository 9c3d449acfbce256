// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "foundation/base/shape.h"

namespace falaj::api {

// A part of a list, and the cursor that gives the next part; no cursor at the end.
template <class T>
struct Page {
  std::vector<T> items;
  std::optional<std::string> next;
};

inline constexpr std::int64_t kPageItems = 100, kPageItemsMax = 1000;

}  // namespace falaj::api

template <class T>
struct falaj::Shape<falaj::api::Page<T>> {
  static inline const std::string name = std::string(Shape<T>::name) + "Page";
  static Fields fields() {
    return {field("items", &api::Page<T>::items, "This part of the list.").required(),
            field("next", &api::Page<T>::next, "Give it as 'cursor' to get the next part; absent at the end.")};
  }
};
