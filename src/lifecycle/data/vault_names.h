// SPDX-License-Identifier: Apache-2.0
// Private to lifecycle/data: where its bytes are in the vault. Names that begin with '@' are not for callers to use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace falaj::data {

inline constexpr std::string_view kUploads = "@upload/", kFiles = "@data/";

inline std::string upload_root(const std::string& upload) { return fmt::format("{}{}/", kUploads, upload); }
inline std::string part_name(const std::string& upload, std::int64_t number) {
  return fmt::format("{}{:06}", upload_root(upload), number);
}

}  // namespace falaj::data
