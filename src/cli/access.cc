// SPDX-License-Identifier: Apache-2.0
// login, logout, whoami, context, token, user, certificate

#include <termios.h>
#include <unistd.h>

#include <iostream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/session.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

using As = Column::As;

// Asks on the terminal without showing what is typed; from a pipe the first line.
std::string ask_secret(std::string_view question) {
  termios before{};
  const bool terminal = isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &before) == 0;
  if (terminal) {
    fmt::print(stderr, "{}", question);
    termios silent = before;
    silent.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &silent);
  }
  std::string line;
  std::getline(std::cin, line);
  if (terminal) {
    tcsetattr(STDIN_FILENO, TCSANOW, &before);
    fmt::print(stderr, "\n");
  }
  return line;
}

void print_whoami(Session& session) {
  session.output().details(session.api().get("/v1/whoami"), {{"principal", "principal"},
                                                             {"tenant", "tenant"},
                                                             {"groups", "groups"},
                                                             {"roles", "roles"},
                                                             {"credential", "credential"},
                                                             {"server", "server"}});
}

struct LoginOptions {
  std::string server, user, name = "default", token_lifetime = "30d";
  bool with_token = false;
};

void login(Session& session, const LoginOptions& options) {
  client::Target target;
  if (!options.server.empty()) target.url = options.server;
  target.token = session.token;
  target.ca_file = session.ca_file;
  if (options.with_token && target.token.empty()) target.token = ask_secret("token: ");
  if (!options.with_token) {
    if (options.user.empty()) throw Error(Code::invalid, "who? give --user NAME, or --with-token");
    const std::string password = ask_secret(fmt::format("password of {}: ", options.user));
    client::Target own{target.url, "", target.ca_file, ""};
    const auto opened = client::ApiClient(own).post("/v1/login", {{"user", options.user}, {"password", password}});
    // The session lasts hours; a token of its own, that can be revoked alone, is what this machine keeps.
    own.session = opened.at("session").as_string();
    client::ApiClient as_user(own);
    const auto made = as_user.post("/v1/tokens", {{"name", "falaj login"}, {"ttl", options.token_lifetime}});
    target.token = made.at("token").as_string();
    as_user.post("/v1/logout", json::object{});
  }
  const auto who = client::ApiClient(target).get("/v1/whoami");
  Contexts contexts = Contexts::load();
  contexts.put({options.name, target.url, target.token, target.ca_file, session.tenant, session.project});
  contexts.current = options.name;
  contexts.save();
  session.output().line(fmt::format("logged in to {} as {}; context {}", target.url,
                                    std::string_view(who.at("principal").as_string()), options.name));
}

void add_login(CLI::App& app, Session& session) {
  auto options = std::make_shared<LoginOptions>();
  auto* login_command = app.add_subcommand("login", "Log in to a server and keep a token for it in a context");
  login_command->add_option("server", options->server, "URL of the server (default http://127.0.0.1:8470)");
  login_command->add_option("--user", options->user, "User name; the password is asked for, or read from a pipe");
  login_command->add_flag("--with-token", options->with_token,
                          "Use an API token (--token, or asked for) instead of a password");
  login_command->add_option("--name", options->name, "Name of the context to make")->capture_default_str();
  login_command->add_option("--token-lifetime", options->token_lifetime, "How long the kept token is valid")
      ->capture_default_str();
  login_command->callback([&session, options] { login(session, *options); });
  app.add_subcommand("logout", "Revoke the token in use and forget it")->callback([&session] {
    session.api().post("/v1/logout", json::object{});
    Contexts contexts = Contexts::load();
    std::erase_if(contexts.all, [&](const Context& c) { return c.token == session.api().target().token; });
    if (!contexts.find(contexts.current)) contexts.current.clear();
    contexts.save();
    session.output().line("logged out");
  });
  app.add_subcommand("whoami", "Who the server takes you for")->callback([&session] { print_whoami(session); });
}

void add_contexts(CLI::App& app, Session& session) {
  auto* context = app.add_subcommand("context", "Servers you work with, by name");
  context->require_subcommand(1);
  context->add_subcommand("ls", "List contexts")->callback([&session] {
    const Contexts contexts = Contexts::load();
    json::array items;
    for (const auto& c : contexts.all)
      items.push_back({{"name", c.name},
                       {"url", c.url},
                       {"tenant", c.tenant},
                       {"project", c.project},
                       {"current", c.name == contexts.current ? "*" : ""}});
    session.output().table(
        items, {{"", "current"}, {"name", "name"}, {"url", "url"}, {"tenant", "tenant"}, {"project", "project"}});
  });
  auto name = std::make_shared<std::string>();
  auto* use = context->add_subcommand("use", "Choose the context that commands use");
  use->add_option("name", *name, "Its name")->required();
  use->callback([&session, name] {
    Contexts contexts = Contexts::load();
    if (!contexts.find(*name)) throw Error(Code::not_found, fmt::format("no context of that name: {}", *name));
    contexts.current = *name;
    contexts.save();
    session.output().line(fmt::format("using {}", *name));
  });
  auto url = std::make_shared<std::string>();
  auto* add =
      context->add_subcommand("add", "Add or change a context (also takes --token, --ca-file, --tenant, --project)");
  add->add_option("name", *name, "Its name")->required();
  add->add_option("server", *url, "URL of the server")->required();
  add->callback([&session, name, url] {
    Contexts contexts = Contexts::load();
    contexts.put({*name, *url, session.token, session.ca_file, session.tenant, session.project});
    if (contexts.current.empty()) contexts.current = *name;
    contexts.save();
    session.output().line(fmt::format("added {}", *name));
  });
  auto* remove = context->add_subcommand("rm", "Forget a context");
  remove->add_option("name", *name, "Its name")->required();
  remove->callback([&session, name] {
    Contexts contexts = Contexts::load();
    if (std::erase_if(contexts.all, [&](const Context& c) { return c.name == *name; }) == 0)
      throw Error(Code::not_found, fmt::format("no context of that name: {}", *name));
    if (contexts.current == *name) contexts.current.clear();
    contexts.save();
    session.output().line(fmt::format("removed {}", *name));
  });
}

