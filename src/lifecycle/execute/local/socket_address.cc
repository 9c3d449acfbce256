// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/socket_address.h"

#include <fcntl.h>

#include <fmt/format.h>

namespace falaj::execute::local {

SocketAddress::SocketAddress(const std::string& directory, const char* name)
    : directory_(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  address_.sun_family = AF_UNIX;
  // Where there is no directory there is nobody: connecting says so.
  fmt::format_to_n(address_.sun_path, sizeof address_.sun_path - 1, "/proc/self/fd/{}/{}", directory_.get(), name);
}

}  // namespace falaj::execute::local
