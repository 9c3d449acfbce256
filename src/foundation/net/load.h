// SPDX-License-Identifier: Apache-2.0
#pragma once

// Requests at a given rate, whatever the answers do: how a server looks to those who do not wait for each other. A
// request's time runs from when it was due, not from when it could be sent: a server that stalls is charged for all who
// would have asked meanwhile ("coordinated omission", Gil Tene).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "foundation/sys/clock.h"

namespace falaj::net {

struct LoadTarget {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
  bool tls = false;
  std::string ca_file{};  // "" = the system's
};
LoadTarget load_target(const std::string& url, std::string ca_file);  // throws invalid

struct Load {
  double per_second = 0;  // 0: the next as soon as a connection is free
  double seconds = 1;
  std::size_t connections = 32;
  std::int64_t answer_wait_us = 10'000'000;  // later answers are given up, with their connections
  // Instead of a rate: when each request is due, in microseconds after the first moment, ascending. `seconds` ends it.
  std::span<const std::int64_t> due_us = {};
};

// When a request of that number is due, in microseconds after the first. Requires: per_second > 0.
std::int64_t due_us(double per_second, std::uint64_t number);

// What became of a request.
struct Heard {
  enum class What {
    answer,
    broken,  // the connection ended, or could not be made
    late,    // no answer in time
    unsent,  // due, but no connection was free until the end; `latency_us` is how long it waited for one
  };
  std::uint64_t number = 0;
  What what = What::answer;
  std::int64_t latency_us = 0;
  std::int64_t tardy_us = 0;  // of it, what the client itself was late with sending
  int status = 0;             // of an answer
  std::string_view body;      // of an answer; or why there is none
};

struct Talk {
  std::function<void(std::uint64_t number, std::string& request)> ask;  // appends a whole request of HTTP/1.1
  std::function<void(const Heard&)> hear;
};

struct LoadTook {
  double seconds = 0;      // from the first request to the last answer
  double cpu_seconds = 0;  // that this thread worked
};

// On this thread, over kept connections, one request at a time on each. Connections are made before the time begins;
// throws unavailable, denied or invalid when that fails, or when an answer is not HTTP/1.1 with a Content-Length.
LoadTook offer_load(const LoadTarget& target, const Load& load, const Talk& talk, const sys::Clock& clock);

}  // namespace falaj::net
