// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace falaj::blob {

// AWS Signature Version 4, as a function of values. (libcurl 7.88 has one that servers refuse.)
struct S3Signed {
  std::string_view method;
  std::string_view path;                       // as sent
  std::string_view query;                      // as sent: see query_string
  std::map<std::string, std::string> headers;  // those to sign, names in lower case; host and x-amz-date are among them
  std::string_view payload_sha256;             // in hex
};
struct S3Credentials {
  std::string access_key, secret_key, region;
};
// The value of the Authorization header.
std::string sign(const S3Signed& request, const S3Credentials& credentials);

std::string amz_date(std::int64_t unix_us);  // "20130524T000000Z"
// Encoded and in the order that the signature wants.
std::string query_string(std::vector<std::pair<std::string, std::string>> parameters);

}  // namespace falaj::blob