struct TokenOptions {
  std::string name, ttl = "30d", principal, at;
  std::vector<std::string> actions;
};

void add_tokens(CLI::App& app, Session& session) {
  auto* token = app.add_subcommand("token", "API tokens");
  token->require_subcommand(1);
  auto options = std::make_shared<TokenOptions>();
  auto* create = token->add_subcommand("create", "Make a token; it is shown once");
  create->add_option("name", options->name, "What it is for")->required();
  create->add_option("--ttl", options->ttl, "How long it is valid, such as 12h or 30d")->capture_default_str();
  create->add_option("--for", options->principal, "Whose token: user/NAME or service/TENANT/NAME (default: yours)");
  create->add_option("--action", options->actions,
                     "Only these actions, such as blob.read or 'blob.*'; may be repeated");
  create->add_option("--at", options->at, "Only at and below this scope, such as /t/acme/p/flights");
  create->callback([&session, options] {
    json::object body{{"name", options->name}, {"ttl", options->ttl}};
    if (!options->principal.empty()) body["principal"] = options->principal;
    if (!options->actions.empty() || !options->at.empty()) {
      json::object restriction{{"scope", options->at.empty() ? "/" : options->at}};
      restriction["actions"] =
          options->actions.empty() ? json::array{"*"} : json::array(options->actions.begin(), options->actions.end());
      body["restrictions"] = json::array{restriction};
    }
    const auto made = session.api().post("/v1/tokens", body);
    if (session.output().for_people())
      session.output().raw(fmt::format("{}\n", std::string_view(made.at("token").as_string())));
    else
      session.output().value(made);
  });
  const auto whose = [options] {
    return options->principal.empty() ? client::Query{} : client::Query{{"principal", options->principal}};
  };
  auto* list = token->add_subcommand("ls", "List tokens, never their secrets");
  list->add_option("--for", options->principal, "Whose tokens: user/NAME or service/TENANT/NAME (default: yours)");
  list->callback([&session, whose] {
    session.output().table(session.api().get("/v1/tokens", whose()).at("items").as_array(),
                           {{"id", "id"},
                            {"name", "name"},
                            {"principal", "principal"},
                            {"created", "created_us", As::time},
                            {"expires", "expires_us", As::time},
                            {"state", "state"}});
  });
  auto id = std::make_shared<std::string>();
  auto* revoke = token->add_subcommand("rm", "Revoke a token, at once");
  revoke->add_option("id", *id, "Its id, as token ls shows it")->required();
  revoke->add_option("--for", options->principal, "Whose token: user/NAME or service/TENANT/NAME (default: yours)");
  revoke->callback([&session, id, whose] {
    session.api().del("/v1/tokens/" + client::path_element(*id), whose());
    session.output().line("revoked " + *id);
  });
}

void add_users_and_certificates(CLI::App& app, Session& session) {
  auto* user = app.add_subcommand("user", "People (declared with kind User; see apply)");
  user->require_subcommand(1);
  auto name = std::make_shared<std::string>();
  auto* password = user->add_subcommand("passwd", "Set a user's password; asked for, or read from a pipe");
  password->add_option("name", *name, "Whose: NAME, or TENANT/NAME for a user of a tenant")->required();
  password->callback([&session, name] {
    const auto slash = name->find('/');
    const std::string scope = slash == std::string::npos ? "/" : "/t/" + name->substr(0, slash);
    session.api().post("/v1/users/" + client::path_element(name->substr(slash + 1)) + "/password",
                       {{"password", ask_secret("new password: ")}}, {{"scope", scope}});
    session.output().line("password set for " + *name);
  });

  auto* certificate = app.add_subcommand("certificate", "Client certificates that stand for a principal");
  certificate->require_subcommand(1);
  auto principal = std::make_shared<std::string>();
  auto fingerprint = std::make_shared<std::string>();
  auto* bind =
      certificate->add_subcommand("bind", "Let a certificate, by its SHA-256 fingerprint, stand for a principal");
  bind->add_option("fingerprint", *fingerprint, "64 hexadecimal digits")->required();
  bind->add_option("principal", *principal, "user/NAME or service/TENANT/NAME")->required();
  bind->callback([&session, fingerprint, principal] {
    session.api().post("/v1/certificates", {{"fingerprint", *fingerprint}, {"principal", *principal}});
    session.output().line(fmt::format("bound {} to {}", fingerprint->substr(0, 12), *principal));
  });
  certificate->add_subcommand("ls", "List bound certificates")->callback([&session] {
    session.output().table(session.api().get("/v1/certificates").at("items").as_array(),
                           {{"fingerprint", "fingerprint"}, {"principal", "principal"}});
  });
  auto* unbind = certificate->add_subcommand("rm", "Let a certificate stand for nobody");
  unbind->add_option("fingerprint", *fingerprint, "64 hexadecimal digits")->required();
  unbind->callback([&session, fingerprint] {
    session.api().del("/v1/certificates/" + client::path_element(*fingerprint));
    session.output().line("removed");
  });
}

}  // namespace

void add_access_commands(CLI::App& app, Session& session) {
  add_login(app, session);
  add_contexts(app, session);
  add_tokens(app, session);
  add_users_and_certificates(app, session);
}

}  // namespace falaj::cli
