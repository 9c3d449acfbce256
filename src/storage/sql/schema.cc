// SPDX-License-Identifier: Apache-2.0
#include "storage/sql/schema.h"

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::sql {

namespace {

bool is_word(char c) { return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

// Replaces `from` where it stands as whole words.
std::string replace_words(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t done = 0;
  for (auto at = text.find(from); at != std::string_view::npos; at = text.find(from, at + from.size())) {
    const auto end = at + from.size();
    if ((at > 0 && is_word(text[at - 1])) || (end < text.size() && is_word(text[end]))) continue;
    out += text.substr(done, at - done);
    out += to;
    done = end;
  }
  out += text.substr(done);
  return out;
}

}  // namespace

std::string sqlite_schema(std::string_view text) {
  return replace_words(replace_words(text, "BIGINT PRIMARY KEY", "INTEGER PRIMARY KEY"), "CLUSTERED", "WITHOUT ROWID");
}

std::string postgresql_schema(std::string_view text) {
  return replace_words(replace_words(text, "TEXT", "TEXT COLLATE \"C\""), "CLUSTERED", "");
}

void refuse_bad_text(std::string_view text) {
  if (text.find('\0') != std::string_view::npos || !is_utf8(text))
    throw Error(Code::invalid, "text is not UTF-8 without zero bytes");
}

}  // namespace falaj::sql
