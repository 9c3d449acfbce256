// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/base/yaml.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/models/registry.h"
#include "lifecycle/models/source.h"
#include "lifecycle/models/tables.h"
#include "lifecycle/track/artifacts.h"
#include "lifecycle/track/logged_models.h"
#include "lifecycle/track/names.h"
#include "lifecycle/track/tables.h"

namespace falaj::models {

namespace {

constexpr std::int64_t kReplayMs = 10 * 60 * 1000;
constexpr int kPlansMax = 5;
constexpr std::uint64_t kDescriptionFileBytesMax = 1 << 20;
constexpr std::string_view kDescriptionFile = "MLmodel";

// What a source is made of at one moment.
struct Origin {
  std::string run_id, model_id;
  std::vector<vault::Entry> files;  // named by their paths below the source
};

Error no_source(std::string_view what) {
  return Error(Code::invalid, fmt::format("source: no such {} in this project", what));
}

// Those below `root`, or the file of that name itself.
std::vector<vault::Entry> files_below(const vault::Vault& vault, sql::Reader& r, const Where& where,
                                      const std::string& root) {
  auto below = vault.list(r, where, root + "/", "", kFilesMax + 1);
  if (below.size() > kFilesMax)
    throw Error(Code::exhausted, fmt::format("a model version has at most {} files", kFilesMax));
  for (auto& entry : below) entry.name.erase(0, root.size() + 1);
  if (!below.empty()) return below;
  auto itself = vault.list(r, where, root, "", 1);
  if (itself.empty() || itself[0].name != root) return {};
  itself[0].name = root.substr(root.rfind('/') + 1);
  return itself;
}

Origin look_up(const vault::Vault& vault, sql::Reader& r, const Where& where, const Source& source) {
  Origin origin;
  if (source.kind == Source::Kind::run) {
    const auto run = track::find_run(r, where, source.id);
    if (!run || (source.experiment && *source.experiment != run->info.experiment)) throw no_source("run");
    origin.run_id = source.id;
    origin.files = files_below(vault, r, where, track::run_artifact(source.id, source.path));
  } else if (source.kind == Source::Kind::logged_model) {
    const auto model = track::find_logged_model(r, where, source.id);
    if (!model || model->stage != track::Stage::active ||
        (source.experiment && *source.experiment != model->experiment))
      throw no_source("logged model");
    origin.run_id = model->source_run_id;
    origin.model_id = source.id;
    origin.files = files_below(vault, r, where, track::model_artifact(source.id, source.path));
  } else {
    const auto model = find_model(r, where, source.id);
    if (!model) throw no_source("registered model");
    const auto version = need_version(r, model->model, source.version);
    origin.run_id = version.origin_run;
    origin.model_id = version.model_id;
    origin.files = files_of(r, version.model_row, version.number);
  }
  return origin;
}

bool same_files(const std::vector<vault::Entry>& a, const std::vector<vault::Entry>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.name == y.name && x.address == y.address && x.zone == y.zone;
  });
}

// The declared inputs and outputs. The file is the user's: what is in it but cannot be read is as if it were not there.
std::string signature_in(const std::string& description_file) {
  try {
    const auto documents = parse_yaml(description_file);
    if (documents.empty() || !documents[0].value.is_object()) return "";
    const auto* signature = documents[0].value.as_object().if_contains("signature");
    return signature && !signature->is_null() ? canonical(*signature) : "";
  } catch (const Error&) {
    return "";
  }
}

void put_version_tag(sql::Writer& w, std::int64_t model, std::int64_t number, const KeyValue& tag) {
  w.execute(
      "INSERT INTO models_version_tag(model, version, key, value) VALUES (?, ?, ?, ?)"
      " ON CONFLICT (model, version, key) DO UPDATE SET value = excluded.value",
      {model, number, tag.key, tag.value});
}

void touch(sql::Writer& w, const Version& version) {
  w.execute("UPDATE models_version SET touches = touches + 1 WHERE model = ? AND version = ?",
            {version.model_row, version.number});
}

bool is_prompt(const std::vector<KeyValue>& tags) {
  return std::any_of(tags.begin(), tags.end(),
                     [](const KeyValue& tag) { return tag.key == kPromptTag && lower(tag.value) == "true"; });
}

void check(const NewVersion& version) {
  check_description(version.description);
  track::check_length("source", version.source, kSourceMax);
  track::check_length("run_link", version.run_link, kSourceMax);
  if (version.tags.size() > kTagsMax)
    throw Error(Code::invalid, fmt::format("tags: at most {}, got {}", kTagsMax, version.tags.size()));
  for (const auto& tag : version.tags) check_tag(tag);
}

}  // namespace

// What is to be written, found out beforehand: the files may be many and one of them is read.
struct Registry::Plan {
  std::optional<Source> source;  // nothing for a prompt
  Origin origin;
  std::string signature;
};

