// SPDX-License-Identifier: Apache-2.0
#pragma once

// A falaj of its own with a falaj-serve, for benchmarks and drills of the whole program.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/base/json.h"
#include "foundation/client/api_client.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/testing.h"
#include "tests/program.h"

namespace falaj::tests {

class ServingWorld {
 public:
  explicit ServingWorld(const std::string& binary, std::vector<std::string> more_arguments = {});

  // Another version of a model, which is registered when it is not there.
  void register_version(const std::string& model, const Bytes& bytes);
  // Endpoints as YAML in one line: the name, and what stands in `spec`.
  struct Declared {
    std::string name, spec;
  };
  void apply(const std::vector<Declared>& endpoints);
  void wait_ready(const std::string& endpoint);  // throws deadline
  json::value view(const std::string& endpoint);
  void until(const std::string& what, const std::function<bool()>& holds);

  client::ApiClient& api() { return api_; }
  const client::Query& project() const { return project_; }
  client::Target serving(const std::string& endpoint, const std::string& token);  // where it answers
  std::uint16_t port_of(const std::string& endpoint);
  const std::string& token() const { return token_; }
  // POST to falaj-serve, as bytes.
  std::string request(std::string_view path, std::string_view body, std::string_view more_headers = {}) const;

  int supervisor() const;  // pid of falaj-serve, and of the process that runs models
  int worker() const;

 private:
  const client::Query project_{{"scope", "/t/default/p/default"}};
  sys::RealClock clock_;
  sys::TempDir directory_;
  Program program_;
  const std::string token_;
  client::ApiClient api_;
};

}  // namespace falaj::tests
