// SPDX-License-Identifier: Apache-2.0
#include "governance/iam/scope.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::iam {
namespace {

constexpr std::string_view kRule =
    "must be '/', '/t/TENANT', '/t/TENANT/p/PROJECT', or one of these followed by '/KIND/NAME'";

[[noreturn]] void refuse(std::string_view path) {
  throw Error(Code::invalid, fmt::format("scope {}, not '{}'", kRule, path.substr(0, 100)));
}

bool is_kind(std::string_view text) {
  return text.size() >= 2 && text.size() <= 40 && text.front() >= 'a' && text.front() <= 'z' &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

bool is_thing_name(std::string_view text) {
  return !text.empty() && is_utf8(text) && std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

// If `rest` begins with "t/NAME" (or "p/NAME"), its length; otherwise 0.
std::size_t named_part(std::string_view rest, std::string_view marker) {
  if (!rest.starts_with(marker)) return 0;
  const auto name = rest.substr(marker.size(), rest.find('/', marker.size()) - marker.size());
  return is_name(name) ? marker.size() + name.size() : 0;
}

}  // namespace

Scope Scope::parse(std::string_view path) {
  if (path.size() > kPathBytesMax || !path.starts_with('/')) refuse(path);
  Scope out;
  out.path_ = path;
  if (path.size() == 1) return out;
  std::size_t at = 0;  // of the '/' before what is not read yet
  if (const auto n = named_part(path.substr(1), "t/")) {
    at = 1 + n;
    out.tenant_end_ = static_cast<std::uint16_t>(at);
    if (at < path.size()) {
      if (const auto m = named_part(path.substr(at + 1), "p/")) {
        at += 1 + m;
        out.project_end_ = static_cast<std::uint16_t>(at);
      }
    }
  }
  if (at == path.size()) return out;
  const auto rest = path.substr(at + 1);
  const auto slash = rest.find('/');
  if (slash == std::string_view::npos || !is_kind(rest.substr(0, slash)) || !is_thing_name(rest.substr(slash + 1)))
    refuse(path);
  out.kind_end_ = static_cast<std::uint16_t>(at + 1 + slash);
  return out;
}

namespace {
// A part that holds a '/' would have moved the thing elsewhere.
Scope exactly(std::string_view path, std::string_view tenant, std::string_view project, std::string_view kind) {
  auto scope = Scope::parse(path);
  if (scope.tenant() != tenant || scope.project() != project || scope.kind() != kind) refuse(path);
  return scope;
}
}  // namespace

Scope Scope::of_tenant(std::string_view tenant) { return exactly(fmt::format("/t/{}", tenant), tenant, "", ""); }

Scope Scope::of_project(std::string_view tenant, std::string_view project) {
  return exactly(fmt::format("/t/{}/p/{}", tenant, project), tenant, project, "");
}

Scope Scope::of(std::string_view tenant, std::string_view project, std::string_view kind, std::string_view name) {
  std::string path;
  if (!tenant.empty()) path += fmt::format("/t/{}", tenant);
  if (!project.empty()) path += fmt::format("/p/{}", project);
  return exactly(fmt::format("{}/{}/{}", path, kind, name), tenant, project, kind);
}

std::string_view Scope::tenant() const {
  return tenant_end_ ? std::string_view(path_).substr(3, tenant_end_ - 3U) : std::string_view();
}

std::string_view Scope::project() const {
  return project_end_ ? std::string_view(path_).substr(tenant_end_ + 3U, project_end_ - tenant_end_ - 3U)
                      : std::string_view();
}

std::string_view Scope::kind() const {
  if (!kind_end_) return {};
  const std::size_t begin = std::max(tenant_end_, project_end_) + 1U;
  return std::string_view(path_).substr(begin, kind_end_ - begin);
}

std::string_view Scope::name() const {
  return kind_end_ ? std::string_view(path_).substr(kind_end_ + 1U) : std::string_view();
}

bool Scope::contains(const Scope& other) const {
  const auto chain = other.chain();
  return std::find(chain.begin(), chain.end(), std::string_view(path_)) != chain.end();
}

Scope::Chain Scope::chain() const {
  Chain out;
  const std::string_view path = path_;
  out.paths[out.size++] = path.substr(0, 1);
  if (tenant_end_) out.paths[out.size++] = path.substr(0, tenant_end_);
  if (project_end_) out.paths[out.size++] = path.substr(0, project_end_);
  if (kind_end_) out.paths[out.size++] = path;
  return out;
}

std::string_view relative(std::string_view scope, std::string_view path) {
  if (scope.size() == path.size()) return {};
  return path.substr(scope.size() == 1 ? 1 : scope.size() + 1);
}

}  // namespace falaj::iam
