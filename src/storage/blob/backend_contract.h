// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>

#include "storage/blob/backend.h"
#include "storage/blob/testing.h"

namespace falaj::blob {

// What every Backend must do; the tests are in backend_contract_test.cc, written once. An implementation adds one
// INSTANTIATE_TEST_SUITE_P.
struct BackendUnderTest {
  std::shared_ptr<void> world;  // what the backend needs: a clock, a directory, a server
  std::unique_ptr<Backend> backend;
};
struct MakeBackend {
  std::string name;
  std::function<BackendUnderTest()> make;  // empty each time; no backend: cannot run here, and said so
};

inline void PrintTo(const MakeBackend& make, std::ostream* out) { *out << make.name; }

class BackendContract : public testing::TestWithParam<MakeBackend> {
 protected:
  void SetUp() override {
    under_test_ = GetParam().make();
    if (!under_test_.backend) GTEST_SKIP() << GetParam().name << ": the real server is not installed on this machine";
  }
  Backend& backend() { return *under_test_.backend; }
  void put(const std::string& name, std::string_view text, Existing existing = Existing::keep) {
    backend().put(name, as_bytes(text), Durable::now, existing);
  }
  std::string text(const std::string& name, std::uint64_t offset = 0, std::uint64_t length = Backend::kToTheEnd) {
    return std::string(as_text(backend().get(name, offset, length)));
  }
  std::vector<std::string> names(const std::string& prefix, const std::string& after = "", std::size_t limit = 1000) {
    std::vector<std::string> out;
    for (const auto& info : backend().list(prefix, after, limit)) out.push_back(info.name);
    return out;
  }

 private:
  BackendUnderTest under_test_;
};

}  // namespace falaj::blob
