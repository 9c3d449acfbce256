// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/host_rule.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

#include "foundation/base/text.h"
#include "foundation/net/grammar.h"

namespace falaj::net {
namespace {

bool is_address(std::string_view host) {
  std::array<unsigned char, 16> bytes{};
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    return inet_pton(AF_INET6, std::string(host.substr(1, host.size() - 2)).c_str(), bytes.data()) == 1;
  return inet_pton(AF_INET, std::string(host).c_str(), bytes.data()) == 1;
}

std::string as_in_url(const std::string& host) {
  return host.find(':') != host.npos && host[0] != '[' ? "[" + host + "]" : host;
}

}  // namespace

HostRule::HostRule(const std::string& listen_host, const std::vector<std::string>& more_names)
    : any_address_(listen_host == "0.0.0.0" || listen_host == "::") {
  names_.push_back(as_in_url(listen_host));
  if (any_address_ || listen_host.starts_with("127.") || listen_host == "::1" || listen_host == "localhost")
    for (const char* own : {"localhost", "127.0.0.1", "[::1]"}) names_.emplace_back(own);
  for (const auto& name : more_names) names_.push_back(as_in_url(name));
}

bool HostRule::knows(std::string_view host) const {
  const auto same = [host](const std::string& name) { return equal_without_case(name, host); };
  return std::any_of(names_.begin(), names_.end(), same) || (any_address_ && is_address(host));
}

bool HostRule::same_origin(std::string_view origin, std::string_view host_header) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (origin.starts_with(scheme) && equal_without_case(origin.substr(scheme.size()), host_header)) return true;
  return false;
}

}  // namespace falaj::net
