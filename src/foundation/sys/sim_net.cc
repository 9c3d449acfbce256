// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/sim_net.h"

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::sys {

std::vector<Address> SimResolver::resolve(const std::string& host) {
  Lock lock(mu_);
  const auto it = hosts_.find(host);
  if (it == hosts_.end()) throw Error(Code::not_found, fmt::format("resolving a host: no address for '{}'", host));
  return it->second;
}

void SimResolver::set(const std::string& host, std::vector<Address> addresses) {
  Lock lock(mu_);
  hosts_[host] = std::move(addresses);
}

}  // namespace falaj::sys
