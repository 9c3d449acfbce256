// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "compute/serve/log_lines.h"
#include "foundation/base/mutex.h"
#include "foundation/base/shape.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"

namespace falaj::serve {

// Rows of one endpoint's log, all with the same columns.
struct LogSegment {
  std::string tenant, project, endpoint;
  std::vector<LogColumn> columns;
  std::int64_t rows = 0;
  std::string lines;  // of JSON
};

// Gives predictions their names, and writes those of a share of the requests down, on a thread of its own that yields
// to those that answer. When it does not keep up rows are dropped and counted; requests never wait. Thread-safe.
class Predictions {
 public:
  // `sink` gets segments, each about a second of an endpoint or a mebibyte, on the thread that writes.
  using Sink = std::function<void(const LogSegment&)>;
  Predictions(const sys::Clock& clock, sys::Random& random, Sink sink);
  ~Predictions();  // what was kept goes to the sink first

  IdBits next_id();
  void keep(Kept kept);
  // When it returns the sink has everything that was kept before.
  void flush();

  struct Tally {
    std::uint64_t rows = 0, dropped = 0;
  };
  Tally tally(const std::string& endpoint) const;              // by full name, since the start
  void lost(const std::string& endpoint, std::uint64_t rows);  // after the sink had them

 private:
  struct Open {
    LogSegment segment;
    std::shared_ptr<const LogLayout> layout;
    sys::Micros since{0};
  };
  static constexpr std::size_t kWaitingBytesMax = std::size_t{32} << 20;
  void run();
  bool idle() const REQUIRES(mu_) { return !closing_ && flushes_asked_ == flushes_done_; }
  void write(const Kept& kept);
  void hand_over(Open& open);

  const sys::Clock& clock_;
  sys::Random& random_;
  const Sink sink_;
  const std::uint64_t number_;        // of this among all of the process
  std::map<std::string, Open> open_;  // by endpoint; the thread's own

  mutable Mutex mu_;  // guards everything below
  std::condition_variable woken_, flushed_;
  std::vector<Kept> waiting_ GUARDED_BY(mu_);
  std::size_t waiting_bytes_ GUARDED_BY(mu_) = 0;
  std::uint64_t flushes_asked_ GUARDED_BY(mu_) = 0, flushes_done_ GUARDED_BY(mu_) = 0;
  bool asleep_ GUARDED_BY(mu_) = false;  // nothing to write at all: the next has to wake it
  bool closing_ GUARDED_BY(mu_) = false;
  std::map<std::string, Tally> tallies_ GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace falaj::serve

template <>
struct falaj::Shape<falaj::serve::LogColumn> {
  using T = serve::LogColumn;
  static constexpr std::string_view name = "LogColumn";
  static Fields fields() { return {field("name", &T::name, ""), field("type", &T::type, "")}; }
};
template <>
struct falaj::Shape<falaj::serve::LogSegment> {
  using T = serve::LogSegment;
  static constexpr std::string_view name = "LogSegment";
  static Fields fields() {
    return {field("tenant", &T::tenant, ""),     field("project", &T::project, ""),
            field("endpoint", &T::endpoint, ""), field("columns", &T::columns, ""),
            field("rows", &T::rows, ""),         field("lines", &T::lines, "").length(0, std::int64_t{64} << 20)};
  }
};
