// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "foundation/base/json.h"
#include "foundation/base/mutex.h"
#include "foundation/sys/descriptor.h"

namespace falaj::serve {

// One end of the stream between the program that watches and the one that works: JSON values, each after its length.
// One thread receives, any send.
class Link {
 public:
  explicit Link(sys::Descriptor end) : end_(std::move(end)) {}
  static std::pair<sys::Descriptor, sys::Descriptor> pair();  // close-on-exec; throws unavailable

  void send(const json::value& value);   // throws unavailable when the other end is gone
  std::optional<json::value> receive();  // nothing: the other end is gone, or says what it should not
  void close();                          // wakes the receiver

 private:
  const sys::Descriptor end_;
  Mutex sending_;
};

}  // namespace falaj::serve
