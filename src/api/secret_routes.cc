// SPDX-License-Identifier: Apache-2.0
// secrets of a project, for its jobs

#include <fmt/format.h>

#include "api/call.h"
#include "api/project.h"
#include "lifecycle/jobs/jobs.h"

namespace falaj::api {
namespace {

struct SecretIn {
  std::string name, value;
};
struct SecretOut {
  std::string name, changed_by, created, changed;
};
struct SecretsOut {
  std::vector<SecretOut> items;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<SecretIn> {
  static constexpr std::string_view name = "NewSecret";
  static Fields fields() {
    return {
        field("name", &SecretIn::name, "One that is there gets the new value.").required().text({is_name, kNameRule}),
        field("value", &SecretIn::value, "What jobs get.").required().length(1, jobs::kSecretBytesMax)};
  }
};
template <>
struct Shape<SecretOut> {
  using T = SecretOut;
  static constexpr std::string_view name = "Secret";
  static Fields fields() {
    return {field("name", &T::name, "Its name."), field("changed_by", &T::changed_by, "Who set it last."),
            field("created", &T::created, "When."), field("changed", &T::changed, "When last.")};
  }
};
template <>
struct Shape<SecretsOut> {
  static constexpr std::string_view name = "Secrets";
  static Fields fields() { return {field("items", &SecretsOut::items, "Without their values.")}; }
};
}  // namespace falaj

namespace falaj::api {
namespace {

SecretsOut list_secrets(Platform& platform, Call& call) {
  SecretsOut out;
  for (const auto& info : platform.jobs.secrets().list(project_of(call)))
    out.items.push_back({info.name, info.changed_by, format_time(info.created_us), format_time(info.changed_us)});
  return out;
}

std::string scope_of_secret(const vault::Where& where, const std::string& name) {
  return iam::Scope::of(where.tenant.str(), where.project.str(), "secret", name).str();
}

}  // namespace

void add_secret_routes(Routes& routes, Platform& platform) {
  constexpr BodyLimit kSecretBody{2 * jobs::kSecretBytesMax};
  routes.add<Nothing, SecretsOut>(
      {Method::get, "/v1/secrets", Permission::of("secret.list", "{scope}"), BodyLimit::none(), Audit::read(),
       Place::worker, "Names of a project's secrets; their values are given to jobs only."},
      [&platform](Call& call, const Nothing&) { return list_secrets(platform, call); });
  routes.add<SecretIn, Nothing>({Method::post, "/v1/secrets", Permission::of("secret.write", "{scope}"), kSecretBody,
                                 Audit::verb("secret.write"), Place::worker, "Set a secret of a project."},
                                [&platform](Call& call, const SecretIn& in) {
                                  const auto where = project_of(call);
                                  call.write(scope_of_secret(where, in.name), [&](sql::Writer& writer) {
                                    platform.jobs.secrets().put(writer, where, in.name, in.value, call.actor());
                                  });
                                  return Nothing{};
                                });
  routes.add<Nothing, Nothing>(
      {Method::del, "/v1/secrets/{name}", Permission::of("secret.delete", "{scope}"), BodyLimit::none(),
       Audit::verb("secret.delete"), Place::worker, "Remove a secret; jobs that need it fail from then on."},
      [&platform](Call& call, const Nothing&) {
        const auto where = project_of(call);
        const std::string name(call.parameter("name"));
        if (!is_name(name)) throw Error(Code::not_found, "no such secret in this project");
        call.write(scope_of_secret(where, name),
                   [&](sql::Writer& writer) { platform.jobs.secrets().remove(writer, where, name); });
        return Nothing{};
      });
}

}  // namespace falaj::api