std::string Registry::read_small(const Where& where, const vault::Entry& entry) {
  return std::string(as_text(vault_.open(where, entry, 0, entry.bytes)->read_all()));
}

Registry::Plan Registry::plan_version(const Where& where, const NewVersion& wanted) {
  Plan plan;
  if (is_prompt(wanted.tags)) return plan;
  plan.source = parse_source(wanted.source);
  plan.origin = database_.read([&](sql::Reader& r) { return look_up(vault_, r, where, *plan.source); });
  for (const auto& entry : plan.origin.files)
    if (entry.name == kDescriptionFile && entry.bytes <= kDescriptionFileBytesMax)
      plan.signature = signature_in(read_small(where, entry));
  return plan;
}

Version Registry::create_version(const Where& where, const NewVersion& wanted, const sql::Act& act) {
  check(wanted);
  for (int tries = 1;; ++tries) {
    const auto plan = plan_version(where, wanted);
    try {
      auto made = database_.write(act, [&](sql::Writer& w) { return write_version(w, where, wanted, plan, act); });
      versions_created_.Increment();
      return made;
    } catch (const Error& e) {
      if (e.code() != Code::conflict || tries == kPlansMax) throw;
    }
  }
}

// A client that got no answer because this server died asks again. Only then, and only for the newest version that was
// asked for in the same words, is made of the same files and that nothing has touched since, is the second call the
// first.
std::optional<Version> Registry::replayed(sql::Writer& w, const ModelRow& model, const NewVersion& wanted,
                                          const Plan& plan, const sql::Act& act) const {
  auto newest = newest_version(w, model.model);
  if (!newest || newest->created_ms >= began_ms_ || now_ms() - newest->created_ms >= kReplayMs) return std::nullopt;
  const auto touches =
      *w.first("SELECT touches FROM models_version WHERE model = ? AND version = ?",
               {newest->model_row, newest->number}, [](const sql::Row& row) { return row.integer(0); });
  newest = load_version(w, *newest);
  auto tags = wanted.tags;
  std::sort(tags.begin(), tags.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  const bool same = touches == 0 && newest->created_by == act.actor && newest->source == wanted.source &&
                    newest->run_id == wanted.run_id && newest->run_link == wanted.run_link &&
                    newest->description == wanted.description && newest->tags == tags &&
                    (wanted.model_id.empty() || newest->model_id == wanted.model_id) &&
                    same_files(files_of(w, newest->model_row, newest->number), plan.origin.files);
  return same ? newest : std::nullopt;
}

Version Registry::write_version(sql::Writer& w, const Where& where, const NewVersion& wanted, const Plan& plan,
                                const sql::Act& act) {
  const auto model = need_model(w, where, wanted.model);
  if (const auto same = replayed(w, model, wanted, plan, act)) return *same;
  if (!wanted.run_id.empty() && !track::find_run(w, where, wanted.run_id))
    throw Error(Code::invalid, "run_id: no such run in this project");
  if (!wanted.model_id.empty() && !track::find_logged_model(w, where, wanted.model_id))
    throw Error(Code::invalid, "model_id: no such logged model in this project");
  if (plan.source && !same_files(look_up(vault_, w, where, *plan.source).files, plan.origin.files))
    throw Error(Code::conflict, "the artifacts changed while a version was made of them");

  const auto now = now_ms();
  Version version;
  version.model = model.model.name;
  version.model_row = model.model.row;
  version.number = model.versions + 1;
  version.created_ms = version.updated_ms = now;
  version.created_by = act.actor;
  version.description = wanted.description;
  version.source = wanted.source;
  version.run_id = wanted.run_id;
  version.run_link = wanted.run_link;
  version.model_id = wanted.model_id.empty() ? plan.origin.model_id : wanted.model_id;
  version.origin_run = plan.origin.run_id.empty() ? wanted.run_id : plan.origin.run_id;
  // The row's number keeps the reasons of two models apart that had the same name one after the other.
  const auto pin = fmt::format("model/{}/{} ({})", version.model, version.number, version.model_row);
  w.execute("UPDATE models_model SET versions = ?, updated_ms = ? WHERE id = ?",
            {version.number, now, version.model_row});
  w.execute(
      "INSERT INTO models_version(model, version, created_by, created_ms, updated_ms, touches, stage, description,"
      " source, run_id, run_link, model_id, origin_run, pin) VALUES (?, ?, ?, ?, ?, 0, 'None', ?, ?, ?, ?, ?, ?, ?)",
      {version.model_row, version.number, version.created_by, now, now, version.description, version.source,
       version.run_id, version.run_link, version.model_id, version.origin_run, pin});
  for (const auto& tag : wanted.tags) put_version_tag(w, version.model_row, version.number, tag);
  const auto digest = write_files(w, where, version, plan, pin);
  w.record({resource_of(where, version.model, version.number), {}, digest});
  json::object tags;
  for (const auto& tag : wanted.tags) tags[tag.key] = tag.value;
  webhooks_.emit(w, where, "model_version.created",
                 {{"name", version.model},
                  {"version", std::to_string(version.number)},
                  {"source", version.source},
                  {"run_id", version.run_id},
                  {"tags", std::move(tags)},
                  {"description", version.description}});
  return load_version(w, version);
}

Digest Registry::write_files(sql::Writer& w, const Where& where, const Version& version, const Plan& plan,
                             const std::string& pin) {
  Manifest manifest{where.tenant.str(), where.project.str(), version.model,
                    version.number,     version.created_ms,  version.origin_run,
                    version.model_id,   version.source,      {},
                    plan.signature};
  for (const auto& file : plan.origin.files) {
    w.execute(
        "INSERT INTO models_file(model, version, path, zone, address, bytes, content, created_us, created_by)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        {version.model_row, version.number, file.name, file.zone.str(), file.address.digest.view(),
         static_cast<std::int64_t>(file.bytes), file.content.view(), file.created_us, file.created_by});
    vault_.pin(w, where, file, pin);
    manifest.files.push_back({file.name, static_cast<std::int64_t>(file.bytes), file.content});
  }
  const auto signed_one = sign(manifest, signer_);
  w.execute("INSERT INTO models_manifest(model, version, manifest, signature) VALUES (?, ?, ?, ?)",
            {version.model_row, version.number, signed_one.text, BytesView(signed_one.signature)});
  return crypto::sha256(signed_one.text);
}

