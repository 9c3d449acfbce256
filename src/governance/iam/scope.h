// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace falaj::iam {

// Where something is, as a path that has been checked:
//   "/"                            the platform          "/zone/uae-north"              a thing of the platform
//   "/t/acme"                      a tenant              "/t/acme/group/ml"             a thing of a tenant
//   "/t/acme/p/flights"            a project             "/t/acme/p/flights/blob/a/b"   a thing of a project
// A kind is 2 to 40 of a-z, 0-9, '-' and begins with a letter. The name of a thing is the rest of the path and may
// hold '/'; it is a name in a table and never one of a file.
class Scope {
 public:
  static constexpr std::size_t kPathBytesMax = 1024;

  Scope() : path_("/") {}
  static Scope parse(std::string_view path);  // throws invalid
  static Scope of_tenant(std::string_view tenant);
  static Scope of_project(std::string_view tenant, std::string_view project);
  // A thing of the platform (no tenant), of a tenant (no project) or of a project.
  static Scope of(std::string_view tenant, std::string_view project, std::string_view kind, std::string_view name);

  const std::string& str() const { return path_; }
  std::string_view tenant() const;   // "" for the platform and its things
  std::string_view project() const;  // "" above projects
  std::string_view kind() const;     // "" unless it is a thing
  std::string_view name() const;

  bool contains(const Scope& other) const;  // itself, or something below it

  // The paths that hold this one, widest first, itself last.
  struct Chain {
    std::array<std::string_view, 4> paths;
    std::size_t size = 0;
    const std::string_view* begin() const { return paths.data(); }
    const std::string_view* end() const { return paths.data() + size; }
  };
  Chain chain() const;

  friend bool operator==(const Scope& a, const Scope& b) { return a.path_ == b.path_; }
  friend auto operator<=>(const Scope& a, const Scope& b) { return a.path_ <=> b.path_; }

 private:
  std::string path_;
  // Ends of the parts within path_; 0 when there is no such part.
  std::uint16_t tenant_end_ = 0, project_end_ = 0, kind_end_ = 0;
};

// `path` as seen from `scope`: "" for the scope itself, "p/flights" for a project of a tenant.
// Requires: scope contains path.
std::string_view relative(std::string_view scope, std::string_view path);

}  // namespace falaj::iam
