// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "foundation/sys/clock.h"

namespace falaj::train {

// Where the time of a training goes. It is in one phase at a time; changing it reads a clock and adds a number, so
// this is always on. Phases of a step: data (waiting for rows), forward, backward, communication, optimiser,
// checkpoint; of trees: grow. Others, such as evaluate, are no part of a step. One thread.
class Profile {
 public:
  // With `trace` every phase is kept as an event, up to a limit.
  explicit Profile(const sys::Clock& clock, bool trace = false);

  void enter(std::string_view phase);  // ends the one before. Requires: a literal
  void step() { ++steps_; }            // one more is done
  void begin();                        // another model: what is told from here on is of it alone

  using Means = std::vector<std::pair<std::string, double>>;
  Means since_last();            // "forward_ms" and so on, per step since the last call; none without a step
  std::string sentence() const;  // what to change to be faster, by where the time went; "" before there was a step
  std::string chrome();          // a trace as chrome://tracing and Perfetto read it

 private:
  struct Phase {
    std::string_view name;
    sys::Micros spent{0}, told{0};
  };
  struct Event {
    std::size_t phase = 0;
    sys::Micros from{0}, to{0};
  };

  const sys::Clock& clock_;
  const bool trace_;
  const sys::Micros began_;
  std::vector<Phase> phases_;
  std::vector<Event> events_;
  std::size_t phase_ = 0, steps_ = 0, steps_told_ = 0;
  sys::Micros entered_;
};

}  // namespace falaj::train
