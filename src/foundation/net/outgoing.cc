// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/outgoing.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::net {
namespace {

std::vector<sys::Address> addresses_of(const std::string& host, sys::Resolver& resolver) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  try {
    return {sys::Address::parse(bracketed ? host.substr(1, host.size() - 2) : host)};
  } catch (const Error&) {
    return resolver.resolve(host);
  }
}

}  // namespace

sys::Address check_outgoing(const OutgoingRules& rules, sys::Resolver& resolver, bool https, const std::string& host) {
  if (!https && !rules.plain_http) throw Error(Code::denied, "outgoing request: only https is allowed");
  const auto name = lower(host);
  const auto allows = [&](const std::string& glob) { return matches_glob(lower(glob), name); };
  if (!std::any_of(rules.hosts.begin(), rules.hosts.end(), allows))
    throw Error(Code::denied, fmt::format("outgoing request: host not on the allow-list: {}", host));
  const auto addresses = addresses_of(name, resolver);
  if (addresses.empty()) throw Error(Code::not_found, fmt::format("outgoing request: no address for {}", host));
  // One local address among public ones is as suspicious as one alone.
  const auto global = [](const sys::Address& a) { return a.is_global(); };
  if (!rules.local_addresses && !std::all_of(addresses.begin(), addresses.end(), global))
    throw Error(Code::denied,
                fmt::format("outgoing request: {} has an address that is not on the public internet", host));
  return addresses.front();
}

}  // namespace falaj::net
