// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/codes.h"

namespace falaj::net {
namespace {
constexpr CodeRow kCodeRows[] = {
    {Code::invalid, 400, 3},  {Code::not_found, 404, 5},        {Code::exists, 409, 6},    {Code::conflict, 409, 10},
    {Code::denied, 403, 7},   {Code::unauthenticated, 401, 16}, {Code::exhausted, 429, 8}, {Code::unavailable, 503, 14},
    {Code::deadline, 504, 4}, {Code::cancelled, 499, 1},        {Code::corrupt, 500, 15},  {Code::internal, 500, 13},
};
}  // namespace

const CodeRow& row_of(Code code) {
  for (const auto& row : kCodeRows)
    if (row.code == code) return row;
  check_failed(__FILE__, __LINE__, "row", "a code without a row in the table of errors");
}

}  // namespace falaj::net
