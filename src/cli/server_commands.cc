// SPDX-License-Identifier: Apache-2.0
// status, api, backup, config show

#include <fstream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/progress.h"
#include "cli/session.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

using As = Column::As;

void status(Session& session) {
  session.output().details(session.api().get("/v1/status"), {{"server", "server"},
                                                             {"version", "version"},
                                                             {"up for", "uptime_us", As::duration},
                                                             {"metadata", "database.engine"},
                                                             {"writes", "database.writes"},
                                                             {"writes per commit", "database.writes_per_commit"},
                                                             {"resources", "resources"},
                                                             {"blobs", "blobs.objects"},
                                                             {"blob bytes", "blobs.bytes", As::bytes},
                                                             {"zones", "blobs.zones"},
                                                             {"audit records", "audit.records"},
                                                             {"audit root", "audit.root", As::digest},
                                                             {"memory", "resident_bytes", As::bytes}});
}

// Every route of the server, from its own description.
void list_routes(Session& session) {
  const auto description = session.api().get("/v1/openapi.json");
  json::array items;
  for (const auto& [path, operations] : description.at("paths").as_object())
    for (const auto& [method, operation] : operations.as_object()) {
      const auto* permission = operation.as_object().if_contains("x-falaj-permission");
      const bool open = operation.as_object().contains("security");
      std::string upper(method);
      for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      items.push_back({{"method", upper},
                       {"path", path},
                       {"needs", permission ? *permission : json::value(open ? "nothing" : "a credential")},
                       {"summary", operation.at("summary")}});
    }
  session.output().table(items,
                         {{"method", "method"}, {"path", "path"}, {"needs", "needs"}, {"what it does", "summary"}});
}

void take_backup(Session& session, const std::string& file, const std::string& passphrase_file, bool with_blobs) {
  std::ifstream in(passphrase_file);
  std::string passphrase;
  if (!std::getline(in, passphrase)) throw Error(Code::not_found, fmt::format("no passphrase in {}", passphrase_file));
  ResultFile out(file);
  Progress progress("backing up", 0, Progress::Unit::bytes, session.clock(), session.quiet);
  const json::value body{{"passphrase", passphrase}, {"blobs", with_blobs ? "copy" : "reference"}};
  session.api().download(
      net::Method::post, "/v1/backup", {}, &body, [](auto) {},
      [&](BytesView piece) {
        out.write(piece);
        progress.add(piece.size());
      });
  out.keep();
  progress.finish();
  session.output().line("backed up to " + file);
}

}  // namespace

void add_server_commands(CLI::App& app, Session& session) {
  app.add_subcommand("status", "How the server is")->callback([&session] { status(session); });
  app.get_subcommand("config")
      ->add_subcommand("show", "The settings of the running server, and where each comes from")
      ->callback([&session] {
        session.output().table(session.api().get("/v1/config").at("items").as_array(),
                               {{"setting", "key"}, {"value", "value"}, {"default", "default"}, {"from", "source"}});
      });
  auto* api = app.add_subcommand("api", "The HTTP API");
  api->require_subcommand(1);
  api->add_subcommand("ls", "List every route, what it needs and what it does")->callback([&session] {
    list_routes(session);
  });
  auto path = std::make_shared<std::string>();
  auto* get = api->add_subcommand("get", "Call a route with GET and print the answer");
  get->add_option("path", *path, "Such as /v1/whoami")->required();
  get->callback([&session, path] { session.output().raw(pretty(session.api().get(*path)) + "\n"); });

  auto file = std::make_shared<std::string>();
  auto passphrase_file = std::make_shared<std::string>();
  auto references = std::make_shared<bool>(false);
  auto* backup = app.add_subcommand("backup", "Take a consistent snapshot of everything while the server runs");
  backup->add_option("file", *file, "Where to")->required();
  backup
      ->add_option("--passphrase-file", *passphrase_file, "A file whose first line protects the keys inside the backup")
      ->required();
  backup->add_flag("--without-blobs", *references,
                   "Only refer to blobs; the restored platform needs the same blob store");
  backup->callback(
      [&session, file, passphrase_file, references] { take_backup(session, *file, *passphrase_file, !*references); });
}

}  // namespace falaj::cli
