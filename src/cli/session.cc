// SPDX-License-Identifier: Apache-2.0
#include "cli/session.h"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "foundation/base/shape.h"
#include "foundation/base/text.h"
#include "foundation/sys/files.h"

namespace falaj {
template <>
struct Shape<cli::Context> {
  static constexpr std::string_view name = "Context";
  static Fields fields() {
    return {field("name", &cli::Context::name, "Its name.").required().text({is_name, kNameRule}),
            field("url", &cli::Context::url, "The server.").required(),
            field("token", &cli::Context::token, "An API token.").secret(),
            field("ca_file", &cli::Context::ca_file, "Certificates to trust."),
            field("tenant", &cli::Context::tenant, "Default tenant."),
            field("project", &cli::Context::project, "Default project.")};
  }
};
template <>
struct Shape<cli::Contexts> {
  static constexpr std::string_view name = "Contexts";
  static Fields fields() {
    return {field("current", &cli::Contexts::current, "The one in use."),
            field("contexts", &cli::Contexts::all, "All of them.")};
  }
};
}  // namespace falaj

namespace falaj::cli {
namespace {

constexpr std::size_t kContextsBytesMax = 1 << 20;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

struct Place {
  std::string directory, file;
};
Place contexts_place() {
  const std::string given = environment("FALAJ_CONFIG");
  if (!given.empty()) {
    const auto slash = given.rfind('/');
    return slash == std::string::npos ? Place{".", given} : Place{given.substr(0, slash), given.substr(slash + 1)};
  }
  return {environment("HOME") + "/.config/falaj", "contexts.json"};
}

// The token that a server on this machine left for its owner, readable by nobody else.
std::string own_admin_token() {
  std::ifstream in(environment("HOME") + "/.falaj/admin.token");
  std::string token;
  std::getline(in, token);
  return token;
}

}  // namespace

Contexts Contexts::load() {
  const auto place = contexts_place();
  struct stat info {};
  if (::stat((place.directory + "/" + place.file).c_str(), &info) != 0) return {};
  const auto bytes = sys::open_files(place.directory)->read_all(place.file, kContextsBytesMax);
  return decode<Contexts>(parse_json(as_text(bytes)), "contexts file");
}

void Contexts::save() const {
  const auto place = contexts_place();
  sys::open_files(place.directory)->write_all(place.file, as_bytes(pretty(encode(*this)) + "\n"));
}

const Context* Contexts::find(std::string_view name) const {
  for (const auto& context : all)
    if (context.name == name) return &context;
  return nullptr;
}

void Contexts::put(Context context) {
  context = decode<Context>(encode(context), "context");  // what could not be loaded again is not saved
  for (auto& old : all)
    if (old.name == context.name) {
      old = std::move(context);
      return;
    }
  all.push_back(std::move(context));
}

ResultFile::ResultFile(std::string path)
    : path_(std::move(path)), partial_(path_ + ".partial"), out_(partial_, std::ios::binary | std::ios::trunc) {
  if (!out_) throw Error(Code::unavailable, fmt::format("cannot write {}", partial_));
}

ResultFile::~ResultFile() {
  if (!out_.is_open()) return;
  out_.close();
  std::remove(partial_.c_str());
}

void ResultFile::write(BytesView piece) {
  out_.write(reinterpret_cast<const char*>(piece.data()), static_cast<std::streamsize>(piece.size()));
}

void ResultFile::keep() {
  out_.flush();
  if (!out_ || std::rename(partial_.c_str(), path_.c_str()) != 0)
    throw Error(Code::unavailable, fmt::format("writing {} failed: is the disk full?", path_));
  out_.close();
}

client::ApiClient& Session::api() {
  if (api_) return *api_;
  client::Target target;
  const Contexts contexts = Contexts::load();
  const std::string wanted = !context.empty() ? context : contexts.current;
  const Context* chosen = wanted.empty() ? nullptr : contexts.find(wanted);
  if (!context.empty() && !chosen) throw Error(Code::not_found, fmt::format("no context of that name: {}", context));
  const auto first_of = [](std::initializer_list<std::string> candidates) {
    for (const auto& c : candidates)
      if (!c.empty()) return c;
    return std::string();
  };
  // An explicit context wins over the environment; the environment over the current context.
  const bool explicit_context = !context.empty();
  target.url = first_of({url, explicit_context ? "" : environment("FALAJ_URL"), chosen ? chosen->url : "", target.url});
  target.token = first_of(
      {token, explicit_context ? "" : environment("FALAJ_TOKEN"), chosen ? chosen->token : "", own_admin_token()});
  target.ca_file = first_of({ca_file, environment("FALAJ_CA_FILE"), chosen ? chosen->ca_file : ""});
  if (tenant.empty()) tenant = first_of({environment("FALAJ_TENANT"), chosen ? chosen->tenant : ""});
  if (project.empty()) project = first_of({environment("FALAJ_PROJECT"), chosen ? chosen->project : ""});
  return api_.emplace(std::move(target));
}

std::string Session::scope() {
  api();  // reads the context, which may name both
  if (tenant.empty() && !project.empty()) throw Error(Code::invalid, "--project also needs --tenant");
  if (tenant.empty()) return "/";
  return project.empty() ? "/t/" + tenant : fmt::format("/t/{}/p/{}", tenant, project);
}

std::string Session::project_scope() {
  const std::string chosen = scope();
  if (tenant.empty() || project.empty())
    throw Error(
        Code::invalid,
        "which project? give --tenant and --project, FALAJ_TENANT and FALAJ_PROJECT, or a context that has them");
  return chosen;
}

}  // namespace falaj::cli
