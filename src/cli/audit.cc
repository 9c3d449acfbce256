// SPDX-License-Identifier: Apache-2.0
// audit

#include <fstream>
#include <iostream>
#include <sstream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/progress.h"
#include "cli/session.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

using As = Column::As;

struct AuditOptions {
  std::string actor, verb, resource, since, until, outcome, head, out;
  std::int64_t limit = 50;
  std::string sequence;
};

// "2h" ago, or an RFC 3339 time.
std::string time_of(const Session& session, const std::string& text) {
  if (const auto ago = parse_duration_us(text)) return std::to_string(session.clock().wall().count() - *ago);
  if (const auto at = parse_time(text)) return std::to_string(*at);
  throw Error(Code::invalid, fmt::format("a time is an RFC 3339 time, or how long ago, such as 2h: {}", text));
}

client::Query filter_of(const Session& session, const AuditOptions& options) {
  client::Query query;
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) query.emplace_back(key, value);
  };
  add("actor", options.actor);
  add("verb", options.verb);
  add("resource", options.resource);
  add("outcome", options.outcome);
  if (!options.since.empty()) query.emplace_back("from_us", time_of(session, options.since));
  if (!options.until.empty()) query.emplace_back("to_us", time_of(session, options.until));
  return query;
}

void add_filter(CLI::App& command, AuditOptions& options) {
  command.add_option("--actor", options.actor, "Only of this actor, such as user/ada");
  command.add_option("--verb", options.verb, "Only these acts, such as token.create or 'blob.*'");
  command.add_option("--resource", options.resource, "Only at and below this resource");
  command.add_option("--outcome", options.outcome, "ok or denied");
  command.add_option("--since", options.since, "From this time on: RFC 3339, or how long ago (2h, 7d)");
  command.add_option("--until", options.until, "Up to this time");
}

void verify(Session& session, const AuditOptions& options) {
  json::object body;
  if (!options.head.empty()) {
    std::ifstream in(options.head, std::ios::binary);
    if (!in) throw Error(Code::not_found, fmt::format("cannot read {}", options.head));
    std::ostringstream text;
    text << in.rdbuf();
    body["head"] = parse_json(text.str());
  }
  const auto report = session.api().post("/v1/audit/verify", body);
  session.output().details(report, {{"records", "records"},
                                    {"intact", "intact"},
                                    {"first altered record", "first_bad"},
                                    {"why", "problem"},
                                    {"root", "root"}});
  if (!report.at("intact").as_bool()) throw Error(Code::corrupt, "the audit log was altered");
}

}  // namespace

void add_audit_commands(CLI::App& app, Session& session) {
  auto* audit = app.add_subcommand("audit", "The tamper-evident record of every change and every denied call");
  audit->require_subcommand(1);
  auto options = std::make_shared<AuditOptions>();
  auto* log = audit->add_subcommand("log", "Newest records first");
  add_filter(*log, *options);
  log->add_option("-n,--limit", options->limit, "How many")->capture_default_str()->check(CLI::Range(1, 1000));
  log->callback([&session, options] {
    auto query = filter_of(session, *options);
    query.emplace_back("limit", std::to_string(options->limit));
    session.output().table(session.api().get("/v1/audit", query).at("items").as_array(), {{"record", "sequence"},
                                                                                          {"time", "unix_us", As::time},
                                                                                          {"actor", "actor"},
                                                                                          {"verb", "verb"},
                                                                                          {"outcome", "outcome"},
                                                                                          {"resource", "resource"},
                                                                                          {"request", "request_id"}});
  });

  auto* verify_command = audit->add_subcommand(
      "verify", "Recompute every record, the tree and its signed heads; names the first altered record");
  verify_command->add_option("--head", options->head,
                             "Also prove that the log continues this head, saved earlier with audit head");
  verify_command->callback([&session, options] { verify(session, *options); });

  auto* prove = audit->add_subcommand("prove", "A proof, checkable without this server, that a record is in the log");
  prove->add_option("record", options->sequence, "Its number")->required();
  prove->callback([&session, options] {
    session.output().raw(pretty(session.api().get("/v1/audit/" + client::path_element(options->sequence) + "/proof")) +
                         "\n");
  });

  audit->add_subcommand("head", "The signed head of the log: keep it elsewhere, verify against it later")
      ->callback([&session] { session.output().raw(pretty(session.api().get("/v1/audit/head")) + "\n"); });

  auto* export_command = audit->add_subcommand("export", "Records as JSON lines, oldest first");
  add_filter(*export_command, *options);
  export_command->add_option("-O,--out", options->out, "Where to (default: standard output)");
  export_command->callback([&session, options] {
    std::optional<ResultFile> file;
    if (!options->out.empty()) file.emplace(options->out);
    Progress progress("exporting", 0, Progress::Unit::bytes, session.clock(), session.quiet || options->out.empty());
    session.api().download(
        net::Method::get, "/v1/audit/export", filter_of(session, *options), nullptr, [](auto) {},
        [&](BytesView piece) {
          if (file)
            file->write(piece);
          else
            std::cout.write(reinterpret_cast<const char*>(piece.data()), static_cast<std::streamsize>(piece.size()));
          progress.add(piece.size());
        });
    if (file) file->keep();
    std::cout.flush();
    if (!std::cout) throw Error(Code::unavailable, "writing to standard output failed");
  });
}

}  // namespace falaj::cli
