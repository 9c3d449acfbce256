// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/net.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::sys {
namespace {

using V6 = std::array<std::uint8_t, 16>;
constexpr std::size_t kMappedBits = 96;
constexpr V6 kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};

struct Range {
  V6 prefix;
  std::size_t bits;
};

constexpr Range v4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d, std::size_t bits) {
  return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, a, b, c, d}, kMappedBits + bits};
}

bool within(const V6& address, const Range& range) {
  const std::size_t whole = range.bits / 8, rest = range.bits % 8;
  if (!std::equal(address.begin(), address.begin() + static_cast<std::ptrdiff_t>(whole), range.prefix.begin()))
    return false;
  return rest == 0 || (address[whole] ^ range.prefix[whole]) >> (8 - rest) == 0;
}

// IANA's special-purpose registries (RFC 6890 and later), and multicast.
constexpr Range kSpecial[] = {
    v4(0, 0, 0, 0, 8),                           // this network
    v4(10, 0, 0, 0, 8),                          // private
    v4(100, 64, 0, 0, 10),                       // shared by carriers
    v4(127, 0, 0, 0, 8),                         // loopback
    v4(169, 254, 0, 0, 16),                      // link-local, where clouds put their metadata service
    v4(172, 16, 0, 0, 12),                       // private
    v4(192, 0, 0, 0, 24),                        // protocol assignments
    v4(192, 0, 2, 0, 24),                        // documentation
    v4(192, 88, 99, 0, 24),                      // 6to4 relay
    v4(192, 168, 0, 0, 16),                      // private
    v4(198, 18, 0, 0, 15),                       // benchmarking
    v4(198, 51, 100, 0, 24),                     // documentation
    v4(203, 0, 113, 0, 24),                      // documentation
    v4(224, 0, 0, 0, 4),                         // multicast
    v4(240, 0, 0, 0, 4),                         // reserved, broadcast
    {{0x00, 0x64, 0xFF, 0x9B, 0x00, 0x01}, 48},  // local translation
    {{0x20, 0x01}, 23},                          // protocol assignments, Teredo among them
    {{0x20, 0x01, 0x0D, 0xB8}, 32},              // documentation
    {{0x3F, 0xFF}, 20},                          // documentation
    {{0xFC}, 7},                                 // unique local
    {{0xFE, 0x80}, 10},                          // link-local
    {{0xFE, 0xC0}, 10},                          // site-local, deprecated
    {{0xFF}, 8},                                 // multicast
};
// IPv6 that is routed at all is 2000::/3; translated IPv4 is judged by what it holds.
constexpr Range kRouted = {{0x20}, 3};
constexpr Range kTranslated = {{0x00, 0x64, 0xFF, 0x9B}, 96};
constexpr Range kSixToFour = {{0x20, 0x02}, 16};

Address mapped(std::span<const std::uint8_t> four) {
  Address out{kMapped};
  std::copy(four.begin(), four.end(), out.bytes.begin() + 12);
  return out;
}

}  // namespace

Address Address::parse(const std::string& text) {
  Address out;
  std::array<std::uint8_t, 4> four{};
  const bool has_nul = text.find('\0') != std::string::npos;  // inet_pton would stop there
  if (!has_nul && ::inet_pton(AF_INET, text.c_str(), four.data()) == 1) return mapped(four);
  if (!has_nul && ::inet_pton(AF_INET6, text.c_str(), out.bytes.data()) == 1) return out;
  throw Error(Code::invalid, fmt::format("not an IP address: '{}'", text.substr(0, 64)));
}

std::string Address::str() const {
  char text[INET6_ADDRSTRLEN];
  const bool four = is_v4();
  return ::inet_ntop(four ? AF_INET : AF_INET6, bytes.data() + (four ? 12 : 0), text, sizeof text);
}

bool Address::is_v4() const { return within(bytes, {kMapped, kMappedBits}); }

bool Address::is_loopback() const {
  static constexpr V6 kLoopback = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return within(bytes, v4(127, 0, 0, 0, 8)) || bytes == kLoopback;
}

bool Address::is_global() const {
  if (std::any_of(std::begin(kSpecial), std::end(kSpecial), [&](const Range& r) { return within(bytes, r); }))
    return false;
  if (is_v4()) return true;
  const std::span<const std::uint8_t> all(bytes);
  if (within(bytes, kTranslated)) return mapped(all.subspan(12, 4)).is_global();
  if (within(bytes, kSixToFour)) return mapped(all.subspan(2, 4)).is_global();
  return within(bytes, kRouted);
}

std::vector<Address> RealResolver::resolve(const std::string& host) {
  if (host.empty() || host.size() > 253 || host.find('\0') != std::string::npos)
    throw Error(Code::not_found, "resolving a host: not a host name");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int result = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, ::freeaddrinfo);
  if (result == EAI_NONAME || result == EAI_NODATA)
    throw Error(Code::not_found, fmt::format("resolving a host: no address for '{}'", host));
  if (result != 0)
    throw Error(Code::unavailable, fmt::format("resolving a host: {}: '{}'", ::gai_strerror(result), host));

  std::vector<Address> out;
  for (const addrinfo* a = found; a; a = a->ai_next) {
    Address address;
    if (a->ai_family == AF_INET) {
      std::array<std::uint8_t, 4> four{};
      std::memcpy(four.data(), &reinterpret_cast<const sockaddr_in*>(a->ai_addr)->sin_addr, four.size());
      address = mapped(four);
    } else if (a->ai_family == AF_INET6) {
      std::memcpy(address.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(a->ai_addr)->sin6_addr,
                  address.bytes.size());
    } else {
      continue;
    }
    if (std::find(out.begin(), out.end(), address) == out.end()) out.push_back(address);
  }
  if (out.empty()) throw Error(Code::not_found, fmt::format("resolving a host: no address for '{}'", host));
  return out;
}

}  // namespace falaj::sys
