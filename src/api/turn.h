// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string_view>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::api {

// How many of a kind of long work may be under way at once.
struct Turns {
  Turns(int at_once, std::string_view work) : most(at_once), what(work) {}
  const int most;
  const std::string_view what;  // "exports and imports of runs"
  std::atomic<int> taken{0};
};

// One of those, held while it lives. Throws exhausted when there is none.
class Turn {
 public:
  explicit Turn(Turns& turns) : turns_(turns) {
    if (turns_.taken.fetch_add(1) < turns_.most) return;
    turns_.taken.fetch_sub(1);
    throw Error(Code::exhausted,
                fmt::format("{} {} are under way: try again when one has ended", turns_.most, turns_.what));
  }
  ~Turn() { turns_.taken.fetch_sub(1); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Turns& turns_;
};

}  // namespace falaj::api