void Registry::drop_version(sql::Writer& w, const Where& where, const Version& version, const sql::Act& act) {
  const auto now_us = clock_.wall().count();
  for (const auto& alias : load_version(w, version).aliases) {
    change_alias(w, version.model_row, alias, std::nullopt, {act.actor, now_us, "the version was deleted", {}});
    webhooks_.emit(w, where, "model_version_alias.deleted", {{"name", version.model}, {"alias", alias}});
  }
  w.execute(
      "UPDATE models_promotion SET state = 'rejected', decided_us = ?, decided_by = ?, decision = 'the version was"
      " deleted' WHERE model = ? AND version = ? AND state = 'pending'",
      {now_us, act.actor, version.model_row, version.number});
  const auto pin =
      *w.first("SELECT pin FROM models_version WHERE model = ? AND version = ?", {version.model_row, version.number},
               [](const sql::Row& row) { return std::string(row.text(0)); });
  for (const auto& file : files_of(w, version.model_row, version.number)) vault_.unpin(w, where, file, pin);
  w.execute("DELETE FROM models_file WHERE model = ? AND version = ?", {version.model_row, version.number});
  w.execute("DELETE FROM models_version_tag WHERE model = ? AND version = ?", {version.model_row, version.number});
  w.execute("UPDATE models_version SET deleted_us = ? WHERE model = ? AND version = ?",
            {now_us, version.model_row, version.number});
  w.record({resource_of(where, version.model, version.number), crypto::sha256(version.source), {}});
}

void Registry::delete_version(const Where& where, const std::string& name, std::int64_t number, const sql::Act& act) {
  database_.write(act, [&](sql::Writer& w) {
    const auto row = need_model(w, where, name);
    drop_version(w, where, need_version(w, row.model, number), act);
    w.execute("UPDATE models_model SET updated_ms = ? WHERE id = ?", {now_ms(), row.model.row});
  });
}

Version Registry::version(const Where& where, const std::string& name, std::int64_t number) {
  return database_.read(
      [&](sql::Reader& r) { return load_version(r, need_version(r, need_model(r, where, name).model, number)); });
}

Version Registry::describe_version(const Where& where, const std::string& name, std::int64_t number,
                                   const std::string& description, const sql::Act& act) {
  check_description(description);
  return database_.write(act, [&](sql::Writer& w) {
    auto version = need_version(w, need_model(w, where, name).model, number);
    w.record({resource_of(where, name, number), crypto::sha256(version.description), crypto::sha256(description)});
    w.execute("UPDATE models_version SET description = ?, updated_ms = ? WHERE model = ? AND version = ?",
              {description, now_ms(), version.model_row, number});
    touch(w, version);
    return load_version(w, need_version(w, need_model(w, where, name).model, number));
  });
}

