// SPDX-License-Identifier: Apache-2.0
// apply, diff, get, describe, delete, history, rollback, export

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/session.h"
#include "foundation/base/text.h"
#include "foundation/base/yaml.h"

namespace falaj::cli {
namespace {

namespace fs = std::filesystem;
using As = Column::As;

constexpr std::uintmax_t kFileBytesMax = 1 << 20;

json::object read_source(const std::string& path) {
  std::ostringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
  } else {
    if (fs::file_size(path) > kFileBytesMax)
      throw Error(Code::invalid, fmt::format("file of more than 1 MiB: {}", path));
    std::ifstream in(path, std::ios::binary);
    if (!in) throw Error(Code::not_found, fmt::format("cannot read {}", path));
    text << in.rdbuf();
  }
  return {{"file", path}, {"text", text.str()}};
}

// The files named, and the *.yaml and *.yml of directories, in order of name.
json::array read_sources(const std::vector<std::string>& paths) {
  json::array sources;
  for (const auto& path : paths) {
    std::error_code error;
    if (path != "-" && fs::is_directory(path, error)) {
      std::vector<std::string> files;
      for (const auto& entry : fs::directory_iterator(path))
        if (entry.is_regular_file() && (entry.path().extension() == ".yaml" || entry.path().extension() == ".yml"))
          files.push_back(entry.path().string());
      std::sort(files.begin(), files.end());
      if (files.empty()) throw Error(Code::not_found, fmt::format("no *.yaml file in {}", path));
      for (const auto& file : files) sources.push_back(read_source(file));
    } else if (path != "-" && !fs::exists(path, error)) {
      throw Error(Code::not_found, fmt::format("no such file: {}", path));
    } else {
      sources.push_back(read_source(path));
    }
  }
  return sources;
}

void print_changes(Session& session, const json::value& answer, bool with_diff) {
  const auto output = session.output();
  if (!output.for_people()) return output.value(answer);
  for (const auto& change : answer.at("changes").as_array()) {
    output.line(fmt::format("{} {}", std::string_view(change.at("change").as_string()),
                            std::string_view(change.at("resource").as_string())));
    if (with_diff)
      for (const auto& line : change.at("diff").as_array()) output.line("  " + std::string(line.as_string()));
  }
}

void send(Session& session, const std::vector<std::string>& files, bool dry_run, bool with_diff) {
  const json::object body{{"sources", read_sources(files)}, {"dry_run", dry_run}};
  print_changes(session, session.api().post(with_diff ? "/v1/diff" : "/v1/apply", body), with_diff);
}

void add_diff(CLI::App& app, Session& session) {
  auto files = std::make_shared<std::vector<std::string>>();
  auto* diff = app.add_subcommand("diff", "Show what apply would change, field by field");
  diff->add_option("-f,--file", *files, "A YAML file, a directory of them, or - for standard input; may be repeated")
      ->required();
  diff->callback([&session, files] { send(session, *files, true, true); });
}

struct Which {
  std::string kind, name, selector;
  std::int64_t revision = 0;
};
std::string path_of(const Which& which, std::string_view more = "") {
  return fmt::format("/v1/resources/{}/{}{}", client::path_element(which.kind), client::path_element(which.name), more);
}

// All pages of a list.
json::array get_all(Session& session, const std::string& path, client::Query query) {
  json::array items;
  for (;;) {
    const auto page = session.api().get(path, query);
    for (const auto& item : page.at("items").as_array()) items.push_back(item);
    const auto* next = page.as_object().if_contains("next");
    if (!next || next->is_null()) return items;
    std::erase_if(query, [](const auto& q) { return q.first == "cursor"; });
    query.emplace_back("cursor", std::string(next->as_string()));
  }
}

void get(Session& session, const Which& which) {
  const client::Query query{{"scope", session.scope()}};
  const auto output = session.output();
  if (!which.name.empty()) {
    const auto resource = session.api().get(path_of(which), query);
    return output.for_people() ? output.raw(to_yaml(resource)) : output.value(resource);
  }
  client::Query list = query;
  if (!which.selector.empty()) list.emplace_back("selector", which.selector);
  output.table(get_all(session, "/v1/resources/" + client::path_element(which.kind), list),
               {{"name", "metadata.name"},
                {"tenant", "metadata.tenant"},
                {"project", "metadata.project"},
                {"revision", "status.revision"},
                {"changed", "status.updated_us", As::time},
                {"by", "status.updated_by"}});
}

void describe(Session& session, const Which& which) {
  const client::Query query{{"scope", session.scope()}};
  const auto resource = session.api().get(path_of(which), query);
  const auto output = session.output();
  if (!output.for_people()) return output.value(resource);
  output.details(resource, {{"kind", "kind"},
                            {"name", "metadata.name"},
                            {"tenant", "metadata.tenant"},
                            {"project", "metadata.project"},
                            {"description", "metadata.description"},
                            {"labels", "metadata.labels"},
                            {"revision", "status.revision"},
                            {"created", "status.created_us", As::time},
                            {"changed", "status.updated_us", As::time},
                            {"by", "status.updated_by"},
                            {"digest", "status.digest", As::digest}});
  output.line("spec");
  const std::string spec = to_yaml(resource.at("spec"));
  for (const auto line : split(spec, '\n'))
    if (!line.empty()) output.line(fmt::format("  {}", line));
}

void add_reading(CLI::App& app, Session& session) {
  auto which = std::make_shared<Which>();
  auto* get_command = app.add_subcommand("get", "List resources of a kind, or print one");
  get_command->add_option("kind", which->kind, "Such as project, role or zone")->required();
  get_command->add_option("name", which->name, "Its name; without it all are listed");
  get_command->add_option("-l,--selector", which->selector, "Only those with these labels: key=value,...");
  get_command->callback([&session, which] { get(session, *which); });

  auto* describe_command = app.add_subcommand("describe", "One resource in words");
  describe_command->add_option("kind", which->kind, "Its kind")->required();
  describe_command->add_option("name", which->name, "Its name")->required();
  describe_command->callback([&session, which] { describe(session, *which); });

  auto* history = app.add_subcommand("history", "Every revision of a resource: when, by whom");
  history->add_option("kind", which->kind, "Its kind")->required();
  history->add_option("name", which->name, "Its name")->required();
  history->callback([&session, which] {
    session.output().table(get_all(session, path_of(*which, "/history"), {{"scope", session.scope()}}),
                           {{"revision", "revision"},
                            {"change", "change"},
                            {"at", "at_us", As::time},
                            {"by", "by"},
                            {"digest", "digest", As::digest}});
  });

  auto* export_command =
      app.add_subcommand("export", "All resources at and below --tenant/--project as YAML that apply takes back");
  export_command->callback([&session] {
    const auto answer = session.api().get("/v1/export", {{"scope", session.scope()}});
    session.output().raw(answer.at("yaml").as_string());
  });
}

void add_changing(CLI::App& app, Session& session) {
  auto which = std::make_shared<Which>();
  auto* remove = app.add_subcommand("delete", "Delete a resource; refused while another depends on it");
  remove->add_option("kind", which->kind, "Its kind")->required();
  remove->add_option("name", which->name, "Its name")->required();
  remove->callback([&session, which] {
    session.api().del(path_of(*which), {{"scope", session.scope()}});
    session.output().line(fmt::format("deleted {} {}", which->kind, which->name));
  });
  auto* rollback = app.add_subcommand("rollback", "Make a resource again what it was at a revision");
  rollback->add_option("kind", which->kind, "Its kind")->required();
  rollback->add_option("name", which->name, "Its name")->required();
  rollback->add_option("--to", which->revision, "The revision, as history shows it")->required();
  rollback->callback([&session, which] {
    print_changes(
        session,
        session.api().post(path_of(*which, "/rollback"), {{"revision", which->revision}}, {{"scope", session.scope()}}),
        false);
  });
}

}  // namespace

void add_apply(CLI::App& app, Session& session) {
  auto files = std::make_shared<std::vector<std::string>>();
  auto dry_run = std::make_shared<bool>(false);
  auto* apply = app.add_subcommand("apply", "Make the platform as files of resources say: all of it, or none");
  apply->add_option("-f,--file", *files, "A YAML file, a directory of them, or - for standard input; may be repeated")
      ->required();
  apply->add_flag("--dry-run", *dry_run, "Check everything and say what would change, but change nothing");
  apply->callback([&session, files, dry_run] { send(session, *files, *dry_run, false); });
}

void add_resource_commands(CLI::App& app, Session& session) {
  add_apply(app, session);
  add_diff(app, session);
  add_reading(app, session);
  add_changing(app, session);
}

}  // namespace falaj::cli
