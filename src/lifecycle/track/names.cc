// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/names.h"

#include <array>

#include <fmt/format.h>

#include "foundation/base/bytes.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/track/types.h"

namespace falaj::track {

namespace {

constexpr std::array<std::string_view, 32> kKinds = {
    "amber",   "bold",   "brisk",  "calm",  "clear",  "cool",   "deep",   "distant", "eager", "early",  "fair",
    "fresh",   "gentle", "golden", "grand", "hidden", "honest", "keen",   "lively",  "lucky", "mellow", "noble",
    "patient", "quick",  "quiet",  "rapid", "shaded", "silver", "steady", "sunny",   "swift", "warm"};
constexpr std::array<std::string_view, 32> kThings = {
    "basin", "breeze", "bridge", "canal",  "cedar", "channel", "cistern", "date",  "delta",  "dune",  "falcon",
    "farm",  "field",  "garden", "harbor", "heron", "ibex",    "jetty",   "lemon", "mosaic", "oasis", "orchard",
    "oryx",  "palm",   "pearl",  "ridge",  "shore", "sluice",  "spring",  "stone", "valley", "well"};

bool is_key_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || c == '/' || c == ':' || c == ' ' || static_cast<unsigned char>(c) >= 0x80;
}

}  // namespace

std::size_t characters(std::string_view utf8) {
  std::size_t count = 0;
  for (const char c : utf8) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

std::string_view shortened(std::string_view utf8, std::size_t characters_max) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < utf8.size(); ++i)
    if ((static_cast<unsigned char>(utf8[i]) & 0xc0) != 0x80 && count++ == characters_max) return utf8.substr(0, i);
  return utf8;
}

void check_length(std::string_view where, std::string_view value, std::size_t characters_max) {
  if (value.size() <= characters_max) return;
  const auto length = characters(value);
  if (length > characters_max)
    throw Error(Code::invalid, fmt::format("{}: at most {} characters, got {}", where, characters_max, length));
}

void check_key(std::string_view where, std::string_view key) {
  check_length(where, key, kKeyBytesMax);
  const auto refuse = [&](std::string_view why) {
    throw Error(Code::invalid, fmt::format("{}: {}: '{}'", where, why, shortened(key, 80)));
  };
  if (key.empty()) refuse("a key is missing");
  for (const char c : key)
    if (!is_key_byte(c)) refuse("a key may hold letters, digits, '_', '-', '.', '/', ':' and spaces");
  for (const auto element : split(key, '/'))
    if (element.empty() || element == "." || element == "..")
      refuse("a key is a path without empty, '.' or '..' elements");
}

std::string random_run_id(sys::Random& random) {
  std::array<std::byte, 16> bytes;
  random.fill(bytes);
  return to_hex(bytes);
}

std::string random_name(sys::Random& random) {
  std::array<std::byte, 4> b;
  random.fill(b);
  const auto at = [&](std::size_t i) { return std::to_integer<std::size_t>(b[i]); };
  return fmt::format("{}-{}-{}", kKinds[at(0) % kKinds.size()], kThings[at(1) % kThings.size()],
                     (at(2) * 256 + at(3)) % 1000);
}

std::string_view name(RunStatus status) {
  constexpr std::string_view kNames[] = {"RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"};
  return kNames[static_cast<std::size_t>(status) - 1];
}

std::optional<RunStatus> parse_run_status(std::string_view text) {
  for (int i = 1; i <= 5; ++i)
    if (name(static_cast<RunStatus>(i)) == text) return static_cast<RunStatus>(i);
  return std::nullopt;
}

std::string artifact_uri(const RunInfo& run) {
  return fmt::format("mlflow-artifacts:/{}/{}/artifacts", run.experiment, run.run_id);
}
std::string artifact_uri(const Experiment& experiment) {
  return fmt::format("mlflow-artifacts:/{}", experiment.number);
}

}  // namespace falaj::track
