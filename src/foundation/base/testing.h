// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "foundation/base/error.h"

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
