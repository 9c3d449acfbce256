// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace falaj::cli {

// Which lines of a log are shown: those that hold a text, and of what was there at first only the last so many. Keeps
// no more than those. A line of more than 64 KiB counts as several.
class LogLines {
 public:
  static constexpr std::size_t kTailMax = 100'000;
  LogLines(std::string search, std::size_t tail) : search_(std::move(search)), tail_(tail) {}

  std::string take(std::string_view text);  // what is to be shown now
  std::string caught_up();                  // what was there at first has been taken: the last of it, once
  std::string end();                        // and a line that was never finished

 private:
  void add(std::string line, std::string& out);

  const std::string search_;
  const std::size_t tail_;  // 0 = all
  bool caught_up_ = false;
  std::string open_;  // a line that has not ended
  std::deque<std::string> last_;
};

}  // namespace falaj::cli
