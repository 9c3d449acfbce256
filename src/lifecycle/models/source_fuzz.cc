// SPDX-License-Identifier: Apache-2.0
#include "foundation/base/error.h"
#include "lifecycle/models/manifest.h"
#include "lifecycle/models/source.h"
#include "lifecycle/models/types.h"

// What users say a version is made of, and what a loader is handed as a manifest: either is refused in our own words,
// or holds no way out of the project's artifacts.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace falaj;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto source = models::parse_source(text);
    CHECK(("/" + source.path + "/").find("/../") == std::string::npos, "no way up");
    CHECK(!source.path.starts_with('/') && source.id.find('/') == std::string::npos, "relative, and one id");
  } catch (const Error& e) {
    CHECK(e.code() == Code::invalid, "only invalid");
  }
  try {
    CHECK(models::to_text(models::parse_manifest(text)) == text, "one manifest, one text");
  } catch (const Error& e) {
    CHECK(e.code() == Code::corrupt, "only corrupt");
  }
  (void)models::parse_version_path(text);
  return 0;
}
