// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace falaj::sys {

// An IPv4 or IPv6 address; IPv4 is kept in its mapped form, so that one check covers both.
struct Address {
  std::array<std::uint8_t, 16> bytes{};
  static Address parse(const std::string& text);  // throws invalid
  std::string str() const;
  bool is_v4() const;
  bool is_loopback() const;
  // Routed on the public internet: not loopback, private, link-local, shared, documentation, multicast, reserved or
  // one of the transition ranges that embed such an address.
  bool is_global() const;
  friend auto operator<=>(const Address&, const Address&) = default;
};

// Names to addresses. Thread-safe.
class Resolver {
 public:
  virtual ~Resolver() = default;
  virtual std::vector<Address> resolve(const std::string& host) = 0;  // not_found, unavailable
};
class RealResolver final : public Resolver {
 public:
  std::vector<Address> resolve(const std::string& host) override;
};

}  // namespace falaj::sys
