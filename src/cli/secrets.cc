// SPDX-License-Identifier: Apache-2.0
// secret

#include <fstream>
#include <iostream>
#include <sstream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/jobs.h"
#include "foundation/base/error.h"

namespace falaj::cli {
namespace {

// What a file or standard input holds, without a line's end at its end.
std::string value_from(const std::string& file) {
  std::ostringstream text;
  if (file == "-") {
    text << std::cin.rdbuf();
  } else {
    std::ifstream in(file, std::ios::binary);
    if (!in) throw Error(Code::not_found, fmt::format("cannot read {}", file));
    text << in.rdbuf();
  }
  auto value = text.str();
  if (value.ends_with('\n')) value.pop_back();
  return value;
}

}  // namespace

void add_secret_commands(CLI::App& app, Session& session) {
  auto* secret = app.add_subcommand("secret", "Values that jobs get by name and nobody sees");
  secret->require_subcommand(1);
  const auto of = [&session] { return client::Query{{"scope", session.project_scope()}}; };
  secret->add_subcommand("ls", "Names of a project's secrets")->callback([&session, of] {
    session.output().table(session.api().get("/v1/secrets", of()).at("items").as_array(),
                           {{"SECRET", "name"}, {"CHANGED", "changed"}, {"BY", "changed_by"}});
  });
  const auto name = std::make_shared<std::string>(), file = std::make_shared<std::string>("-");
  auto* set = secret->add_subcommand("set", "Set a secret to what standard input, or a file, holds");
  set->add_option("name", *name, "Its name")->required();
  set->add_option("--from", *file, "The file; - is standard input")->capture_default_str();
  set->callback([&session, of, name, file] {
    session.api().post("/v1/secrets", json::object{{"name", *name}, {"value", value_from(*file)}}, of());
    session.output().line(fmt::format("set {}", *name));
  });
  auto* rm = secret->add_subcommand("rm", "Remove a secret");
  rm->add_option("name", *name, "Its name")->required();
  rm->callback([&session, of, name] {
    session.api().del("/v1/secrets/" + client::path_element(*name), of());
    session.output().line(fmt::format("removed {}", *name));
  });
}

}  // namespace falaj::cli
