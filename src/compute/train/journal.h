// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "foundation/base/json.h"
#include "foundation/sys/clock.h"

namespace falaj::train {

// What a training says while it goes on: lines for people to standard output, and for the run a JSON object a line into
// the file that the platform follows. Neither needs a network or a credential.
class Journal {
 public:
  Journal(const std::string& metrics_file, const sys::Clock& clock);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  void say(std::string_view line);  // to people
  void parameters(const json::object& values);
  void metrics(std::size_t step, const std::vector<std::pair<std::string, double>>& values);

  // Of long work: a line every few seconds, or one that is overwritten on a terminal.
  void progress(std::string_view what, double done, std::string_view more);
  void begin(std::string_view what);  // progress of something else

 private:
  void append(const json::object& line);

  const sys::Clock& clock_;
  const bool terminal_;
  std::FILE* file_ = nullptr;
  sys::Micros began_{0}, shown_{0};
  bool open_line_ = false;  // on a terminal
  bool ended_ = false;      // what progress tells of
};

}  // namespace falaj::train
