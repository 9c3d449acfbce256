// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/blob/backend.h"

namespace falaj::blob {

// As much XML as S3's answers need: elements by name, without attributes in the ones we look for. Functions of values.

// What stands between <tag> and </tag>, each time.
std::vector<std::string_view> elements(std::string_view xml, std::string_view tag);
// The text of the first <tag>, with entities replaced.
std::optional<std::string> element_text(std::string_view xml, std::string_view tag);

struct S3Listing {
  std::vector<BlobInfo> blobs;  // named by the whole key
  bool truncated = false;
};
S3Listing parse_listing(std::string_view xml);  // throws unavailable: not an answer of S3

}  // namespace falaj::blob
