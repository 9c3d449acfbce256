// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/backend.h"

#include <algorithm>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::blob {

namespace {
bool is_element(std::string_view text) {
  return !text.empty() && text.size() <= 128 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
}
}  // namespace

void check_blob_name(std::string_view name) {
  const auto parts = split(name, '/');
  const bool ok = parts.size() == 3 && std::all_of(parts.begin(), parts.end(), is_element) && parts[2].size() >= 4;
  if (!ok) throw Error(Code::invalid, "not a name of a blob");
}

void check_blob_prefix(std::string_view prefix) {
  if (prefix.empty()) return;
  const auto parts = split(prefix, '/');
  const bool ok = parts.size() >= 2 && parts.size() <= 3 && parts.back().empty() &&
                  std::all_of(parts.begin(), parts.end() - 1, is_element);
  if (!ok) throw Error(Code::invalid, "not a prefix of names of blobs");
}

}  // namespace falaj::blob
