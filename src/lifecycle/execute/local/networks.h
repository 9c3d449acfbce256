// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "foundation/sys/descriptor.h"

namespace falaj::execute::local {

// Network namespaces that hold a loopback and nothing else. Making one takes longer than all else that an attempt
// needs, so they are used again once nothing of the last user is left in them; they belong to the keeper, and nobody in
// them can change them. Not thread-safe.
class Networks {
 public:
  Networks();              // throws unavailable when there are none to be had
  sys::Descriptor take();  // throws unavailable
  void give_back(sys::Descriptor network);

 private:
  sys::Descriptor make();
  bool is_clean(int network);

  sys::Descriptor own_;
  std::vector<sys::Descriptor> ready_;
};

}  // namespace falaj::execute::local
