// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "foundation/base/bytes.h"
#include "foundation/base/shape.h"
#include "foundation/base/text.h"
#include "governance/iam/scope.h"

namespace falaj::resource {

inline constexpr std::string_view kApiVersion = "falaj/v1";

// Which resource: the same for all its revisions.
struct Key {
  std::string kind;             // "Project"
  std::string tenant, project;  // where it belongs; "" = above that level
  std::string name;

  std::string str() const;  // "Project acme/flights": for people
  // Where changing it must be allowed: its scope, but a tenant is a thing of the platform, so that its administrators
  // cannot widen what it may be.
  iam::Scope change_scope() const;
  iam::Scope scope() const;  // "/t/acme/p/flights", "/t/acme/group/ml": for permissions and the audit log
  friend auto operator<=>(const Key&, const Key&) = default;
};

struct Metadata {
  std::string name, tenant, project;
  std::map<std::string, std::string> labels;       // to select by
  std::map<std::string, std::string> annotations;  // to keep
  std::string description;
  std::optional<std::int64_t> revision;  // given: refused unless it is the current one; 0 = none must be there
};

// As it was declared: specs are kept as they were written, so that people get back what they wrote.
struct Resource {
  std::string kind;
  Metadata metadata;
  json::value spec;

  Key key() const { return {kind, metadata.tenant, metadata.project, metadata.name}; }
  // Without the revision: what makes two declarations the same.
  json::value body() const;
  Digest digest() const;
};

// A resource at one of its revisions.
struct Stored {
  Resource resource;
  std::int64_t revision = 0;
  Digest digest;
  std::int64_t created_us = 0;  // when the resource was made
  std::int64_t at_us = 0;       // when this revision was
  std::string actor;            // and by whom

  // The envelope with its revision and a status, as people and clients see it. It can be changed and applied again.
  json::value json() const;
};

// One entry of a resource's history; no resource = it was deleted.
struct Revision {
  std::int64_t revision = 0;
  std::string verb;  // "create", "update", "delete"
  std::string actor;
  std::int64_t at_us = 0;
  std::optional<Resource> resource;
  std::optional<Digest> digest;
};

// Reads a body that was stored; throws corrupt.
Resource read_body(std::string_view body);

// "- spec.zone: a", "+ spec.zone: b", "~ spec.zone: a -> b" for what differs; null = not there.
std::vector<std::string> diff(const json::value& before, const json::value& after);

}  // namespace falaj::resource

template <>
struct falaj::Shape<falaj::resource::Metadata> {
  using M = resource::Metadata;
  static constexpr std::string_view name = "Metadata";
  static Fields fields() {
    return {field("name", &M::name, "Unique among those of its kind in the same project, tenant or platform.")
                .required()
                .text({is_name, kNameRule}),
            field("tenant", &M::tenant, "The tenant it belongs to.").text({is_name, kNameRule}),
            field("project", &M::project, "The project of the tenant it belongs to.").text({is_name, kNameRule}),
            field("labels", &M::labels, "Short words to select by.").length(0, 64),
            field("annotations", &M::annotations, "Anything worth keeping.").length(0, 64),
            field("description", &M::description, "One sentence for people.").length(0, 1024),
            field("revision", &M::revision,
                  "If given, the change is refused unless this is the current one; 0 = it must not exist.")
                .range(0, 1'000'000'000)};
  }
};
