// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/small_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "foundation/sys/descriptor.h"

namespace falaj::execute::local {

int write_small(const std::string& path, std::string_view text) {
  const sys::Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file) return errno;
  return ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : errno;
}

std::string read_small(const std::string& path) {
  const sys::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string out;
  if (!file) return out;
  char part[4096];
  for (;;) {
    const auto n = ::read(file.get(), part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return out;
    out.append(part, static_cast<std::size_t>(n));
  }
}

}  // namespace falaj::execute::local
