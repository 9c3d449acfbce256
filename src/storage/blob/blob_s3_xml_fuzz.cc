// SPDX-License-Identifier: Apache-2.0
// Answers of a server that is not S3.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "foundation/base/error.h"
#include "storage/blob/s3_xml.h"

using namespace falaj;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view xml(reinterpret_cast<const char*>(data), size);
  for (const auto element : blob::elements(xml, "Key")) {
    if (element.data() < xml.data() || element.data() + element.size() > xml.data() + xml.size()) std::abort();
  }
  (void)blob::element_text(xml, "UploadId");
  try {
    (void)blob::parse_listing(xml);
  } catch (const Error& error) {
    if (error.code() != Code::unavailable) std::abort();
  }
  return 0;
}
