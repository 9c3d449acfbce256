// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/registry.h"

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/models/tables.h"
#include "lifecycle/track/names.h"
#include "lifecycle/track/tables.h"

namespace falaj::models {

namespace {

json::object as_map(const std::vector<KeyValue>& tags) {
  json::object out;
  for (const auto& tag : tags) out[tag.key] = tag.value;
  return out;
}

void put_tag(sql::Writer& w, std::int64_t row, const KeyValue& tag) {
  w.execute(
      "INSERT INTO models_model_tag(model, key, value) VALUES (?, ?, ?)"
      " ON CONFLICT (model, key) DO UPDATE SET value = excluded.value",
      {row, tag.key, tag.value});
}

}  // namespace

Registry::Registry(sql::Database& database, const iam::Directory& directory, vault::Vault& vault, Webhooks& webhooks,
                   const crypto::Signer& signer, const sys::Clock& clock, Metrics& metrics)
    : database_(database),
      directory_(directory),
      vault_(vault),
      webhooks_(webhooks),
      signer_(signer),
      clock_(clock),
      began_ms_(clock.wall().count() / 1000),
      versions_created_(metrics.counter("falaj_models_versions_total", "Versions of registered models created.")) {}

void Registry::check_project(const Where& where) const {
  if (!directory_.snapshot()->find<iam::Project>(iam::owned_name(where.tenant.str(), where.project.str())))
    throw Error(Code::not_found, fmt::format("no such project: {}", where.scope().str()));
}

Model Registry::create_model(const Where& where, const std::string& name, const std::vector<KeyValue>& tags,
                             const std::string& description, const sql::Act& act) {
  check_model_name(name);
  check_description(description);
  if (tags.size() > kTagsMax)
    throw Error(Code::invalid, fmt::format("tags: at most {}, got {}", kTagsMax, tags.size()));
  for (const auto& tag : tags) check_tag(tag);
  check_project(where);
  const auto now = now_ms();
  return database_.write(act, [&](sql::Writer& w) {
    if (find_model(w, where, name))
      throw Error(Code::exists, fmt::format("a registered model of this name exists: '{}'", name));
    const auto row = track::next_number(w, "registered model");
    w.execute(
        "INSERT INTO models_model(id, tenant, project, name, description, created_by, created_ms, updated_ms, versions,"
        " needs_approval) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0)",
        {row, where.tenant.str(), where.project.str(), name, description, act.actor, now, now});
    for (const auto& tag : tags) put_tag(w, row, tag);
    w.record({resource_of(where, name), {}, crypto::sha256(description)});
    webhooks_.emit(w, where, "registered_model.created",
                   {{"name", name}, {"tags", as_map(tags)}, {"description", description}});
    return load_model(w, need_model(w, where, name).model);
  });
}

Model Registry::model(const Where& where, const std::string& name) {
  return database_.read([&](sql::Reader& r) { return load_model(r, need_model(r, where, name).model); });
}

Model Registry::describe_model(const Where& where, const std::string& name, const std::string& description,
                               const sql::Act& act) {
  check_description(description);
  return database_.write(act, [&](sql::Writer& w) {
    const auto row = need_model(w, where, name);
    w.execute("UPDATE models_model SET description = ?, updated_ms = ? WHERE id = ?",
              {description, now_ms(), row.model.row});
    w.record({resource_of(where, name), crypto::sha256(row.model.description), crypto::sha256(description)});
    return load_model(w, need_model(w, where, name).model);
  });
}

Model Registry::rename_model(const Where& where, const std::string& name, const std::string& new_name,
                             const sql::Act& act) {
  check_model_name(new_name);
  return database_.write(act, [&](sql::Writer& w) {
    const auto row = need_model(w, where, name);
    if (const auto taken = find_model(w, where, new_name); taken && taken->model.row != row.model.row)
      throw Error(Code::exists, fmt::format("a registered model of this name exists: '{}'", new_name));
    w.execute("UPDATE models_model SET name = ?, updated_ms = ? WHERE id = ?", {new_name, now_ms(), row.model.row});
    w.record({resource_of(where, name), crypto::sha256(name), crypto::sha256(new_name)});
    return load_model(w, need_model(w, where, new_name).model);
  });
}

void Registry::delete_model(const Where& where, const std::string& name, const sql::Act& act) {
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_model(w, where, name);
    for (const auto& version : versions_of(w, where, &row.model)) drop_version(w, where, version, act);
    w.execute("UPDATE models_model SET deleted_us = ?, updated_ms = ? WHERE id = ?",
              {clock_.wall().count(), now_ms(), row.model.row});
    w.record({resource_of(where, name), crypto::sha256(row.model.description), {}});
  });
}

