// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/networks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/execute/local/small_file.h"

namespace falaj::execute::local {
namespace {

constexpr std::size_t kReadyMax = 64;
// Besides 127.0.0.1: resolvers asked for addresses "as configured" find none when there is only that one.
constexpr const char* kOtherAddress = "198.18.0.1";

[[noreturn]] void fail_network(std::string_view doing) {
  throw Error(Code::unavailable,
              fmt::format("a network of its own: {}: {}", doing, std::generic_category().message(errno)));
}

bool bring_up_loopback() {
  const sys::Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (!socket || ::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0) return false;
  std::strcpy(request.ifr_name, "lo:1");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, kOtherAddress, &address.sin_addr);
  std::memcpy(&request.ifr_addr, &address, sizeof address);
  return ::ioctl(socket.get(), SIOCSIFADDR, &request) == 0;
}

}  // namespace

Networks::Networks() : own_(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)) {
  if (!own_) fail_network("ours");
  ready_.push_back(make());
}

sys::Descriptor Networks::make() {
  if (::unshare(CLONE_NEWNET) != 0) fail_network("making it");
  const bool up = bring_up_loopback();
  sys::Descriptor made(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  CHECK(::setns(own_.get(), CLONE_NEWNET) == 0, "the way back into our own network is closed");
  if (!up || !made) fail_network("its loopback");
  return made;
}

sys::Descriptor Networks::take() {
  if (ready_.empty()) return make();
  auto network = std::move(ready_.back());
  ready_.pop_back();
  return network;
}

void Networks::give_back(sys::Descriptor network) {
  if (ready_.size() < kReadyMax && is_clean(network.get())) ready_.push_back(std::move(network));
}

// Connections that wait for their last packets to age outlive whoever opened them.
bool Networks::is_clean(int network) {
  if (::setns(network, CLONE_NEWNET) != 0) return false;
  const std::string sockets =
      read_small("/proc/thread-self/net/sockstat") + read_small("/proc/thread-self/net/sockstat6");
  CHECK(::setns(own_.get(), CLONE_NEWNET) == 0, "the way back into our own network is closed");
  if (sockets.empty()) return false;
  for (const auto line : split(sockets, '\n')) {
    const auto words = split(line, ' ');
    if (words.size() < 3 || words[0] == "sockets:") continue;
    for (std::size_t i = 1; i + 1 < words.size(); i += 2)
      if ((words[i] == "inuse" || words[i] == "tw") && words[i + 1] != "0") return false;
  }
  return true;
}

}  // namespace falaj::execute::local
