// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/data/testing.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "governance/resource/kinds/kinds.h"
#include "lifecycle/data/dataset_kind.h"
#include "storage/table/testing.h"

namespace falaj::data {
namespace {

constexpr auto kProjects = R"(
{apiVersion: falaj/v1, kind: Zone, metadata: {name: uae}, spec: {residency: AE, backends: [local]}}
---
{apiVersion: falaj/v1, kind: Zone, metadata: {name: eu}, spec: {residency: EU, backends: [local]}}
---
{apiVersion: falaj/v1, kind: Tenant, metadata: {name: acme}, spec: {zones: [uae, eu]}}
---
{apiVersion: falaj/v1, kind: Project, metadata: {tenant: acme, name: flights}, spec: {zone: uae}}
---
{apiVersion: falaj/v1, kind: Project, metadata: {tenant: acme, name: cargo}, spec: {zone: eu}}
)";

resource::Registry kinds(iam::Directory& directory, const std::vector<resource::Kind>& more) {
  auto all = resource::governance_kinds(directory);
  all.push_back(dataset_kind());
  all.push_back(expectation_kind());
  all.insert(all.end(), more.begin(), more.end());
  return resource::Registry(std::move(all));
}

std::optional<std::string> anything(std::string_view, const iam::Scope&) { return std::nullopt; }

}  // namespace

DataFixture::DataFixture(std::string_view engine, DataLimits with, std::vector<resource::Kind> more)
    : base(engine), limits(with), more_kinds(std::move(more)) {
  start();
}
DataFixture::~DataFixture() = default;

void DataFixture::start() {
  for (const auto& module : {resource::Resources::migrations(), Datasets::migrations()}) base.database->migrate(module);
  registry = std::make_unique<resource::Registry>(kinds(*base.directory, more_kinds));
  resources = std::make_unique<resource::Resources>(*base.database, *registry, base.clock);
  apply(kProjects);
  datasets = std::make_unique<Datasets>(*base.database, *resources, *base.vault, *scratch, base.clock, base.random,
                                        *base.metrics, limits);
}

void DataFixture::restart() {
  datasets.reset();
  resources.reset();
  base.restart();
  start();
}

void DataFixture::apply(const std::string& yaml) {
  resources->apply(act(), resource::read_documents("test.yaml", yaml), anything);
}

void DataFixture::declare(const std::string& name, const std::string& spec) {
  const auto yaml = fmt::format(
      "apiVersion: falaj/v1\nkind: Dataset\nmetadata: {{tenant: acme, project: flights, name: {}}}\nspec: {}\n", name,
      spec);
  apply(yaml);
}

void DataFixture::undeclare(const std::string& name) {
  const resource::Key keys[] = {{"Dataset", "acme", "flights", name}};
  resources->remove(act(), keys, anything);
}

std::string DataFixture::upload(const std::string& name, std::string_view bytes) {
  const auto id = datasets->begin(kFlights, name, act());
  // Cut at an odd place, as real parts do not end where rows end.
  const auto cut = bytes.size() / 3;
  datasets->put_part(kFlights, name, id, 0, blob::source_of(as_bytes(bytes.substr(0, cut))), act());
  datasets->put_part(kFlights, name, id, 1, blob::source_of(as_bytes(bytes.substr(cut))), act());
  return id;
}

Version DataFixture::ingest(const std::string& name, std::string_view bytes, Format format, Mode mode) {
  return datasets->finish(kFlights, name, upload(name, bytes), {format, mode, "test", ""}, act());
}

std::vector<std::string> DataFixture::rows(const Version& version, const std::string& select) {
  const auto room = datasets->room();
  datasets->open(*room, kFlights, version, "v");
  std::vector<std::string> out;
  for (const auto& row : table::rows(*room, select)) out.push_back(fmt::format("{}", fmt::join(row, "|")));
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace falaj::data
