// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "foundation/base/error.h"
#include "foundation/base/yaml.h"

// Any bytes are read or refused with invalid, and what was read survives being written.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<falaj::YamlDocument> documents;
  try {
    documents = falaj::parse_yaml({reinterpret_cast<const char*>(data), size});
  } catch (const falaj::Error& error) {
    CHECK(error.code() == falaj::Code::invalid, "refused with another code");
    return 0;
  }
  for (const auto& document : documents) {
    const auto again = falaj::parse_yaml(falaj::to_yaml(document.value));
    CHECK(again.size() == 1 && falaj::canonical(again[0].value) == falaj::canonical(document.value),
          "what was written is not what is read");
  }
  return 0;
}
