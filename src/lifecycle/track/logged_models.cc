// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/logged_models.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/track/logged_models_tables.h"
#include "lifecycle/track/names.h"
#include "lifecycle/track/tables.h"

namespace falaj::track {

namespace {

constexpr std::string_view kStatusPrefix = "LOGGED_MODEL_";
constexpr std::string_view kStatusNames[] = {"LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY",
                                             "LOGGED_MODEL_UPLOAD_FAILED"};

void check_params(const std::vector<KeyValue>& params) {
  if (params.size() > kModelParamsMax)
    throw Error(Code::invalid, fmt::format("params: at most {} in one call, got {}", kModelParamsMax, params.size()));
  for (const auto& param : params) {
    check_key("params", param.key);
    check_length(fmt::format("value of param '{}'", param.key), param.value, kParamBytesMax);
  }
}

void check_tags(const std::vector<KeyValue>& tags) {
  if (tags.size() > kModelTagsMax)
    throw Error(Code::invalid, fmt::format("tags: at most {} in one call, got {}", kModelTagsMax, tags.size()));
  for (const auto& tag : tags) {
    check_key("tags", tag.key);
    check_length(fmt::format("value of tag '{}'", tag.key), tag.value, kTagBytesMax);
  }
}

void put_params(sql::Writer& w, const LoggedModelRow& row, const std::vector<KeyValue>& params) {
  for (const auto& param : params) {
    if (w.execute("INSERT INTO track_model_param(model, key, value) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                  {row.id, param.key, param.value}) > 0)
      continue;
    const auto old = *w.first("SELECT value FROM track_model_param WHERE model = ? AND key = ?", {row.id, param.key},
                              [](const sql::Row& r) { return std::string(r.text(0)); });
    if (old != param.value)
      throw Error(Code::invalid,
                  fmt::format("params: changing param values is not allowed: '{}' of model {} was "
                              "logged with '{}', now '{}'",
                              param.key, row.model.model_id, shortened(old, 100), shortened(param.value, 100)));
  }
}

void put_tags(sql::Writer& w, std::int64_t id, const std::vector<KeyValue>& tags) {
  for (const auto& tag : tags)
    w.execute(
        "INSERT INTO track_model_tag(model, key, value) VALUES (?, ?, ?)"
        " ON CONFLICT (model, key) DO UPDATE SET value = excluded.value",
        {id, tag.key, tag.value});
}

void touch_model(sql::Writer& w, std::int64_t id, std::int64_t now_ms) {
  w.execute("UPDATE track_model SET updated_ms = ? WHERE id = ?", {now_ms, id});
}

Digest digest_of(const std::vector<KeyValue>& values) {
  ByteWriter bytes;
  for (const auto& entry : values) {
    bytes.text(entry.key);
    bytes.text(entry.value);
  }
  return crypto::sha256(BytesView(bytes.bytes()));
}

}  // namespace

void check_model_name(const std::string& name) {
  check_length("name", name, kModelNameMax);
  if (name.find_first_of("/:.%\"'") != std::string::npos)
    throw Error(Code::invalid,
                fmt::format("name: a logged model's name has none of / : . % \" ': '{}'", shortened(name, 80)));
}

std::string_view name(ModelStatus status) { return kStatusNames[static_cast<std::size_t>(status) - 1]; }

std::optional<ModelStatus> parse_model_status(std::string_view text) {
  for (int i = 1; i <= 3; ++i) {
    const auto full = name(static_cast<ModelStatus>(i));
    if (text == full || text == full.substr(kStatusPrefix.size())) return static_cast<ModelStatus>(i);
  }
  return std::nullopt;
}

std::string artifact_uri(const LoggedModel& model) {
  return fmt::format("mlflow-artifacts:/{}/models/{}/artifacts", model.experiment, model.model_id);
}

LoggedModels::LoggedModels(sql::Database& database, const sys::Clock& clock, sys::Random& random, Metrics& metrics)
    : database_(database),
      clock_(clock),
      random_(random),
      created_(metrics.counter("falaj_track_logged_models_total", "Logged models created.")) {}

LoggedModel LoggedModels::create(const Where& where, const NewLoggedModel& wanted, const sql::Act& act) {
  check_model_name(wanted.name);
  check_length("model_type", wanted.type, kModelNameMax);
  check_params(wanted.params);
  check_tags(wanted.tags);
  const auto model_id = "m-" + random_run_id(random_);
  const auto model_name = wanted.name.empty() ? random_name(random_) : wanted.name;
  const auto now = clock_.wall().count() / 1000;
  auto made = database_.write(act, [&](sql::Writer& w) {
    const auto experiment = need_experiment(w, where, wanted.experiment);
    if (experiment.experiment.stage != Stage::active)
      throw Error(Code::invalid, fmt::format("the experiment {} is deleted: restore it first", wanted.experiment));
    if (!wanted.source_run_id.empty()) need_run(w, where, wanted.source_run_id);
    w.execute(
        "INSERT INTO track_model(id, experiment, model_id, name, type, source_run, status, stage, created_ms,"
        " updated_ms) VALUES (?, ?, ?, ?, ?, ?, ?, 'active', ?, ?)",
        {next_number(w, "model"), experiment.id, model_id, model_name, wanted.type, wanted.source_run_id,
         name(ModelStatus::pending), now, now});
    const auto row = need_logged_model(w, where, model_id);
    put_params(w, row, wanted.params);
    put_tags(w, row.id, wanted.tags);
    w.record({scope_of(where, "logged-model", model_id), {}, crypto::sha256(model_name)});
    return load_logged_model(w, row);
  });
  created_.Increment();
  return made;
}

LoggedModel LoggedModels::get(const Where& where, const std::string& model_id, bool deleted_too) {
  return database_.read(
      [&](sql::Reader& r) { return load_logged_model(r, need_logged_model(r, where, model_id, deleted_too)); });
}

LoggedModel LoggedModels::set_status(const Where& where, const std::string& model_id, ModelStatus status,
                                     const sql::Act& act) {
  return database_.write(act, [&](sql::Writer& w) {
    auto row = need_logged_model(w, where, model_id);
    w.execute("UPDATE track_model SET status = ? WHERE id = ?", {name(status), row.id});
    touch_model(w, row.id, clock_.wall().count() / 1000);
    w.record({scope_of(where, "logged-model", model_id), crypto::sha256(name(row.model.status)),
              crypto::sha256(name(status))});
    return load_logged_model(w, need_logged_model(w, where, model_id));
  });
}

void LoggedModels::remove(const Where& where, const std::string& model_id, const sql::Act& act) {
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_logged_model(w, where, model_id);
    w.execute("UPDATE track_model SET stage = 'deleted' WHERE id = ?", {row.id});
    touch_model(w, row.id, clock_.wall().count() / 1000);
    w.record({scope_of(where, "logged-model", model_id), crypto::sha256(row.model.name), {}});
  });
}

void LoggedModels::set_tags(const Where& where, const std::string& model_id, const std::vector<KeyValue>& tags,
                            const sql::Act& act) {
  check_tags(tags);
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_logged_model(w, where, model_id);
    put_tags(w, row.id, tags);
    touch_model(w, row.id, clock_.wall().count() / 1000);
    w.record({scope_of(where, "logged-model", model_id), {}, digest_of(tags)});
  });
}

void LoggedModels::delete_tag(const Where& where, const std::string& model_id, const std::string& key,
                              const sql::Act& act) {
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_logged_model(w, where, model_id);
    if (w.execute("DELETE FROM track_model_tag WHERE model = ? AND key = ?", {row.id, key}) == 0)
      throw Error(Code::not_found, fmt::format("no tag '{}' on model {}", shortened(key, 80), model_id));
    touch_model(w, row.id, clock_.wall().count() / 1000);
    w.record({scope_of(where, "logged-model", model_id), crypto::sha256(key), {}});
  });
}

void LoggedModels::log_params(const Where& where, const std::string& model_id, const std::vector<KeyValue>& params,
                              const sql::Act& act) {
  check_params(params);
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_logged_model(w, where, model_id);
    put_params(w, row, params);
    touch_model(w, row.id, clock_.wall().count() / 1000);
    w.record({scope_of(where, "logged-model", model_id), {}, digest_of(params)});
  });
}

}  // namespace falaj::track
