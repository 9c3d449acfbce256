// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace falaj::sql {

// Schema text as SQLite should have it: "BIGINT PRIMARY KEY" becomes "INTEGER PRIMARY KEY", which is the same 64 bits
// but makes the column the row's own key instead of a second index; "CREATE TABLE t(...) CLUSTERED" keeps the rows in
// the tree of the primary key, for tables whose key has several columns. PostgreSQL has no such thing and ignores it.
std::string sqlite_schema(std::string_view text);

// Schema text as PostgreSQL should have it: each TEXT compares by bytes, as SQLite's does, whatever the server's
// locale.
std::string postgresql_schema(std::string_view text);

// Text is UTF-8 without a zero byte, which PostgreSQL cannot hold: what one engine takes the other must take. Throws
// invalid.
void refuse_bad_text(std::string_view text);

}  // namespace falaj::sql
