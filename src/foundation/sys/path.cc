// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/path.h"

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::sys {
namespace {
constexpr std::size_t kElementBytesMax = 255;
constexpr std::size_t kPathBytesMax = 4000;
}  // namespace

void check_path(std::string_view path) {
  if (path.size() > kPathBytesMax) throw Error(Code::invalid, "file path: too long");
  if (path.find('\0') != std::string_view::npos) throw Error(Code::invalid, "file path: holds a NUL byte");
  const auto elements = split(path, '/');
  for (const auto element : elements) {
    if (element.empty()) throw Error(Code::invalid, "file path: an element is empty");
    if (element == "." || element == "..") throw Error(Code::invalid, "file path: '.' and '..' are not allowed");
    if (element.size() > kElementBytesMax) throw Error(Code::invalid, "file path: an element has more than 255 bytes");
  }
  if (elements.front() == kUnnamedDirectory) throw Error(Code::invalid, "file path: '.new' is reserved");
}

std::pair<std::string, std::string> split_name(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

}  // namespace falaj::sys
