// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "foundation/base/mutex.h"
#include "foundation/sys/process.h"
#include "foundation/sys/testing.h"
#include "storage/blob/keys.h"
#include "storage/blob/object.h"

namespace falaj::blob {

// Who and where, in the tests of this directory.
inline const TenantName kAcme{"acme"}, kOther{"other"};
inline const ZoneName kUae{"uae"};
inline const Reader kReader{kAcme, kUae};

// Keys that follow from the tenant's name. Every tenant exists; its newest version is 1 until rotated. Thread-safe.
class FixedKeys final : public Keys {
 public:
  VersionedKey newest(const TenantName& tenant) override;
  crypto::Key version(const TenantName& tenant, std::uint32_t version) override;
  crypto::Key address_key(const TenantName& tenant) override;

  void rotate(const TenantName& tenant);
  void forget(const TenantName& tenant, std::uint32_t version);  // as if it had never been

 private:
  Mutex mu_;
  std::map<TenantName, std::uint32_t> newest_ GUARDED_BY(mu_);
  std::map<TenantName, std::uint32_t> forgotten_up_to_ GUARDED_BY(mu_);
};

// Bytes that do not compress, the same for the same seed.
Bytes random_bytes(std::size_t size, std::uint64_t seed);
// The same without holding them: a source of `size` such bytes.
Source random_source(std::uint64_t size, std::uint64_t seed);

// A real S3 server on a port of the kernel's choosing: Debian's swift with its s3api, which checks signatures.
// It runs in namespaces of its own and ends with the object.
class SwiftServer {
 public:
  static bool is_installed();
  SwiftServer();  // returns when it answers
  ~SwiftServer();
  std::string endpoint() const;
  static constexpr const char* kAccessKey = "test:tester";
  static constexpr const char* kSecretKey = "SECRETKEY";
  static constexpr const char* kRegion = "us-east-1";

 private:
  sys::TempDir dir_;
  int port_ = 0;
  sys::RealProcesses processes_;
  std::unique_ptr<sys::Child> child_;
};

}  // namespace falaj::blob
