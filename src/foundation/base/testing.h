// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "foundation/base/error.h"

namespace falaj {

// How often a test repeats itself. Sanitizers are slow and find their faults in the first rounds; rare orders of events
// are for the release build, which takes all of them.
template <class Count>
constexpr Count repeats(Count times) {
#ifdef FALAJ_SANITIZED
  return (times + 3) / 4;
#else
  return times;
#endif
}

}  // namespace falaj

// Expects `statement` to throw falaj::Error with `wanted`.
#define EXPECT_ERROR(statement, wanted)                                                            \
  do {                                                                                             \
    try {                                                                                          \
      (void)(statement);                                                                           \
      ADD_FAILURE() << #statement << ": expected error " << ::falaj::name(wanted) << ", got none"; \
    } catch (const ::falaj::Error& error_) {                                                       \
      EXPECT_EQ(::falaj::name(error_.code()), ::falaj::name(wanted)) << error_.what();             \
    }                                                                                              \
  } while (false)
