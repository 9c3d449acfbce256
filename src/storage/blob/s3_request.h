// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/base/mutex.h"
#include "storage/blob/s3_backend.h"

namespace falaj::blob {

struct S3Request {
  const char* method = "GET";
  std::string key = {};  // "" is the bucket itself
  std::vector<std::pair<std::string, std::string>> query = {};
  std::string range = {};  // "first-last"
  BytesView body = {};
  std::size_t reply_bytes_max = 8U << 20;
};
struct S3Reply {
  long status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  Bytes body;
};

using HeaderLines = std::vector<std::string>;

// Sends single requests, each signed, and tries again what may pass: no answer, 429 and 5xx. Private to the S3 backend.
// Thread-safe.
class S3Client {
 public:
  S3Client(S3Options options, const sys::Clock& clock, sys::Random& random);
  ~S3Client();
  // Throws unavailable when no attempt got an answer, denied for 401 and 403, exhausted past reply_bytes_max. Any other
  // status is the caller's to read.
  S3Reply send(const S3Request& request);
  const S3Options& options() const { return options_; }

 private:
  class Handle;
  S3Reply send_once(const S3Request& request);
  struct Target {
    std::string scheme, host, path, query;
  };
  Target target_of(const S3Request& request) const;
  HeaderLines headers_of(const S3Request& request, const Target& target) const;
  void* take();  // a CURL handle
  void give_back(void* handle);
  void pause_before(unsigned attempt);

  const S3Options options_;
  const sys::Clock& clock_;
  sys::Random& random_;
  Mutex mu_;
  std::vector<void*> idle_ GUARDED_BY(mu_);  // connections stay open in them
};

}  // namespace falaj::blob
