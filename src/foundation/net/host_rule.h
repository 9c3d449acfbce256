// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace falaj::net {

// Which names a client may call us by. Constant after construction.
class HostRule {
 public:
  HostRule(const std::string& listen_host, const std::vector<std::string>& more_names);
  // `host` as Host has it, without the port.
  bool knows(std::string_view host) const;
  // Pages of our own origin only: what follows "http(s)://" is exactly the Host header.
  static bool same_origin(std::string_view origin, std::string_view host_header);

 private:
  std::vector<std::string> names_;
  bool any_address_ = false;
};

}  // namespace falaj::net