Version Registry::set_stage(const Where& where, const std::string& name, std::int64_t number, Stage stage,
                            bool archive_existing, const sql::Act& act) {
  const bool live = stage == Stage::staging || stage == Stage::production;
  if (archive_existing && !live)
    throw Error(Code::invalid, fmt::format("archive_existing_versions: only for Staging and Production, not for {}",
                                           models::name(stage)));
  return database_.write(act, [&](sql::Writer& w) {
    const auto row = need_model(w, where, name);
    const auto version = need_version(w, row.model, number);
    refuse_unapproved(row.model);
    const auto now = now_ms();
    if (archive_existing)
      w.execute(
          "UPDATE models_version SET stage = 'Archived', updated_ms = ?, touches = touches + 1 WHERE model = ?"
          " AND stage = ? AND version <> ? AND deleted_us IS NULL",
          {now, row.model.row, models::name(stage), number});
    w.execute("UPDATE models_version SET stage = ?, updated_ms = ? WHERE model = ? AND version = ?",
              {models::name(stage), now, row.model.row, number});
    touch(w, version);
    w.execute("UPDATE models_model SET updated_ms = ? WHERE id = ?", {now, row.model.row});
    w.record({resource_of(where, name, number), crypto::sha256(models::name(version.stage)),
              crypto::sha256(models::name(stage))});
    return load_version(w, need_version(w, row.model, number));
  });
}

void Registry::set_version_tag(const Where& where, const std::string& name, std::int64_t number, const KeyValue& tag,
                               const sql::Act& act) {
  check_tag(tag);
  database_.write(act, [&](sql::Writer& w) {
    const auto version = need_version(w, need_model(w, where, name).model, number);
    put_version_tag(w, version.model_row, number, tag);
    touch(w, version);
    w.record({resource_of(where, name, number), {}, crypto::sha256(tag.key + "\n" + tag.value)});
    webhooks_.emit(w, where, "model_version_tag.set",
                   {{"name", name}, {"version", std::to_string(number)}, {"key", tag.key}, {"value", tag.value}});
  });
}

void Registry::delete_version_tag(const Where& where, const std::string& name, std::int64_t number,
                                  const std::string& key, const sql::Act& act) {
  database_.write(act, [&](sql::Writer& w) {
    const auto version = need_version(w, need_model(w, where, name).model, number);
    if (w.execute("DELETE FROM models_version_tag WHERE model = ? AND version = ? AND key = ?",
                  {version.model_row, number, key}) == 0)
      return;  // as clients expect
    touch(w, version);
    w.record({resource_of(where, name, number), crypto::sha256(key), {}});
    webhooks_.emit(w, where, "model_version_tag.deleted",
                   {{"name", name}, {"version", std::to_string(number)}, {"key", key}});
  });
}

std::vector<Registration> Registry::registrations(const Where& where, const std::vector<std::string>& model_ids) {
  return database_.read([&](sql::Reader& r) {
    std::vector<Registration> out;
    for (const auto& id : model_ids)
      r.query(
          "SELECT v.model_id, m.name, v.version FROM models_version v JOIN models_model m ON m.id = v.model"
          " WHERE v.model_id = ? AND v.model_id <> '' AND v.deleted_us IS NULL AND m.tenant = ? AND m.project = ?"
          " ORDER BY m.name, v.version",
          {id, where.tenant.str(), where.project.str()}, [&](const sql::Row& row) {
            out.push_back({std::string(row.text(0)), std::string(row.text(1)), row.integer(2)});
          });
    return out;
  });
}

SignedManifest Registry::manifest(const Where& where, std::int64_t model_row, std::int64_t number) {
  return database_.read([&](sql::Reader& r) {
    need_version(r, need_model(r, where, model_row).model, number);
    const auto found = r.first("SELECT manifest, signature FROM models_manifest WHERE model = ? AND version = ?",
                               {model_row, number}, [](const sql::Row& row) {
                                 SignedManifest out{std::string(row.text(0)), {}};
                                 const auto bytes = row.bytes(1);
                                 if (bytes.size() != out.signature.size())
                                   throw Error(Code::corrupt, "a manifest's signature has another length");
                                 std::copy(bytes.begin(), bytes.end(), out.signature.begin());
                                 return out;
                               });
    if (!found) throw Error(Code::corrupt, fmt::format("version {} has no manifest", number));
    return *found;
  });
}

std::vector<vault::Entry> Registry::files(const Where& where, std::int64_t model_row, std::int64_t number,
                                          const std::string& prefix) {
  return database_.read([&](sql::Reader& r) {
    need_version(r, need_model(r, where, model_row).model, number);
    auto files = files_of(r, model_row, number);
    files.erase(std::remove_if(files.begin(), files.end(),
                               [&](const vault::Entry& file) { return !file.name.starts_with(prefix); }),
                files.end());
    return files;
  });
}

vault::Entry Registry::file(const Where& where, std::int64_t model_row, std::int64_t number, const std::string& path) {
  for (auto& file : files(where, model_row, number, path))
    if (file.name == path) return file;
  throw Error(Code::not_found, fmt::format("version {} has no file '{}'", number, track::shortened(path, 200)));
}

}  // namespace falaj::models
