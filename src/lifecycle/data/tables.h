// SPDX-License-Identifier: Apache-2.0
// Private to lifecycle/data: rows and what they mean.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lifecycle/data/types.h"
#include "storage/sql/database.h"

namespace falaj::data {

std::span<const sql::Migration> data_migrations();
std::int64_t next_number(sql::Writer& w, std::string_view what);  // "dataset", "file", "check"

void add_dataset(sql::Writer& w, const std::string& tenant, const std::string& project, const std::string& name);
// conflict when it has versions.
void remove_empty_dataset(sql::Writer& w, const std::string& tenant, const std::string& project,
                          const std::string& name);
std::optional<std::int64_t> dataset_row(sql::Reader& r, const Where& where, const std::string& name);
std::int64_t need_dataset(sql::Reader& r, const Where& where, const std::string& name);  // not_found

std::optional<Version> find_version(sql::Reader& r, std::int64_t dataset, const std::string& name, std::int64_t number);
std::optional<Version> newest_version(sql::Reader& r, std::int64_t dataset, const std::string& name);
std::vector<Version> list_versions(sql::Reader& r, std::int64_t dataset, const std::string& name, std::int64_t below,
                                   std::int64_t limit);
std::vector<Input> version_inputs(sql::Reader& r, std::int64_t dataset, std::int64_t number);
std::vector<File> version_files(sql::Reader& r, std::int64_t dataset, std::int64_t number);

void insert_file(sql::Writer& w, std::int64_t dataset, File& file);  // gives it its id
// Files that are new (id 0) get their id.
void insert_version(sql::Writer& w, Version& version, std::vector<File>& files);
// The vault's names of files that no other version has.
std::vector<std::string> delete_version(sql::Writer& w, std::int64_t dataset, std::int64_t number);

void need_whole(sql::Reader& r, const Input& input);  // conflict when it is removed or erased

// For the audit log: "/t/acme/p/flights/dataset/delays@3".
std::string resource_name(const Where& where, const std::string& dataset, std::int64_t number);

Digest version_id(const table::Schema& schema, const std::vector<File>& files);
std::string schema_json(const table::Schema& schema);
table::Schema parse_schema(std::string_view json);

}  // namespace falaj::data
