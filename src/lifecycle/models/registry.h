// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/crypto/sign.h"
#include "foundation/sys/clock.h"
#include "governance/iam/directory.h"
#include "governance/vault/vault.h"
#include "lifecycle/models/manifest.h"
#include "lifecycle/models/types.h"
#include "lifecycle/models/webhooks.h"
#include "storage/sql/database.h"

namespace falaj::models {

struct ModelRow;

// Registered models, their versions, and the names that point at them. Thread-safe. Everything is found within one
// project: what another project has is not_found. A write is one audited transaction with its webhook deliveries in it,
// and when it throws nothing changed.
//
// A version never changes: its files are listed with their content when it is made, in a manifest that is signed, and
// pinned, so that they stay what they are whatever happens to the run that logged them.
class Registry {
 public:
  static std::span<const sql::Migration> migrations();  // of this whole directory
  // Requires: the migrations of Track, LoggedModels, Vault and this are applied. All of them outlive this.
  Registry(sql::Database& database, const iam::Directory& directory, vault::Vault& vault, Webhooks& webhooks,
           const crypto::Signer& signer, const sys::Clock& clock, Metrics& metrics);

  // ---- models
  Model create_model(const Where& where, const std::string& name, const std::vector<KeyValue>& tags,
                     const std::string& description, const sql::Act& act);  // exists
  Model model(const Where& where, const std::string& name);
  Model describe_model(const Where& where, const std::string& name, const std::string& description,
                       const sql::Act& act);
  Model rename_model(const Where& where, const std::string& name, const std::string& new_name, const sql::Act& act);
  void delete_model(const Where& where, const std::string& name, const sql::Act& act);  // and all its versions
  void set_model_tag(const Where& where, const std::string& name, const KeyValue& tag, const sql::Act& act);
  void delete_model_tag(const Where& where, const std::string& name, const std::string& key, const sql::Act& act);
  Found<Model> search_models(const Where& where, const Search& search);
  // The newest version of each of these stages; of all four when none is named.
  std::vector<Version> latest_versions(const Where& where, const std::string& name, const std::vector<Stage>& stages);

  // ---- versions
  // `source` is where artifacts of this project are: mlflow-artifacts:/<experiment>/<run>/artifacts/<path>,
  // mlflow-artifacts:/<experiment>/models/<model id>/artifacts, runs:/<run>/<path>, models:/m-<id> or, to copy a
  // version, models:/<name>/<version>. Everything else is invalid. (The versions of prompts have no files and may have
  // any source.)
  Version create_version(const Where& where, const NewVersion& version, const sql::Act& act);
  Version version(const Where& where, const std::string& name, std::int64_t number);
  Version describe_version(const Where& where, const std::string& name, std::int64_t number,
                           const std::string& description, const sql::Act& act);
  // Takes the aliases that point at it along; that is part of their history.
  void delete_version(const Where& where, const std::string& name, std::int64_t number, const sql::Act& act);
  Version set_stage(const Where& where, const std::string& name, std::int64_t number, Stage stage,
                    bool archive_existing, const sql::Act& act);
  void set_version_tag(const Where& where, const std::string& name, std::int64_t number, const KeyValue& tag,
                       const sql::Act& act);
  void delete_version_tag(const Where& where, const std::string& name, std::int64_t number, const std::string& key,
                          const sql::Act& act);
  Found<Version> search_versions(const Where& where, const Search& search);
  std::vector<Registration> registrations(const Where& where, const std::vector<std::string>& model_ids);

  // ---- files of a version, by its model's row (Version::model_row, parse_version_path)
  SignedManifest manifest(const Where& where, std::int64_t model_row, std::int64_t number);
  // In order of their paths, which are the entries' names; `vault.open` reads them. Those that begin with `prefix`.
  std::vector<vault::Entry> files(const Where& where, std::int64_t model_row, std::int64_t number,
                                  const std::string& prefix);
  vault::Entry file(const Where& where, std::int64_t model_row, std::int64_t number, const std::string& path);
  crypto::PublicKey public_key() const { return signer_.public_key(); }  // of the manifests
  const crypto::Signer& signer() const { return signer_; }

  // ---- aliases; "latest" is the newest version and cannot be set
  void set_alias(const Where& where, const std::string& name, const std::string& alias, std::int64_t number,
                 const sql::Act& act);
  void delete_alias(const Where& where, const std::string& name, const std::string& alias, const sql::Act& act);
  Version by_alias(const Where& where, const std::string& name, const std::string& alias);  // invalid when unknown

  // Why a run must not be removed for good (removal.h). Nothing when it may.
  std::optional<std::string> descends(const Where& where, const std::string& run_id);
  static std::optional<std::string> descends(sql::Reader& reader, const Where& where, const std::string& run_id);

 private:
  struct Plan;
  Plan plan_version(const Where& where, const NewVersion& wanted);
  Version write_version(sql::Writer& w, const Where& where, const NewVersion& wanted, const Plan& plan,
                        const sql::Act& act);
  Digest write_files(sql::Writer& w, const Where& where, const Version& version, const Plan& plan,
                     const std::string& pin);
  std::optional<Version> replayed(sql::Writer& w, const ModelRow& model, const NewVersion& wanted, const Plan& plan,
                                  const sql::Act& act) const;
  void drop_version(sql::Writer& w, const Where& where, const Version& version, const sql::Act& act);
  void check_project(const Where& where) const;
  std::int64_t now_ms() const { return clock_.wall().count() / 1000; }
  std::string read_small(const Where& where, const vault::Entry& entry);

  sql::Database& database_;
  const iam::Directory& directory_;
  vault::Vault& vault_;
  Webhooks& webhooks_;
  const crypto::Signer& signer_;
  const sys::Clock& clock_;
  const std::int64_t began_ms_;
  Counter& versions_created_;
};

}  // namespace falaj::models
