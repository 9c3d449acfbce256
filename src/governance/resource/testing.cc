// SPDX-License-Identifier: Apache-2.0
#include "governance/resource/testing.h"

namespace falaj::resource {
namespace {

std::vector<Kind> with_more(iam::Directory& directory, std::vector<Kind> more) {
  auto kinds = governance_kinds(directory);
  for (auto& kind : more) kinds.push_back(std::move(kind));
  return kinds;
}

}  // namespace

ResourcesFixture::ResourcesFixture(std::string_view engine, std::vector<Kind> more)
    : DirectoryFixture(engine, {Resources::migrations().begin(), Resources::migrations().end()}),
      registry(with_more(*directory, std::move(more))),
      resources(*database, registry, clock) {}

std::vector<Change> ResourcesFixture::apply(std::string_view yaml, const std::string& file) {
  return resources.apply(act(), read_documents(file, yaml), anything);
}

std::vector<Change> ResourcesFixture::remove(const Key& key) { return resources.remove(act(), {&key, 1}, anything); }

}  // namespace falaj::resource
