// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "governance/iam/testing.h"
#include "governance/resource/kinds/kinds.h"
#include "governance/resource/resources.h"

namespace falaj::resource {

// Resources of the governance kinds and of `more`, on an empty database.
class ResourcesFixture : public iam::DirectoryFixture {
 public:
  explicit ResourcesFixture(std::string_view engine = "sqlite", std::vector<Kind> more = {});

  std::vector<Change> apply(std::string_view yaml, const std::string& file = "test.yaml");
  std::vector<Change> remove(const Key& key);

  // Lets everybody do everything.
  static std::optional<std::string> anything(std::string_view, const iam::Scope&) { return std::nullopt; }
  static sql::Act act() { return {"user/test", "", "", ""}; }

  Registry registry;
  Resources resources;
};

}  // namespace falaj::resource
