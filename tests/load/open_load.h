// SPDX-License-Identifier: Apache-2.0
#pragma once

// Requests at a given rate, whatever the answers do: how a server looks to those who do not wait for each other.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/sys/clock.h"

namespace falaj::tests {

struct Load {
  double per_second = 0;  // 0: the next as soon as a connection is free
  double seconds = 1;
  std::size_t connections = 32;
};

struct Loaded {
  double seconds = 0;
  std::uint64_t answers = 0, refused = 0, wrong = 0;
  std::string first_trouble;
  std::vector<std::uint32_t> latencies_us;  // from when a request was due, not from when it could be sent; sorted

  double rate() const { return static_cast<double>(answers) / seconds; }
  double percentile_us(double p) const;
};

// What is asked and what its answer must be. `asked` is called with the number of the request, `answered` with that and
// the body of an answer 200; it says what is wrong with it, "" when nothing is.
struct Conversation {
  std::function<void(std::uint64_t number, std::string& request)> asked;
  std::function<std::string(std::uint64_t number, std::string_view body)> answered;
};

// On this thread, over kept connections to 127.0.0.1, one request at a time on each.
Loaded offer(std::uint16_t port, const Load& load, const Conversation& conversation, const sys::Clock& clock);

}  // namespace falaj::tests
