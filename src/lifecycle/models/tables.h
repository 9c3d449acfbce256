// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tables of the registry and how rows become values. Private to this directory.

#include <optional>
#include <string>
#include <vector>

#include "governance/vault/vault.h"
#include "lifecycle/models/types.h"
#include "storage/sql/database.h"

namespace falaj::models {

struct ModelRow {
  std::int64_t versions = 0;  // made so far, deleted ones counted
  Model model;                // without tags, aliases and versions
};

std::optional<ModelRow> find_model(sql::Reader& reader, const Where& where, const std::string& name);
ModelRow need_model(sql::Reader& reader, const Where& where, const std::string& name);  // throws not_found
ModelRow need_model(sql::Reader& reader, const Where& where, std::int64_t row);         // throws not_found
std::vector<Model> models_of(sql::Reader& reader, const Where& where);                  // likewise bare
Model load_model(sql::Reader& reader, Model model);                                     // with everything
Version need_version(sql::Reader& reader, const Model& model, std::int64_t number);     // bare; not_found
Version load_version(sql::Reader& reader, Version version);                             // with everything
void load_versions(sql::Reader& reader, const Where& where, const Model* model, std::vector<Version>& versions);
std::optional<Version> newest_version(sql::Reader& reader, const Model& model);                 // bare
std::vector<Version> versions_of(sql::Reader& reader, const Where& where, const Model* model);  // bare; null: all
std::vector<Version> latest_of(sql::Reader& reader, const Model& model, const std::vector<Stage>& stages);

std::optional<std::int64_t> alias_target(sql::Reader& reader, std::int64_t model_row, const std::string& alias);

// Who changes an alias, when and why.
struct AliasCause {
  std::string by;
  std::int64_t at_us = 0;
  std::string why;
  std::optional<std::int64_t> promotion;
};
// Every change of an alias goes through here, so that its history is whole. `version`: nothing takes the alias away.
void change_alias(sql::Writer& writer, std::int64_t model_row, const std::string& alias,
                  std::optional<std::int64_t> version, const AliasCause& cause);

// Throws denied for a model whose aliases and stages only promotions move.
void refuse_unapproved(const Model& model);
// What the audit log has of an alias.
std::optional<Digest> digest_of_alias(const std::string& alias, std::optional<std::int64_t> version);

std::vector<vault::Entry> files_of(sql::Reader& reader, std::int64_t model_row, std::int64_t number);

// For the audit log.
std::string resource_of(const Where& where, const std::string& model);
std::string resource_of(const Where& where, const std::string& model, std::int64_t version);

// Throw invalid.
void check_model_name(std::string_view name);
void check_alias(std::string_view alias);
void check_tag(const KeyValue& tag);
void check_description(std::string_view description);

}  // namespace falaj::models
