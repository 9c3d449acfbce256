// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "foundation/base/mutex.h"
#include "foundation/sys/net.h"

namespace falaj::sys {

// Knows the names it was told and no other. Thread-safe.
class SimResolver final : public Resolver {
 public:
  std::vector<Address> resolve(const std::string& host) override;
  void set(const std::string& host, std::vector<Address> addresses);

 private:
  Mutex mu_;
  std::map<std::string, std::vector<Address>> hosts_ GUARDED_BY(mu_);
};

}  // namespace falaj::sys
