// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/dial.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::serve {
namespace {

constexpr std::size_t kTextMax = 256;

union Control {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

// A text, and a descriptor unless it is -1.
bool send_message(int to, std::string text, int descriptor) {
  text.resize(std::min(text.size(), kTextMax));
  iovec piece{text.data(), text.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  Control control{};
  if (descriptor >= 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(&control.header), &descriptor, sizeof descriptor);
  }
  ssize_t sent = -1;
  do sent = ::sendmsg(to, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent > 0;
}

// False when the other end is gone.
bool receive_message(int from, std::string& text, sys::Descriptor& descriptor) {
  text.assign(kTextMax, '\0');
  iovec piece{text.data(), text.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  Control control{};
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t got = -1;
  do got = ::recvmsg(from, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got <= 0) return false;
  text.resize(static_cast<std::size_t>(got));
  const auto* header = CMSG_FIRSTHDR(&message);
  if (header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int received = -1;
    std::memcpy(&received, CMSG_DATA(header), sizeof received);
    descriptor = sys::Descriptor(received);
  }
  return true;
}

}  // namespace

Dialler::Dialler(std::optional<online::RedisOptions> redis) : redis_(std::move(redis)) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(Code::unavailable, fmt::format("making a pair of sockets: {}", std::strerror(errno)));
  ours_ = sys::Descriptor(ends[0]);
  theirs_ = sys::Descriptor(ends[1]);
  thread_ = std::thread([this] { run(); });
}

Dialler::~Dialler() {
  ::shutdown(ours_.get(), SHUT_RDWR);
  thread_.join();
}

void Dialler::run() {
  std::string question;
  sys::Descriptor none;
  while (receive_message(ours_.get(), question, none)) {
    try {
      if (!redis_) throw Error(Code::unavailable, "this server has no settings of Redis");
      const auto connection = online::dial_redis(*redis_);
      if (!send_message(ours_.get(), "here", connection.get())) return;
    } catch (const Error& e) {
      if (!send_message(ours_.get(), e.what(), -1)) return;
    }
  }
}

sys::Descriptor Dialled::dial() {
  Lock lock(asking_);
  std::string answer;
  sys::Descriptor connection;
  if (!send_message(end_.get(), "redis", -1) || !receive_message(end_.get(), answer, connection))
    throw Error(Code::unavailable, "the supervisor is gone");
  if (!connection) throw Error(Code::unavailable, answer);
  return connection;
}

}  // namespace falaj::serve
