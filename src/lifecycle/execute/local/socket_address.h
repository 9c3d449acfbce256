// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

#include "foundation/sys/descriptor.h"

namespace falaj::execute::local {

// A socket in a directory however long its path is: an address holds 107 bytes of one.
class SocketAddress {
 public:
  SocketAddress(const std::string& directory, const char* name);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t size() const { return sizeof address_; }

 private:
  sys::Descriptor directory_;
  sockaddr_un address_{};
};

}  // namespace falaj::execute::local
