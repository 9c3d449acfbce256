// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace falaj {

// One code per thing a *caller* may do differently. Detail goes into the message.
enum class Code {
  invalid,          // the input is wrong: change it
  not_found,        // no such thing, or none the caller may know of
  exists,           // the name is taken
  conflict,         // somebody else changed it first: read again, then retry
  denied,           // known caller, not allowed
  unauthenticated,  // unknown caller
  exhausted,        // a limit or quota is reached: wait, then retry
  unavailable,      // something we need does not answer: retry
  deadline,         // out of time
  cancelled,        // the caller or a shutdown stopped it
  corrupt,          // stored bytes are not what was written
  internal,         // a bug of ours
};
inline constexpr Code kCodes[] = {Code::invalid,  Code::not_found,       Code::exists,    Code::conflict,
                                  Code::denied,   Code::unauthenticated, Code::exhausted, Code::unavailable,
                                  Code::deadline, Code::cancelled,       Code::corrupt,   Code::internal};

std::string_view name(Code code);
std::optional<Code> parse_code(std::string_view name);

// One fault of an input that has several: where (a path such as "spec.rules[2].allow") and what is wrong.
struct Fault {
  std::string where;
  std::string what;
  friend bool operator==(const Fault&, const Fault&) = default;
};

// The only exception type that leaves our functions. The message is lower case: what we were doing, what was wrong,
// the value last. It may reach a client, so it never holds a secret, a path of this machine or a query.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message, std::vector<Fault> faults = {})
      : std::runtime_error(message), code_(code), faults_(std::move(faults)) {}

  Code code() const { return code_; }
  const std::vector<Fault>& faults() const { return faults_; }

  // Only these may be tried again unchanged.
  bool retryable() const { return code_ == Code::unavailable || code_ == Code::conflict || code_ == Code::exhausted; }

 private:
  Code code_;
  std::vector<Fault> faults_;
};

// Throws `invalid` with every fault, or returns when there is none.
void refuse_if_any(std::string_view doing, std::vector<Fault> faults);

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const char* message);

}  // namespace falaj

// A programmer's error, never outside input. Always on: prints where and aborts.
#define CHECK(condition, message) \
  (static_cast<bool>(condition) ? void(0) : ::falaj::check_failed(__FILE__, __LINE__, #condition, message))
