// SPDX-License-Identifier: Apache-2.0
#include "apps/falaj/commands.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "apps/falaj/control_plane.h"
#include "apps/falaj/restore.h"
#include "apps/falaj/version.h"
#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "lifecycle/execute/local/keeper.h"

extern char** environ;

namespace falaj::app {
namespace {

std::vector<std::string> environment_of_process() {
  std::vector<std::string> out;
  for (char** entry = environ; *entry; ++entry) out.emplace_back(*entry);
  return out;
}

struct UpOptions {
  std::string config_file, data, listen;
  std::vector<std::string> sets;
};

void add_settings_options(CLI::App& command, UpOptions& options) {
  command.add_option("--config", options.config_file, "YAML file of settings (see: falaj config explain)");
  command.add_option("--data", options.data, "Directory of everything that is kept (default ~/.falaj)");
  command.add_option("--listen", options.listen,
                     "HOST:PORT to listen on (default 127.0.0.1:8470; port 0 = any free one)");
  command.add_option("--set", options.sets, "One setting: section.key=value; may be repeated");
}

config::Sources sources_of(const UpOptions& options) {
  config::Sources sources;
  if (!options.config_file.empty()) {
    std::ifstream in(options.config_file, std::ios::binary);
    if (!in) throw Error(Code::not_found, fmt::format("cannot read {}", options.config_file));
    std::ostringstream text;
    text << in.rdbuf();
    sources.file_name = options.config_file;
    sources.file_text = text.str();
  }
  sources.environment = environment_of_process();
  sources.other_variables = other_variables();
  sources.overrides = options.sets;
  if (!options.data.empty()) sources.overrides.push_back("data=" + options.data);
  if (!options.listen.empty()) sources.overrides.push_back("listen=" + options.listen);
  return sources;
}

// "~/x" is below the home directory, as a shell has it.
void expand_home(Settings& settings) {
  const char* home = std::getenv("HOME");
  if (settings.data.starts_with("~/") && home) settings.data = std::string(home) + settings.data.substr(1);
}

Settings load_settings(const config::Sources& sources) {
  Settings settings = config::load<Settings>(sources);
  expand_home(settings);
  return settings;
}

void start_logging(const Settings& settings) {
  static sys::RealClock clock;
  log::Level lowest = log::Level::info;
  for (const auto level : {log::Level::debug, log::Level::info, log::Level::warn, log::Level::error})
    if (log::name(level) == settings.log_level) lowest = level;
  log::set_sink(log::json_lines([] { return clock.wall().count(); }), lowest);
}

void up(const UpOptions& options) {
  // Blocked before any thread starts, so that only this one ever sees them.
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGTERM);
  sigaddset(&stop_signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);

  // Keys live in this process: no core dump, and no other process of this user may look inside.
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  prctl(PR_SET_DUMPABLE, 0);

  const auto sources = sources_of(options);
  const Settings settings = load_settings(sources);
  start_logging(settings);
  ControlPlane plane(settings, config::explain<Settings>(sources), sources.environment);
  plane.serve();
  if (plane.first_start())
    fmt::print(stderr, "first start: the administrator's token is in {}/{}, readable only by you\n", settings.data,
               kAdminTokenFile);
  fmt::print("ready {} data {}\n", plane.url(), settings.data);
  std::fflush(stdout);
  int signal = 0;
  sigwait(&stop_signals, &signal);
  log::info("stopping", {{"signal", signal}});
  pthread_sigmask(SIG_UNBLOCK, &stop_signals, nullptr);  // a second one ends us at once
  plane.stop();
}

void explain(cli::Session& session, const UpOptions& options) {
  json::array items;
  for (const auto& row : config::explain<Settings>(sources_of(options)))
    items.push_back({{"key", row.key},
                     {"value", row.value},
                     {"default", row.standard},
                     {"source", row.source},
                     {"allowed", row.allowed},
                     {"help", row.help}});
  session.output().table(
      items,
      {{"setting", "key"}, {"value", "value"}, {"from", "source"}, {"allowed", "allowed"}, {"what it does", "help"}});
}

// Every command and option, from the parser itself, so that it is never out of date.
void print_completion(const CLI::App& root, const std::string& shell) {
  std::string cases;
  const std::function<void(const CLI::App&, const std::string&)> walk = [&](const CLI::App& app,
                                                                            const std::string& path) {
    std::vector<std::string> words;
    for (const auto* sub : app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); })) {
      words.push_back(sub->get_name());
      walk(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name());
    }
    for (const auto* option : app.get_options())
      for (const auto& name : option->get_lnames()) words.push_back("--" + name);
    cases += fmt::format("    \"{}\") words=\"{}\" ;;\n", path, join(words, " "));
  };
  walk(root, "");
  const std::string body = fmt::format(R"(_falaj() {{
  local path="" words="" word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in -*) ;; *) path="${{path:+$path }}$word" ;; esac
  done
  while :; do
    case $path in
{}    esac
    [ -n "$words" ] || [ -z "$path" ] && break
    case $path in *" "*) path=${{path% *}} ;; *) path="" ;; esac
  done
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _falaj falaj
)",
                                       cases);
  fmt::print("{}{}", shell == "zsh" ? "autoload -Uz bashcompinit && bashcompinit\n" : "", body);
}

}  // namespace

void add_local_commands(CLI::App& app, cli::Session& session) {
  auto options = std::make_shared<UpOptions>();
  auto* up_command = app.add_subcommand("up", "Start the platform in the foreground");
  add_settings_options(*up_command, *options);
  up_command->callback([options] { up(*options); });

  auto* config_command = app.add_subcommand("config", "Settings of the server");
  config_command->require_subcommand(1);
  auto* explain_command = config_command->add_subcommand(
      "explain", "Every setting: its value here, where that comes from, what is allowed");
  add_settings_options(*explain_command, *options);
  explain_command->callback([&session, options] { explain(session, *options); });

  add_restore_command(
      app, session, [options] { return std::pair(load_settings(sources_of(*options)), environment_of_process()); },
      [options](CLI::App& command) { add_settings_options(command, *options); });

  auto shell = std::make_shared<std::string>("bash");
  auto* completion = app.add_subcommand("completion", "Completion for a shell: source <(falaj completion bash)");
  completion->add_option("shell", *shell, "bash or zsh")->capture_default_str()->check(CLI::IsMember({"bash", "zsh"}));
  completion->callback([&app, shell] { print_completion(app, *shell); });

  // What the local executor starts where falaj-keeper is not beside us.
  auto keeper_directory = std::make_shared<std::string>();
  auto* keeper = app.add_subcommand("keeper", "The parent of this node's tasks; falaj starts it by itself");
  keeper->group("");
  keeper->add_option("--dir", *keeper_directory, "What it keeps")->required();
  keeper->callback(
      [&session, keeper_directory] { session.status = execute::local::run_keeper({.directory = *keeper_directory}); });

  app.add_subcommand("version", "The program's version")->callback([&session] {
    if (session.output().for_people())
      session.output().line(fmt::format("falaj {}", kVersion));
    else
      session.output().value({{"version", kVersion}});
  });
}

}  // namespace falaj::app
