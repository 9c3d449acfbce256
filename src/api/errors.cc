// SPDX-License-Identifier: Apache-2.0
#include "api/errors.h"

#include "api/mlflow/protocol.h"

namespace falaj::api {
namespace {
constexpr CodeRow kRows[] = {
    {Code::invalid, 400, 3},  {Code::not_found, 404, 5},        {Code::exists, 409, 6},    {Code::conflict, 409, 10},
    {Code::denied, 403, 7},   {Code::unauthenticated, 401, 16}, {Code::exhausted, 429, 8}, {Code::unavailable, 503, 14},
    {Code::deadline, 504, 4}, {Code::cancelled, 499, 1},        {Code::corrupt, 500, 15},  {Code::internal, 500, 13},
};
}  // namespace

const CodeRow& row_of(Code code) {
  for (const auto& row : kRows)
    if (row.code == code) return row;
  check_failed(__FILE__, __LINE__, "row", "a code without a row in the table of errors");
}

net::Response error_response(const Error& error, const net::Head& head) {
  net::Response response = mlflow::speaks(head.path)
                               ? mlflow::error_response(error, head.request_id)
                               : net::error_response(row_of(error.code()).http, error, head.request_id);
  if (error.code() == Code::unauthenticated) response.headers.set("WWW-Authenticate", "Bearer realm=\"falaj\"");
  if (error.code() == Code::exhausted || error.code() == Code::unavailable) response.headers.set("Retry-After", "1");
  return response;
}

}  // namespace falaj::api
