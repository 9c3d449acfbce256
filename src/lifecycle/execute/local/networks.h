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
  Networks();                               // throws unavailable when there are none to be had
  sys::Descriptor take();                   // throws unavailable
  void give_back(sys::Descriptor network);  // Requires: nothing is left in it

 private:
  std::vector<sys::Descriptor> ready_;
};

// Whether no socket is left in the network of this process; connections that wait for their last packets to age outlive
// whoever opened them.
bool network_is_clean();

}  // namespace falaj::execute::local
