// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/alerts/exposition.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::alerts {
namespace {

std::optional<double> sample_value(std::string_view text) {
  if (text == "+Inf") return std::numeric_limits<double>::infinity();
  if (text == "-Inf") return -std::numeric_limits<double>::infinity();
  if (text == "NaN" || text == "Nan") return std::numeric_limits<double>::quiet_NaN();
  double out = 0;
  const auto* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, out);
  if (error != std::errc() || at != end) return std::nullopt;
  return out;
}

// `rest`: what follows the name. {a="b",c="d\"e"} 1.5 or  1.5; a time may follow the value.
std::optional<Exposed::Sample> parse_sample(std::string_view rest) {
  Exposed::Sample out;
  std::size_t at = 0;
  if (rest.starts_with('{')) {
    at = 1;
    while (at < rest.size() && rest[at] != '}') {
      const auto equals = rest.find("=\"", at);
      if (equals == std::string_view::npos) return std::nullopt;
      auto& value = out.labels[std::string(rest.substr(at, equals - at))];
      for (at = equals + 2; at < rest.size() && rest[at] != '"'; ++at) {
        if (rest[at] == '\\' && at + 1 < rest.size())
          value += rest[++at] == 'n' ? '\n' : rest[at];
        else
          value += rest[at];
      }
      if (at++ >= rest.size()) return std::nullopt;
      if (at < rest.size() && rest[at] == ',') ++at;
    }
    if (at++ >= rest.size()) return std::nullopt;
  }
  const auto text = trim(rest.substr(std::min(at, rest.size())));
  const auto value = sample_value(text.substr(0, text.find(' ')));
  if (!value) return std::nullopt;
  out.value = *value;
  return out;
}

}  // namespace

Exposed find_exposed(std::string_view text, std::string_view metric) {
  Exposed out;
  bool known = false;
  const auto type = fmt::format("# TYPE {} ", metric);
  for (const auto line : split(text, '\n')) {
    if (line.starts_with(type)) {
      const auto kind = trim(line.substr(type.size()));
      if (kind != "gauge" && kind != "counter")
        throw Error(Code::invalid,
                    fmt::format("metric {} is a {}: only gauges and counters are watched", metric, kind));
      known = true;
      out.counter = kind == "counter";
    } else if (line.starts_with(metric) && line.size() > metric.size() &&
               (line[metric.size()] == '{' || line[metric.size()] == ' ')) {
      const auto sample = parse_sample(line.substr(metric.size()));
      if (!sample) throw Error(Code::invalid, fmt::format("metric {} is not well-formed", metric));
      out.samples.push_back(*sample);
    }
  }
  if (!known) throw Error(Code::not_found, fmt::format("this server has no metric {}", metric));
  return out;
}

}  // namespace falaj::alerts
