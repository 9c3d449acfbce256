// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "foundation/base/json.h"
#include "foundation/sys/clock.h"

namespace falaj::cli {

inline constexpr std::size_t kPieceBytes = 256 * 1024;  // of a file, read or sent between two steps of the bar

// How far a long piece of work is: a bar that redraws itself on a terminal, a line every few seconds elsewhere, on
// standard error so that results stay clean. Used by one thread.
class Progress {
 public:
  enum class Unit { items, bytes };
  // `total` 0 = not known.
  Progress(std::string what, std::uint64_t total, Unit unit, const sys::Clock& clock, bool quiet);
  ~Progress();
  void add(std::uint64_t more);
  void finish();  // draws the last state; called by the destructor too

 private:
  void draw(bool last);
  const std::string what_;
  const std::uint64_t total_;
  const Unit unit_;
  const sys::Clock& clock_;
  const bool quiet_, terminal_;
  const sys::Micros started_;
  sys::Micros drawn_{0};
  std::uint64_t done_ = 0, said_ = 0;
  bool finished_ = false, drew_ = false;
};

// What `call` gives, which the server works at; it is asked now and then how far it is (`done`: 0 to 1). What that
// throws is let be: what is wrong, the call says.
json::value with_progress(std::string what, const sys::Clock& clock, bool quiet,
                          const std::function<json::value()>& call, const std::function<double()>& done);

}  // namespace falaj::cli
