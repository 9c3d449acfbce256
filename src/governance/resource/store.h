// SPDX-License-Identifier: Apache-2.0
#pragma once

// The rows of resources, their revisions and what refers to what. Private to this directory.

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "governance/resource/kind.h"
#include "governance/resource/resource.h"
#include "storage/sql/database.h"

namespace falaj::resource::store {

std::span<const sql::Migration> migrations();

std::optional<Stored> find(sql::Reader& reader, const Key& key);
// Those of a kind within a tenant and project ("" = all), after `after` in the order of (tenant, project, name).
std::vector<Stored> page(sql::Reader& reader, std::string_view kind, std::string_view tenant, std::string_view project,
                         const Key& after, std::int64_t most);
// The resources that need `key`.
std::vector<Key> dependents(sql::Reader& reader, const Key& key);
std::vector<Revision> history(sql::Reader& reader, const Key& key);
std::optional<Revision> revision(sql::Reader& reader, const Key& key, std::int64_t revision);

// Returns the revision it became.
std::int64_t put(sql::Writer& writer, const Resource& resource, std::span<const Reference> references,
                 std::string_view actor, std::int64_t at_us);
std::int64_t remove(sql::Writer& writer, const Key& key, std::string_view actor, std::int64_t at_us);

}  // namespace falaj::resource::store
