// SPDX-License-Identifier: Apache-2.0
#pragma once

// Datasets on a vault and an empty audited database, for the tests of them and of what stands on them.

#include <memory>
#include <string>
#include <string_view>

#include "foundation/sys/testing.h"
#include "governance/resource/resources.h"
#include "governance/vault/testing.h"
#include "lifecycle/data/datasets.h"

namespace falaj::data {

class DataFixture {
 public:
  // `more`: kinds of what stands on datasets.
  explicit DataFixture(std::string_view engine = "sqlite", DataLimits limits = {},
                       std::vector<resource::Kind> more = {});
  ~DataFixture();
  void restart();  // as after a kill of the program

  void apply(const std::string& yaml);
  // Declares it in kFlights; `spec` is JSON.
  void declare(const std::string& name, const std::string& spec);
  void undeclare(const std::string& name);
  std::string upload(const std::string& name, std::string_view bytes);
  Version ingest(const std::string& name, std::string_view bytes, Format format = Format::csv,
                 Mode mode = Mode::append);
  // Rows of a version, sorted, their values with '|' between.
  std::vector<std::string> rows(const Version& version, const std::string& select = "SELECT * FROM v");

  static sql::Act act() { return vault::VaultFixture::act(); }
  static inline const Where kFlights = vault::VaultFixture::kFlights, kCargo = vault::VaultFixture::kCargo;

  vault::VaultFixture base;
  sys::TempDir dir;
  std::unique_ptr<sys::Files> scratch = sys::open_files(dir.path());
  const DataLimits limits;
  const std::vector<resource::Kind> more_kinds;
  std::unique_ptr<resource::Registry> registry;
  std::unique_ptr<resource::Resources> resources;
  std::unique_ptr<Datasets> datasets;

 private:
  void start();
};

}  // namespace falaj::data
