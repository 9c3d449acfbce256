// SPDX-License-Identifier: Apache-2.0
// model

#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/runs.h"
#include "foundation/base/text.h"
#include "foundation/crypto/sign.h"

namespace falaj::cli {
namespace {

using As = Column::As;

constexpr std::string_view kSigned = "falaj model manifest 1\n";  // docs/formats/model_manifest.md

struct ModelOptions {
  std::string name, version, filter, to, why, evidence, public_key, id, alias, time, required;
  std::int64_t limit = 50;
};

const std::vector<Column> kPromotionColumns = {
    {"promotion", "id"},      {"model", "model"}, {"alias", "alias"},       {"version", "version"},
    {"replaced", "replaced"}, {"state", "state"}, {"asked by", "asked_by"}, {"why", "why"}};
const std::vector<Column> kPromotionRows = {{"promotion", "id"},
                                            {"model", "model"},
                                            {"alias", "alias"},
                                            {"version", "version"},
                                            {"replaced", "replaced"},
                                            {"state", "state"},
                                            {"asked", "asked_us", As::time},
                                            {"asked by", "asked_by"},
                                            {"why", "why"},
                                            {"decided by", "decided_by"},
                                            {"decision", "decision"}};

std::string model_path(const std::string& name, std::string_view more = "") {
  return fmt::format("/v1/models/{}{}", client::path_element(name), more);
}
std::string version_path(const ModelOptions& options, std::string_view more = "") {
  return model_path(options.name, fmt::format("/versions/{}{}", client::path_element(options.version), more));
}

void list(Session& session, const ModelOptions& options) {
  client::Query query{{"scope", session.project_scope()}};
  if (!options.filter.empty()) query.emplace_back("filter", options.filter);
  const auto items = get_items(session, "/v1/models", query, static_cast<std::size_t>(options.limit));
  const auto output = session.output();
  if (!output.for_people()) return output.value(items);
  json::array rows;
  for (const auto& model : items)
    rows.push_back({{"name", model.at("name")},
                    {"aliases", model.at("aliases")},
                    {"approval", model.at("needs_approval").as_bool() ? "second person" : "-"},
                    {"updated", time_ms(model.at("updated_ms"))},
                    {"description", model.at("description")}});
  output.table(rows, {{"name", "name"},
                      {"aliases", "aliases"},
                      {"approval", "approval"},
                      {"last change", "updated"},
                      {"description", "description"}});
}

void show_model(Session& session, const ModelOptions& options) {
  const auto answer = session.api().get(model_path(options.name), {{"scope", session.project_scope()}});
  const auto output = session.output();
  if (!output.for_people()) return output.value(answer);
  output.details(answer, {{"name", "model.name"},
                          {"description", "model.description"},
                          {"by", "model.created_by"},
                          {"aliases", "model.aliases"},
                          {"promotions wait for a second person", "model.needs_approval"},
                          {"tags", "model.tags"}});
  json::array rows;
  for (const auto& version : answer.at("versions").as_array())
    rows.push_back({{"version", version.at("version")},
                    {"aliases", version.at("aliases")},
                    {"stage", version.at("stage")},
                    {"created", time_ms(version.at("created_ms"))},
                    {"by", version.at("created_by")},
                    {"run", version.at("origin_run")},
                    {"description", version.at("description")}});
  output.line("");
  output.table(rows, {{"version", "version"},
                      {"aliases", "aliases"},
                      {"stage", "stage"},
                      {"created", "created"},
                      {"by", "by"},
                      {"run", "run"},
                      {"description", "description"}});
}

void show_version(Session& session, const ModelOptions& options) {
  const auto answer = session.api().get(version_path(options), {{"scope", session.project_scope()}});
  const auto output = session.output();
  if (!output.for_people()) return output.value(answer);
  output.details(answer, {{"model", "version.model"},
                          {"version", "version.version"},
                          {"aliases", "version.aliases"},
                          {"stage", "version.stage"},
                          {"description", "version.description"},
                          {"by", "version.created_by"},
                          {"source", "version.source"},
                          {"run", "version.origin_run"},
                          {"tags", "version.tags"},
                          {"signed by", "manifest.public_key"}});
  output.line("");
  output.table(answer.at("manifest").at("files").as_array(),
               {{"file", "path"}, {"bytes", "bytes", As::bytes}, {"content", "content"}});
}

void history(Session& session, const ModelOptions& options) {
  const auto answer = session.api().get(model_path(options.name, "/history"),
                                        {{"scope", session.project_scope()}, {"limit", std::to_string(options.limit)}});
  const auto output = session.output();
  if (!output.for_people()) return output.value(answer);
  output.table(answer.at("changes").as_array(), {{"time", "at_us", As::time},
                                                 {"alias", "alias"},
                                                 {"version", "version"},
                                                 {"by", "by"},
                                                 {"promotion", "promotion"},
                                                 {"why", "why"}});
}

// JSON, or @FILE of it.
json::value evidence_of(const std::string& text) {
  if (text.empty()) return nullptr;
  if (!text.starts_with('@')) return parse_json(text);
  std::ifstream in(text.substr(1), std::ios::binary);
  if (!in) throw Error(Code::not_found, fmt::format("--evidence: cannot read {}", text.substr(1)));
  std::ostringstream content;
  content << in.rdbuf();
  return parse_json(content.str());
}

void promote(Session& session, const ModelOptions& options) {
  json::object body{{"to", options.to}, {"why", options.why}, {"evidence", evidence_of(options.evidence)}};
  if (options.version.starts_with('@'))
    body["from"] = options.version.substr(1);
  else if (const auto number = parse_int(options.version))
    body["version"] = *number;
  else
    throw Error(Code::invalid, fmt::format("version: a number or @ALIAS, not '{}'", options.version));
  session.output().details(
      session.api().post(model_path(options.name, "/promote"), body, {{"scope", session.project_scope()}}),
      kPromotionRows);
}

void decide(Session& session, const ModelOptions& options, bool approve) {
  const auto path = fmt::format("/v1/promotions/{}/decide", client::path_element(options.id));
  session.output().details(session.api().post(path, json::object{{"approve", approve}, {"why", options.why}},
                                              {{"scope", session.project_scope()}}),
                           kPromotionRows);
}

template <class Array>
Array array_of(std::string_view what, std::string_view hex) {
  Array out{};
  const auto bytes = from_hex(hex);
  if (bytes.size() != out.size())
    throw Error(Code::invalid, fmt::format("{}: {} hexadecimal digits, not {}", what, 2 * out.size(), hex.size()));
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return out;
}

// The server reads every file again. With a key that came another way, its word for the signature is not needed.
void verify(Session& session, const ModelOptions& options) {
  const client::Query query{{"scope", session.project_scope()}};
  if (!options.public_key.empty()) {
    const auto key = array_of<crypto::PublicKey>("--public-key", options.public_key);
    const auto answer = session.api().get(version_path(options), query);
    const auto& manifest = answer.at("manifest");
    const std::string text = std::string(kSigned) + std::string(manifest.at("text").as_string());
    const auto signature = array_of<crypto::Signature>("signature", manifest.at("signature").as_string());
    if (!crypto::verify(key, as_bytes(text), signature))
      throw Error(Code::corrupt, "the manifest was not signed with that key");
  }
  const auto report = session.api().get(version_path(options, "/verify"), query);
  session.output().details(report, {{"model", "model"},
                                    {"version", "version"},
                                    {"files", "files"},
                                    {"bytes", "bytes", As::bytes},
                                    {"intact", "intact"},
                                    {"problem", "problem"}});
  if (!report.at("intact").as_bool()) throw Error(Code::corrupt, "the version is not what was registered");
}

void served_at(Session& session, const ModelOptions& options) {
  std::string time = options.time;
  if (const auto ago = parse_duration_us(time)) time = format_time(session.clock().wall().count() - *ago);
  const auto at = options.name.rfind('@');
  if (at == std::string::npos) {
    const auto answer =
        session.api().get(fmt::format("/v1/serving/endpoints/{}/served-at", client::path_element(options.name)),
                          {{"scope", session.project_scope()}, {"time", time}});
    const auto* served = answer.as_object().if_contains("served");
    json::array rows;
    if (served && served->is_object()) rows = served->at("variants").as_array();
    return session.output().table(
        rows, {{"VARIANT", "name"}, {"MODEL", "model"}, {"VERSION", "version"}, {"WEIGHT", "weight"}});
  }
  const auto model = options.name.substr(0, at), alias = options.name.substr(at + 1);
  const auto answer = session.api().get(model_path(model, "/alias-at"),
                                        {{"scope", session.project_scope()}, {"alias", alias}, {"time", time}});
  session.output().details(
      answer, {{"model", "model"}, {"alias", "alias"}, {"time", "time_us", As::time}, {"version", "version"}});
}

void add_reading(CLI::App& model, Session& session, const std::shared_ptr<ModelOptions>& options) {
  auto* ls = model.add_subcommand("ls", "Registered models of the project");
  ls->add_option("-f,--filter", options->filter, "Such as \"name LIKE 'ch%'\"");
  ls->add_option("-n,--limit", options->limit, "How many")->capture_default_str()->check(CLI::Range(1, 10'000));
  ls->callback([&session, options] { list(session, *options); });

  auto* show = model.add_subcommand("show", "A model and its versions, or one version and its signed files");
  show->add_option("model", options->name, "Its name")->required();
  show->add_option("version", options->version, "A number, @ALIAS or latest");
  show->callback([&session, options] {
    options->version.empty() ? show_model(session, *options) : show_version(session, *options);
  });

  auto* history_command = model.add_subcommand("history", "Every move of a model's aliases: when, by whom, why");
  history_command->add_option("model", options->name, "Its name")->required();
  history_command->add_option("-n,--limit", options->limit, "How many")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  history_command->callback([&session, options] { history(session, *options); });

  auto* at = model.add_subcommand("served-at", "Which version was behind a name at a time, from the audited record");
  at->add_option("endpoint", options->name, "An endpoint; or MODEL@ALIAS, where its users load it from")->required();
  at->add_option("time", options->time, "RFC 3339, or how long ago (2h, 7d)")->required();
  at->callback([&session, options] { served_at(session, *options); });

  auto* verify_command =
      model.add_subcommand("verify", "Read every file of a version; compare with its signed manifest");
  verify_command->add_option("model", options->name, "Its name")->required();
  verify_command->add_option("version", options->version, "A number, @ALIAS or latest")->required();
  verify_command->add_option("--public-key", options->public_key,
                             "Check the signature here with this key, 64 hexadecimal digits");
  verify_command->callback([&session, options] { verify(session, *options); });
}

void add_promoting(CLI::App& model, Session& session, const std::shared_ptr<ModelOptions>& options) {
  auto* promote_command = model.add_subcommand("promote", "Move an alias to a version, with a reason");
  promote_command->add_option("model", options->name, "Its name")->required();
  promote_command->add_option("version", options->version, "A number, or @ALIAS that points at it now")->required();
  promote_command->add_option("--to", options->to, "The alias to move")->required();
  promote_command->add_option("--why", options->why, "The reason, for whoever asks later")->required();
  promote_command->add_option("--evidence", options->evidence, "JSON, or @FILE of it, kept with the promotion");
  promote_command->callback([&session, options] { promote(session, *options); });

  model.add_subcommand("pending", "Promotions that wait for a second person")->callback([&session] {
    const auto answer = session.api().get("/v1/promotions", {{"scope", session.project_scope()}});
    session.output().table(answer.at("items").as_array(), kPromotionColumns);
  });
  for (const bool approve : {true, false}) {
    auto* decide_command = approve
                               ? model.add_subcommand("approve", "Let a promotion happen that somebody else asked for")
                               : model.add_subcommand("reject", "Turn a promotion down");
    decide_command->add_option("promotion", options->id, "Its number")->required();
    decide_command->add_option("--why", options->why, "The reason")->required(!approve);
    decide_command->callback([&session, options, approve] { decide(session, *options, approve); });
  }
  auto* approval = model.add_subcommand("approval", "Whether promotions of a model wait for a second person");
  approval->add_option("model", options->name, "Its name")->required();
  approval->add_option("required", options->required, "on or off")->required()->check(CLI::IsMember({"on", "off"}));
  approval->callback([&session, options] {
    session.api().post(model_path(options->name, "/approval"), json::object{{"required", options->required == "on"}},
                       {{"scope", session.project_scope()}});
    session.output().line(fmt::format("promotions of {} {} a second person", options->name,
                                      options->required == "on" ? "wait for" : "need not wait for"));
  });
}

}  // namespace

void add_model_commands(CLI::App& app, Session& session) {
  auto options = std::make_shared<ModelOptions>();
  auto* model = app.add_subcommand("model", "Registered models: signed versions, aliases and how they moved");
  model->require_subcommand(1);
  add_reading(*model, session, options);
  add_promoting(*model, session, options);
}

}  // namespace falaj::cli
