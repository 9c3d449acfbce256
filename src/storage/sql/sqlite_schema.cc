// SPDX-License-Identifier: Apache-2.0
#include "storage/sql/sqlite_schema.h"

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::sql {

std::string sqlite_schema(std::string_view text) {
  constexpr std::string_view kTheirs = "BIGINT PRIMARY KEY", kOurs = "INTEGER PRIMARY KEY";
  std::string out;
  while (true) {
    const auto at = text.find(kTheirs);
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    out += kOurs;
    text.remove_prefix(at + kTheirs.size());
  }
}

void refuse_bad_text(std::string_view text) {
  if (text.find('\0') != std::string_view::npos || !is_utf8(text))
    throw Error(Code::invalid, "text is not UTF-8 without zero bytes");
}

}  // namespace falaj::sql
