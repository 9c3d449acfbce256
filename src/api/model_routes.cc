// SPDX-License-Identifier: Apache-2.0
// registered models, their versions, and how aliases move

#include <fmt/format.h>

#include "api/call.h"
#include "api/page.h"
#include "api/project.h"
#include "foundation/base/text.h"
#include "lifecycle/models/promotions.h"
#include "lifecycle/models/registry.h"
#include "storage/blob/manifest.h"

namespace falaj::api {
namespace {

constexpr BodyLimit kPromotionBody{models::kEvidenceBytesMax + 64 * 1024};
constexpr std::int64_t kHistoryMax = 1000;

struct ModelQuery {
  std::string filter, cursor;
  std::vector<std::string> order_by;
  std::int64_t limit = kPageItems;
};
struct VersionOut {
  std::string model;
  std::int64_t version = 0, created_ms = 0, updated_ms = 0;
  std::string created_by, stage, description, source, run_id, model_id, origin_run;
  std::vector<std::string> aliases;
  std::map<std::string, std::string> tags;
};
struct ModelOut {
  std::string name, description, created_by;
  std::int64_t created_ms = 0, updated_ms = 0;
  bool needs_approval = false;
  std::map<std::string, std::int64_t> aliases;
  std::map<std::string, std::string> tags;
};
struct ModelDetails {
  ModelOut model;
  std::vector<VersionOut> versions;
};
struct FileOut {
  std::string path, content;
  std::int64_t bytes = 0;
};
struct ManifestOut {
  std::string text, signature, public_key;
  std::vector<FileOut> files;
};
struct VersionDetails {
  VersionOut version;
  ManifestOut manifest;
};
struct VerifiedOut {
  std::string model;
  std::int64_t version = 0, files = 0, bytes = 0;
  bool intact = false;
  std::string problem;
};
struct PromoteIn {
  std::optional<std::int64_t> version;
  std::string from, to, why;
  json::value evidence;
};
struct PromotionOut {
  std::int64_t id = 0;
  std::string model, alias, state;
  std::int64_t version = 0;
  std::optional<std::int64_t> replaced;
  std::int64_t asked_us = 0;
  std::string asked_by, why;
  json::value evidence;
  std::optional<std::int64_t> decided_us;
  std::string decided_by, decision;
};
struct DecideIn {
  bool approve = false;
  std::string why;
};
struct ApprovalIn {
  bool required = false;
};
struct HistoryQuery {
  std::int64_t limit = kPageItems;
};
struct AliasChangeOut {
  std::string alias;
  std::optional<std::int64_t> version;
  std::int64_t at_us = 0;
  std::string by, why;
  std::optional<std::int64_t> promotion;
};
struct HistoryOut {
  std::vector<AliasChangeOut> changes;
  std::vector<PromotionOut> promotions;
};
struct AliasAtQuery {
  std::string alias, time;
};
struct AliasAtOut {
  std::string model, alias;
  std::int64_t time_us = 0;
  std::optional<std::int64_t> version;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<ModelQuery> {
  using T = ModelQuery;
  static constexpr std::string_view name = "ModelQuery";
  static Fields fields() {
    return {field("filter", &T::filter, "Such as: name LIKE 'ch%'."),
            field("order_by", &T::order_by, "Such as: name DESC."),
            field("cursor", &T::cursor, "From the page before."),
            field("limit", &T::limit, "Most items in a page.").range(1, kPageItemsMax)};
  }
};
template <>
struct Shape<VersionOut> {
  using T = VersionOut;
  static constexpr std::string_view name = "ModelVersion";
  static Fields fields() {
    return {field("model", &T::model, "Of which model."),
            field("version", &T::version, "Its number."),
            field("created_ms", &T::created_ms, "Milliseconds since 1970."),
            field("updated_ms", &T::updated_ms, "Milliseconds since 1970."),
            field("created_by", &T::created_by, "By whom."),
            field("stage", &T::stage, "None, Staging, Production or Archived."),
            field("description", &T::description, "What for."),
            field("source", &T::source, "Where its files were taken."),
            field("run_id", &T::run_id, "The run it was registered with."),
            field("model_id", &T::model_id, "The logged model it is."),
            field("origin_run", &T::origin_run, "The run that made it, as far as the source tells."),
            field("aliases", &T::aliases, "That point at it."),
            field("tags", &T::tags, "Tags.")};
  }
};
template <>
struct Shape<ModelOut> {
  using T = ModelOut;
  static constexpr std::string_view name = "Model";
  static Fields fields() {
    return {field("name", &T::name, "Its name."),
            field("description", &T::description, "What for."),
            field("created_by", &T::created_by, "By whom."),
            field("created_ms", &T::created_ms, "Milliseconds since 1970."),
            field("updated_ms", &T::updated_ms, "Milliseconds since 1970."),
            field("needs_approval", &T::needs_approval, "Whether promotions wait for a second person."),
            field("aliases", &T::aliases, "And the version each points at."),
            field("tags", &T::tags, "Tags.")};
  }
};
template <>
struct Shape<ModelDetails> {
  using T = ModelDetails;
  static constexpr std::string_view name = "ModelDetails";
  static Fields fields() {
    return {field("model", &T::model, "The model."),
            field("versions", &T::versions, "The newest hundred, newest first.")};
  }
};
template <>
struct Shape<FileOut> {
  using T = FileOut;
  static constexpr std::string_view name = "ModelFile";
  static Fields fields() {
    return {field("path", &T::path, "Below the version's root."), field("bytes", &T::bytes, "Its length."),
            field("content", &T::content, "Digest of its content.")};
  }
};
template <>
struct Shape<ManifestOut> {
  using T = ManifestOut;
  static constexpr std::string_view name = "ModelManifest";
  static Fields fields() {
    return {field("text", &T::text, "What is signed, byte by byte."),
            field("signature", &T::signature, "Ed25519, in hexadecimal digits."),
            field("public_key", &T::public_key, "Of the signer: compare it with the one you trust."),
            field("files", &T::files, "As the text lists them.")};
  }
};
template <>
struct Shape<VersionDetails> {
  using T = VersionDetails;
  static constexpr std::string_view name = "ModelVersionDetails";
  static Fields fields() {
    return {field("version", &T::version, "The version."),
            field("manifest", &T::manifest, "Its signed list of files.")};
  }
};
template <>
struct Shape<VerifiedOut> {
  using T = VerifiedOut;
  static constexpr std::string_view name = "VerifiedVersion";
  static Fields fields() {
    return {field("model", &T::model, "Of which model."),
            field("version", &T::version, "Which."),
            field("files", &T::files, "Read whole."),
            field("bytes", &T::bytes, "Of them."),
            field("intact", &T::intact, "Whether signature and every file are what was registered."),
            field("problem", &T::problem, "What is not.")};
  }
};
template <>
struct Shape<PromoteIn> {
  using T = PromoteIn;
  static constexpr std::string_view name = "PromoteRequest";
  static Fields fields() {
    return {field("version", &T::version, "Which version; this or 'from'.")
                .range(1, std::numeric_limits<std::int32_t>::max()),
            field("from", &T::from, "The alias that points at it now."),
            field("to", &T::to, "The alias to move.").required().length(1, models::kAliasMax),
            field("why", &T::why, "The reason, for whoever asks later.").required().length(1, models::kWhyMax),
            field("evidence", &T::evidence, "What was shown for it: metrics, ids of runs, digests of reports.")};
  }
};
template <>
struct Shape<PromotionOut> {
  using T = PromotionOut;
  static constexpr std::string_view name = "Promotion";
  static Fields fields() {
    return {field("id", &T::id, "Its number."),
            field("model", &T::model, "Of which model."),
            field("alias", &T::alias, "That moves."),
            field("version", &T::version, "To which version."),
            field("replaced", &T::replaced, "What the alias pointed at before."),
            field("state", &T::state, "pending, done or rejected."),
            field("asked_us", &T::asked_us, "When."),
            field("asked_by", &T::asked_by, "By whom."),
            field("why", &T::why, "Why."),
            field("evidence", &T::evidence, "What was shown for it."),
            field("decided_us", &T::decided_us, "When a second person decided."),
            field("decided_by", &T::decided_by, "Who."),
            field("decision", &T::decision, "With which words.")};
  }
};
template <>
struct Shape<DecideIn> {
  using T = DecideIn;
  static constexpr std::string_view name = "DecideRequest";
  static Fields fields() {
    return {field("approve", &T::approve, "Whether it happens.").required(),
            field("why", &T::why, "The reason; needed to reject.").length(0, models::kWhyMax)};
  }
};
template <>
struct Shape<ApprovalIn> {
  using T = ApprovalIn;
  static constexpr std::string_view name = "ApprovalRequest";
  static Fields fields() {
    return {field("required", &T::required, "Whether promotions of the model wait for a second person.").required()};
  }
};
template <>
struct Shape<HistoryQuery> {
  using T = HistoryQuery;
  static constexpr std::string_view name = "ModelHistoryQuery";
  static Fields fields() { return {field("limit", &T::limit, "Most of each.").range(1, kHistoryMax)}; }
};
template <>
struct Shape<AliasChangeOut> {
  using T = AliasChangeOut;
  static constexpr std::string_view name = "AliasChange";
  static Fields fields() {
    return {
        field("alias", &T::alias, "Which."), field("version", &T::version, "What it points at since; absent: it went."),
        field("at_us", &T::at_us, "When."),  field("by", &T::by, "By whom."),
        field("why", &T::why, "Why."),       field("promotion", &T::promotion, "The promotion that moved it.")};
  }
};
template <>
struct Shape<HistoryOut> {
  using T = HistoryOut;
  static constexpr std::string_view name = "ModelHistory";
  static Fields fields() {
    return {field("changes", &T::changes, "Of aliases, newest first."),
            field("promotions", &T::promotions, "Newest first.")};
  }
};
template <>
struct Shape<AliasAtQuery> {
  using T = AliasAtQuery;
  static constexpr std::string_view name = "AliasAtQuery";
  static Fields fields() {
    return {field("alias", &T::alias, "Which.").required(),
            field("time", &T::time, "RFC 3339, or microseconds since 1970.").required()};
  }
};
template <>
struct Shape<AliasAtOut> {
  using T = AliasAtOut;
  static constexpr std::string_view name = "AliasAt";
  static Fields fields() {
    return {field("model", &T::model, "Of which model."), field("alias", &T::alias, "Which."),
            field("time_us", &T::time_us, "At which time."),
            field("version", &T::version, "What it pointed at then; absent: nothing.")};
  }
};
}  // namespace falaj

namespace falaj::api {
namespace {

using models::Where;

Declaration reads_model(std::string_view path, std::string_view summary) {
  return {Method::get,   path,   Permission::of("model.read", "{scope}"), BodyLimit::none(), Audit::read(),
          Place::worker, summary};
}
Declaration writes_model(std::string_view path, std::string_view action, std::string_view verb,
                         std::string_view summary) {
  return {Method::post,  path,   Permission::of(action, "{scope}"), kPromotionBody, Audit::verb(verb),
          Place::worker, summary};
}

std::string model_scope(const Where& where, const std::string& model) {
  return iam::Scope::of(where.tenant.str(), where.project.str(), "model", model).str();
}

std::map<std::string, std::string> map_of(const std::vector<models::KeyValue>& pairs) {
  std::map<std::string, std::string> out;
  for (const auto& pair : pairs) out[pair.key] = pair.value;
  return out;
}

VersionOut out_of(const models::Version& v) {
  return {v.model,       v.number, v.created_ms, v.updated_ms, v.created_by, std::string(models::name(v.stage)),
          v.description, v.source, v.run_id,     v.model_id,   v.origin_run, v.aliases,
          map_of(v.tags)};
}

ModelOut out_of(const models::Model& m) {
  ModelOut out{m.name, m.description, m.created_by, m.created_ms, m.updated_ms, m.needs_approval, {}, map_of(m.tags)};
  for (const auto& alias : m.aliases) out.aliases[alias.alias] = alias.version;
  return out;
}

PromotionOut out_of(const models::Promotion& p) {
  return {p.id,      p.model,    p.alias,      std::string(models::name(p.state)),
          p.version, p.replaced, p.asked_us,   p.asked_by,
          p.why,     p.evidence, p.decided_us, p.decided_by,
          p.decision};
}

// "3", "@champion" or "latest".
models::Version version_of(models::Registry& registry, const Where& where, const std::string& model,
                           const std::string& text) {
  if (text.starts_with('@')) return registry.by_alias(where, model, text.substr(1));
  if (text == "latest") return registry.by_alias(where, model, text);
  const auto number = parse_int(text);
  if (!number) throw Error(Code::invalid, fmt::format("version: a number, @ALIAS or latest, not '{}'", text));
  return registry.version(where, model, *number);
}

ManifestOut out_of(const models::SignedManifest& manifest, const crypto::PublicKey& key) {
  ManifestOut out{manifest.text, to_hex(manifest.signature), to_hex(key), {}};
  for (const auto& file : models::verify(manifest, key).files)
    out.files.push_back({file.path, file.content.hex(), file.bytes});
  return out;
}

// Reads every file to its end, as whoever loads the version would.
VerifiedOut verify(Platform& platform, const Where& where, const models::Version& version) {
  VerifiedOut out{version.model, version.number, 0, 0, false, ""};
  try {
    auto& registry = platform.models;
    const auto manifest =
        models::verify(registry.manifest(where, version.model_row, version.number), registry.public_key());
    if (manifest.tenant != where.tenant.str() || manifest.project != where.project.str() ||
        manifest.version != version.number)
      throw Error(Code::corrupt, "the manifest is of another version");
    std::vector<models::ManifestFile> files;
    for (const auto& entry : registry.files(where, version.model_row, version.number, "")) {
      const auto reader = platform.vault.open(where, entry, 0, entry.bytes);
      blob::ContentHasher content;
      std::int64_t bytes = 0;
      for (Bytes piece = reader->next(); !piece.empty(); piece = reader->next()) {
        content.update(piece);
        bytes += static_cast<std::int64_t>(piece.size());
      }
      files.push_back({entry.name, bytes, content.finish()});
      ++out.files;
      out.bytes += bytes;
    }
    models::check_files(manifest, files);
    out.intact = true;
  } catch (const Error& e) {
    if (e.code() != Code::corrupt) throw;
    out.problem = e.what();
  }
  return out;
}

std::int64_t time_of(const std::string& text) {
  if (const auto us = parse_int(text)) return *us;
  if (const auto us = parse_time(text)) return *us;
  throw Error(Code::invalid, fmt::format("time: RFC 3339, or microseconds since 1970, not '{}'", text.substr(0, 64)));
}

std::int64_t promotion_of(const Call& call) {
  const auto id = parse_int(call.parameter("id"));
  if (!id) throw Error(Code::not_found, "no such promotion: " + call.parameter("id").substr(0, 64));
  return *id;
}

void add_model_reading(Routes& routes, Platform& platform) {
  auto& registry = platform.models;
  routes.add<ModelQuery, Page<ModelOut>>(
      reads_model("/v1/models", "Registered models of a project."), [&registry](Call& call, const ModelQuery& in) {
        const auto offset = offset_of(in.cursor);
        const auto found = registry.search_models(project_of(call),
                                                  {in.filter, in.order_by, offset, static_cast<std::size_t>(in.limit)});
        Page<ModelOut> page;
        for (const auto& model : found.items) page.items.push_back(out_of(model));
        if (found.more) page.next = std::to_string(offset + found.items.size());
        return page;
      });
  routes.add<Nothing, ModelDetails>(
      reads_model("/v1/models/{name}", "A model and its newest versions."), [&registry](Call& call, const Nothing&) {
        const auto where = project_of(call);
        ModelDetails out{out_of(registry.model(where, call.parameter("name"))), {}};
        std::string quoted;
        for (const char c : out.model.name) quoted += c == '\'' ? std::string("''") : std::string(1, c);
        const auto found = registry.search_versions(
            where, {fmt::format("name = '{}'", quoted), {"version_number DESC"}, 0, kPageItems});
        for (const auto& version : found.items) out.versions.push_back(out_of(version));
        return out;
      });
  routes.add<Nothing, VersionDetails>(
      reads_model("/v1/models/{name}/versions/{version}",
                  "A version (a number, @ALIAS or latest) and its signed manifest."),
      [&registry](Call& call, const Nothing&) {
        const auto where = project_of(call);
        const auto version = version_of(registry, where, call.parameter("name"), call.parameter("version"));
        return VersionDetails{out_of(version), out_of(registry.manifest(where, version.model_row, version.number),
                                                      registry.public_key())};
      });
  routes.add<Nothing, VerifiedOut>(
      reads_model("/v1/models/{name}/versions/{version}/verify",
                  "Read every file of a version and compare with its manifest."),
      [&platform](Call& call, const Nothing&) {
        const auto where = project_of(call);
        return verify(platform, where,
                      version_of(platform.models, where, call.parameter("name"), call.parameter("version")));
      });
}

void add_promoting(Routes& routes, Platform& platform) {
  auto& promotions = platform.promotions;
  routes.add<PromoteIn, PromotionOut>(
      writes_model("/v1/models/{name}/promote", "model.write", "model.promote",
                   "Move an alias, with a reason; waits for a second person where the model asks for that."),
      [&promotions](Call& call, const PromoteIn& in) {
        const auto where = project_of(call);
        const auto& name = call.parameter("name");
        if (in.version.has_value() == !in.from.empty())
          throw Error(Code::invalid, "version: either a version, or 'from', an alias that points at it");
        models::NewPromotion wanted{name, std::int64_t{0}, in.to, in.why, in.evidence};
        if (in.version)
          wanted.from = *in.version;
        else
          wanted.from = in.from;
        return call.write(model_scope(where, name), [&](sql::Writer& writer) {
          return out_of(promotions.promote(writer, where, wanted, call.actor()));
        });
      });
  routes.add<DecideIn, PromotionOut>(
      writes_model("/v1/promotions/{id}/decide", "model.approve", "model.decide", "Approve or reject a promotion."),
      [&promotions](Call& call, const DecideIn& in) {
        const auto where = project_of(call);
        const auto id = promotion_of(call);
        const auto asked = promotions.get(where, id);
        call.about(model_scope(where, asked.model));
        return call.write(model_scope(where, asked.model), [&](sql::Writer& writer) {
          return out_of(promotions.decide(writer, where, id, in.approve, in.why, call.actor()));
        });
      });
  routes.add<ApprovalIn, Nothing>(writes_model("/v1/models/{name}/approval", "model.approve", "model.approval",
                                               "Whether promotions of a model wait for a second person."),
                                  [&promotions](Call& call, const ApprovalIn& in) {
                                    const auto where = project_of(call);
                                    const auto& name = call.parameter("name");
                                    promotions.require_approval(where, name, in.required,
                                                                call.act(model_scope(where, name)));
                                  });
  routes.add<Nothing, Page<PromotionOut>>(
      reads_model("/v1/promotions", "Promotions that wait for a decision, newest first."),
      [&promotions](Call& call, const Nothing&) {
        Page<PromotionOut> page;
        for (const auto& p : promotions.pending(project_of(call))) page.items.push_back(out_of(p));
        return page;
      });
  routes.add<HistoryQuery, HistoryOut>(
      reads_model("/v1/models/{name}/history", "Every change of the model's aliases, and its promotions."),
      [&promotions](Call& call, const HistoryQuery& in) {
        const auto where = project_of(call);
        const auto limit = static_cast<std::size_t>(in.limit);
        HistoryOut out;
        for (const auto& c : promotions.alias_changes(where, call.parameter("name"), limit))
          out.changes.push_back({c.alias, c.version, c.at_us, c.by, c.why, c.promotion});
        for (const auto& p : promotions.history(where, call.parameter("name"), limit))
          out.promotions.push_back(out_of(p));
        return out;
      });
  routes.add<AliasAtQuery, AliasAtOut>(
      reads_model("/v1/models/{name}/alias-at", "Which version an alias pointed at at a time."),
      [&promotions](Call& call, const AliasAtQuery& in) {
        const auto& name = call.parameter("name");
        const auto at = time_of(in.time);
        return AliasAtOut{name, in.alias, at, promotions.alias_at(project_of(call), name, in.alias, at)};
      });
}

}  // namespace

void add_model_routes(Routes& routes, Platform& platform) {
  add_model_reading(routes, platform);
  add_promoting(routes, platform);
}

}  // namespace falaj::api
