// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/merge_models.h"

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/track/logged_models_tables.h"
#include "lifecycle/track/names.h"
#include "lifecycle/track/tables.h"

namespace falaj::track {

namespace {

struct MissingModel {
  std::optional<std::int64_t> id;  // of the row that is here
  std::vector<KeyValue> params, tags;
  bool status = false, updated = false;
  bool any() const { return !id || !params.empty() || !tags.empty() || status || updated; }
};

const std::string* find(const std::vector<KeyValue>& in, const std::string& key) {
  for (const auto& pair : in)
    if (pair.key == key) return &pair.value;
  return nullptr;
}

MissingModel missing_of(sql::Reader& reader, const Where& where, const ExportedLoggedModel& wanted) {
  MissingModel out;
  LoggedModel here;
  if (const auto row = find_logged_model_row(reader, where, wanted.model_id)) {
    out.id = row->id;
    here = load_logged_model(reader, *row);
    // What is not finished there says nothing about what is finished here.
    out.status = wanted.status != name(ModelStatus::pending) && wanted.status != name(here.status);
    out.updated = here.updated_ms < wanted.updated_ms;
  }
  for (const auto& [key, value] : wanted.params) {
    const auto* old = find(here.params, key);
    if (!old)
      out.params.push_back({key, value});
    else if (*old != value)
      throw Error(Code::conflict, fmt::format("param '{}' of logged model {} is '{}' here and '{}' in the export", key,
                                              wanted.model_id, shortened(*old, 100), shortened(value, 100)));
  }
  for (const auto& [key, value] : wanted.tags)
    if (const auto* old = find(here.tags, key); !old || *old != value) out.tags.push_back({key, value});
  return out;
}

}  // namespace

bool lacks_model(sql::Reader& reader, const Where& where, const ExportedLoggedModel& model) {
  return missing_of(reader, where, model).any();
}

void merge_model(sql::Writer& w, const Where& where, std::int64_t experiment, const ExportedLoggedModel& model) {
  auto missing = missing_of(w, where, model);
  if (!missing.any()) return;
  if (!missing.id) {
    missing.id = next_number(w, "model");
    w.execute(
        "INSERT INTO track_model(id, experiment, model_id, name, type, source_run, status, stage, created_ms,"
        " updated_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        {*missing.id, experiment, model.model_id, model.name, model.type, model.source_run_id, model.status,
         model.stage, model.created_ms, model.updated_ms});
  }
  for (const auto& param : missing.params)
    w.execute("INSERT INTO track_model_param(model, key, value) VALUES (?, ?, ?)",
              {*missing.id, param.key, param.value});
  for (const auto& tag : missing.tags)
    w.execute(
        "INSERT INTO track_model_tag(model, key, value) VALUES (?, ?, ?)"
        " ON CONFLICT (model, key) DO UPDATE SET value = excluded.value",
        {*missing.id, tag.key, tag.value});
  if (missing.status) w.execute("UPDATE track_model SET status = ? WHERE id = ?", {model.status, *missing.id});
  if (missing.updated) w.execute("UPDATE track_model SET updated_ms = ? WHERE id = ?", {model.updated_ms, *missing.id});
  w.record({scope_of(where, "logged-model", model.model_id), {}, crypto::sha256(model.name)});
}

}  // namespace falaj::track
