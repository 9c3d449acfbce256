// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/networks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>

#include "foundation/base/text.h"
#include "lifecycle/execute/local/made_namespace.h"
#include "lifecycle/execute/local/small_file.h"

namespace falaj::execute::local {
namespace {

constexpr std::size_t kReadyMax = 64;
// Besides 127.0.0.1: resolvers asked for addresses "as configured" find none when there is only that one.
constexpr const char* kOtherAddress = "198.18.0.1";

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

sys::Descriptor new_network() {
  return made_namespace("net", [] {
    if (::unshare(CLONE_NEWNET) != 0) return "making it";
    return bring_up_loopback() ? nullptr : "its loopback";
  });
}

}  // namespace

Networks::Networks() { ready_.push_back(new_network()); }

sys::Descriptor Networks::take() {
  if (ready_.empty()) return new_network();
  auto network = std::move(ready_.back());
  ready_.pop_back();
  return network;
}

void Networks::give_back(sys::Descriptor network) {
  if (ready_.size() < kReadyMax) ready_.push_back(std::move(network));
}

bool network_is_clean() {
  const std::string sockets = read_small("/proc/self/net/sockstat") + read_small("/proc/self/net/sockstat6");
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
