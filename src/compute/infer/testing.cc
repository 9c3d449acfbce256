// SPDX-License-Identifier: Apache-2.0
#include "compute/infer/testing.h"

namespace falaj::infer {

const Runtime& runtime() {
  static const Runtime loaded = Runtime::load(Runtime::path_beside_program());
  return loaded;
}

}  // namespace falaj::infer
