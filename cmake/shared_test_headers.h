// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../cmake/shared_headers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/testing.h"
