// SPDX-License-Identifier: Apache-2.0
#include "foundation/base/log.h"

#include <unistd.h>

#include <array>

#include "foundation/base/text.h"

namespace falaj::log {
namespace {

void write_line(const json::object& line) {
  const std::string text = json::serialize(line) + "\n";
  // One write a line, so that lines of several threads and processes do not mix. Nothing can be done when it fails.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

struct Destination {
  Sink sink = [](Level level, std::string_view event, Fields fields) {
    json::object line{{"level", name(level)}, {"event", event}};
    for (const auto& f : fields) line[f.key] = f.value;
    write_line(line);
  };
  Level lowest = Level::warn;
};
Destination& destination() {
  static Destination d;
  return d;
}

}  // namespace

std::string_view name(Level level) {
  static constexpr std::array<std::string_view, 4> kNames = {"debug", "info", "warn", "error"};
  return kNames[static_cast<std::size_t>(level)];
}

void set_sink(Sink sink, Level lowest) { destination() = {std::move(sink), lowest}; }

Sink json_lines(std::function<std::int64_t()> unix_us) {
  return [unix_us = std::move(unix_us)](Level level, std::string_view event, Fields fields) {
    json::object line{{"time", format_time(unix_us())}, {"level", name(level)}, {"event", event}};
    for (const auto& f : fields) line[f.key] = f.value;
    write_line(line);
  };
}

bool is_on(Level level) { return level >= destination().lowest; }

void write(Level level, std::string_view event, Fields fields) {
  const auto& d = destination();
  if (level >= d.lowest) d.sink(level, event, fields);
}

}  // namespace falaj::log
