// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "storage/blob/backend.h"

namespace falaj::blob {

struct S3Options {
  std::string endpoint;  // "https://host:port"
  std::string region = "us-east-1";
  std::string bucket;
  std::string prefix;  // of every key: "" or like "falaj/uae/"
  std::string access_key, secret_key, session_token;
  bool path_style = true;                                // endpoint/bucket/key; else bucket.endpoint/key
  std::string ca_file;                                   // "" trusts the system's
  unsigned attempts = 5;                                 // of a request that may be tried again
  sys::Micros backoff = std::chrono::milliseconds(100);  // before the second; doubled each time, half of it random
  sys::Micros timeout = std::chrono::seconds(60);        // of one request
  std::size_t multipart_bytes = 64U << 20;               // larger ones go in parts
  std::size_t part_bytes = 16U << 20;                    // S3 wants at least 5 MiB
  std::function<void(sys::Micros)> pause;                // waits before a retry; none: sleeps
};

// A bucket of any S3-compatible server, with requests signed by AWS Signature Version 4. Every put is durable when it
// returns. The endpoint is the operator's choice, so its address is not checked. Thread-safe; connections are reused.
// Errors besides the usual: denied (credentials), invalid (options).
class S3Backend final : public Backend {
 public:
  S3Backend(S3Options options, const sys::Clock& clock, sys::Random& random);  // the wall clock dates requests
  ~S3Backend() override;

  void make_bucket();  // also when it is there
  void put(const std::string& name, BytesView bytes, Durable durable, Existing existing) override;
  Bytes get(const std::string& name, std::uint64_t offset, std::uint64_t length) override;
  std::optional<BlobInfo> stat(const std::string& name) override;
  void remove(const std::string& name) override;
  std::vector<BlobInfo> list(const std::string& prefix, const std::string& after, std::size_t limit) override;
  void sync() override {}

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace falaj::blob
