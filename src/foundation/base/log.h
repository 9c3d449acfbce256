// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "foundation/base/json.h"

// An event and its fields, not prose: log::warn("plan_rejected", {{"node", id}, {"reason", why}}).
// error = a human must look; warn = degraded; info = state changes; debug = off unless asked for.
namespace falaj::log {

enum class Level { debug, info, warn, error };
std::string_view name(Level level);

struct Entry {
  template <class T>
  Entry(std::string_view k, T&& v) : key(k), value(std::forward<T>(v)) {}
  std::string_view key;
  json::value value;
};
using Fields = std::initializer_list<Entry>;
using Sink = std::function<void(Level, std::string_view event, Fields fields)>;

// Replaces where entries go; until then standard error, from `warn` up. Called once, before any thread starts.
void set_sink(Sink sink, Level lowest);
// Writes one JSON object a line to standard error; `unix_us` says the time.
Sink json_lines(std::function<std::int64_t()> unix_us);

bool is_on(Level level);  // whether entries of it go anywhere
void write(Level level, std::string_view event, Fields fields);
inline void debug(std::string_view event, Fields fields = {}) { write(Level::debug, event, fields); }
inline void info(std::string_view event, Fields fields = {}) { write(Level::info, event, fields); }
inline void warn(std::string_view event, Fields fields = {}) { write(Level::warn, event, fields); }
inline void error(std::string_view event, Fields fields = {}) { write(Level::error, event, fields); }

}  // namespace falaj::log