void Registry::set_model_tag(const Where& where, const std::string& name, const KeyValue& tag, const sql::Act& act) {
  check_tag(tag);
  database_.write(act, [&](sql::Writer& w) {
    put_tag(w, need_model(w, where, name).model.row, tag);
    w.record({resource_of(where, name), {}, crypto::sha256(tag.key + "\n" + tag.value)});
  });
}

void Registry::delete_model_tag(const Where& where, const std::string& name, const std::string& key,
                                const sql::Act& act) {
  database_.write(act, [&](sql::Writer& w) {
    // As clients expect: a tag that is not there is no error.
    w.execute("DELETE FROM models_model_tag WHERE model = ? AND key = ?", {need_model(w, where, name).model.row, key});
    w.record({resource_of(where, name), crypto::sha256(key), {}});
  });
}

std::vector<Version> Registry::latest_versions(const Where& where, const std::string& name,
                                               const std::vector<Stage>& stages) {
  return database_.read([&](sql::Reader& r) { return latest_of(r, need_model(r, where, name).model, stages); });
}

void Registry::set_alias(const Where& where, const std::string& name, const std::string& alias, std::int64_t number,
                         const sql::Act& act) {
  check_alias(alias);
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_model(w, where, name);
    need_version(w, row.model, number);
    refuse_unapproved(row.model);
    const auto before = alias_target(w, row.model.row, alias);
    if (before == number) return;  // nothing moves: no history, nobody to tell
    change_alias(w, row.model.row, alias, number, {act.actor, clock_.wall().count(), "", {}});
    w.record({resource_of(where, name), digest_of_alias(alias, before), digest_of_alias(alias, number)});
    webhooks_.emit(w, where, "model_version_alias.created",
                   {{"name", name}, {"alias", alias}, {"version", std::to_string(number)}});
  });
}

void Registry::delete_alias(const Where& where, const std::string& name, const std::string& alias,
                            const sql::Act& act) {
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_model(w, where, name);
    const auto before = alias_target(w, row.model.row, alias);
    if (!before) return;
    refuse_unapproved(row.model);
    change_alias(w, row.model.row, alias, std::nullopt, {act.actor, clock_.wall().count(), "", {}});
    w.record({resource_of(where, name), digest_of_alias(alias, before), {}});
    webhooks_.emit(w, where, "model_version_alias.deleted", {{"name", name}, {"alias", alias}});
  });
}

Version Registry::by_alias(const Where& where, const std::string& name, const std::string& alias) {
  return database_.read([&](sql::Reader& r) {
    const auto row = need_model(r, where, name);
    if (alias == "latest") {
      auto newest = newest_version(r, row.model);
      if (!newest) throw Error(Code::invalid, fmt::format("model '{}' has no version", name));
      return load_version(r, *newest);
    }
    const auto number = alias_target(r, row.model.row, alias);
    if (!number)
      throw Error(Code::invalid, fmt::format("model '{}' has no alias '{}'", name, track::shortened(alias, kAliasMax)));
    return load_version(r, need_version(r, row.model, *number));
  });
}

}  // namespace falaj::models
