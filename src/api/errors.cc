// SPDX-License-Identifier: Apache-2.0
#include "api/errors.h"

#include "api/mlflow/protocol.h"

namespace falaj::api {

net::Response error_response(const Error& error, const net::Head& head) {
  net::Response response = mlflow::speaks(head.path)
                               ? mlflow::error_response(error, head.request_id)
                               : net::error_response(row_of(error.code()).http, error, head.request_id);
  if (error.code() == Code::unauthenticated) response.headers.set("WWW-Authenticate", "Bearer realm=\"falaj\"");
  if (error.code() == Code::exhausted || error.code() == Code::unavailable) response.headers.set("Retry-After", "1");
  return response;
}

}  // namespace falaj::api
