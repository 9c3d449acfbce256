// SPDX-License-Identifier: Apache-2.0
#pragma once

// What nearly every file includes (module.cmake). No file relies on it: builds that are not united do without.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "foundation/base/bytes.h"
#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/base/shape.h"
#include "foundation/base/text.h"
