// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <map>
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
  // The same, but not when the attempt before had told of this step and was killed before it saved what it had learned.
  // The first of the values says what it is about.
  void step(std::size_t step, const std::vector<std::pair<std::string, double>>& values);

  // Of long work: a line every few seconds, or one that is overwritten on a terminal.
  void progress(std::string_view what, double done, std::string_view more);
  void begin(std::string_view what);  // progress of something else

 private:
  void append(const json::object& line);
  void append_text(const std::string& text);
  void read(const std::string& metrics_file);

  const sys::Clock& clock_;
  const bool terminal_;
  std::FILE* file_ = nullptr;
  std::map<std::string, std::size_t> told_;  // the last step of each metric that begins a line
  sys::Micros began_{0}, shown_{0};
  bool half_a_line_ = false;  // is what the file ended with
  bool open_line_ = false;    // on a terminal
  bool ended_ = false;        // what progress tells of
};

}  // namespace falaj::train
