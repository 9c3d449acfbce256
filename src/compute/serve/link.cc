// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/link.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::serve {
namespace {

constexpr std::uint32_t kBytesMax = 256u << 20;

bool send_all(int to, const char* bytes, std::size_t count) {
  while (count > 0) {
    const auto n = ::send(to, bytes, count, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes += n;
    count -= static_cast<std::size_t>(n);
  }
  return true;
}

bool receive_all(int from, char* bytes, std::size_t count) {
  while (count > 0) {
    const auto n = ::recv(from, bytes, count, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes += n;
    count -= static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace

std::pair<sys::Descriptor, sys::Descriptor> Link::pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(Code::unavailable, fmt::format("making a pair of sockets: {}", std::strerror(errno)));
  return {sys::Descriptor(ends[0]), sys::Descriptor(ends[1])};
}

void Link::send(const json::value& value) {
  const auto text = json::serialize(value);
  CHECK(text.size() <= kBytesMax, "a message between our own programs is bounded");
  const auto bytes = static_cast<std::uint32_t>(text.size());
  char head[sizeof bytes];
  std::memcpy(head, &bytes, sizeof bytes);
  Lock lock(sending_);
  if (!send_all(end_.get(), head, sizeof head) || !send_all(end_.get(), text.data(), text.size()))
    throw Error(Code::unavailable, "the other end of the link is gone");
}

std::optional<json::value> Link::receive() {
  std::uint32_t bytes = 0;
  char head[sizeof bytes];
  if (!receive_all(end_.get(), head, sizeof head)) return std::nullopt;
  std::memcpy(&bytes, head, sizeof bytes);
  if (bytes > kBytesMax) return std::nullopt;
  std::string text(bytes, '\0');
  if (!receive_all(end_.get(), text.data(), text.size())) return std::nullopt;
  try {
    return parse_json(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void Link::close() { ::shutdown(end_.get(), SHUT_RDWR); }

}  // namespace falaj::serve
