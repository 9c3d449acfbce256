// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>

#include "foundation/base/json.h"
#include "foundation/base/mutex.h"
#include "foundation/client/api_client.h"
#include "lifecycle/traffic/plan.h"

namespace falaj::serve {

// The keys of the spaces that a plan names: asked of the control plane, in memory only. Thread-safe.
class SpaceKeyRing {
 public:
  void need(const traffic::Plan& plan);    // forgets those of others
  bool fetch(client::ApiClient& control);  // what is needed and not known yet; whether some of it came
  json::object told() const;               // by name, for the worker

 private:
  mutable Mutex mu_;
  std::set<std::string> needed_ GUARDED_BY(mu_);
  std::map<std::string, traffic::SpaceKeys> known_ GUARDED_BY(mu_);
};

}  // namespace falaj::serve
