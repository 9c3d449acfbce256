// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lifecycle/models/registry.h"
#include "lifecycle/watch/reference.h"

namespace falaj::watch {

// What a version of a model was tested on, from its reference.json. Throws not_found, corrupt, and invalid when it is
// too large.
Reference tested_on(models::Registry& models, vault::Vault& vault, const vault::Where& where, const std::string& model,
                    std::int64_t version);

// The newest windows of what an endpoint is asked, put together.
struct Now {
  traffic::Sketches columns;
  std::int64_t windows = 0, rows = 0;
};

// The input that lies farthest from a reference, by its population stability index beyond what chance brings between
// samples of these sizes in one of a hundred cases, with all inputs looked at. "" = there is none to compare.
struct Farthest {
  std::string column;
  double psi = 0, noise = 0;
};
Farthest farthest(const Reference& reference, const traffic::Sketches& now);

}  // namespace falaj::watch
