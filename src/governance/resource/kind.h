// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/shape.h"
#include "governance/resource/resource.h"
#include "storage/sql/database.h"

namespace falaj::resource {

// Where resources of a kind may be declared.
struct Levels {
  bool platform = false, tenant = false, project = false;
};

// Something a resource needs: it must exist, and cannot be removed as long as it is needed.
struct Reference {
  Key to;
  std::string where;  // the field that says so: "spec.role"
};

// What else is declared, with the changes of the same apply already in it.
class World {
 public:
  virtual ~World() = default;
  virtual std::optional<json::value> spec(const Key& key) const = 0;
};

// A kind with the type of its spec forgotten. Made by make_kind.
struct Kind {
  std::string_view name, plural;  // "RoleBinding", "rolebindings"
  std::string_view help;
  Levels levels;
  std::function<void(const json::value& spec, Faults& faults)> decode;
  std::function<void(const World&, const Metadata&, const json::value& spec, Faults& faults)> check;
  std::function<std::vector<Reference>(const World&, const Metadata&, const json::value& spec)> refers_to;
  std::function<void(sql::Writer&, const sql::Act&, const Metadata&, const json::value* before,
                     const json::value* after)>
      changed;
  std::function<json::object(json::object& definitions)> schema;

  std::string action(std::string_view verb) const;  // "rolebinding.create"
};

// A change of one resource, as its kind sees it, inside the write that makes it.
template <class Spec>
struct ChangeOf {
  sql::Writer& writer;
  const sql::Act& act;
  const Metadata& metadata;
  const Spec* before;  // null = it is created
  const Spec* after;   // null = it is deleted
};

// What one file of kinds/ says. Every function may be left out.
template <class Spec>
struct KindOf {
  std::string_view name, plural, help;
  Levels levels;
  // Faults beyond what the description of Spec finds; paths begin with "spec" or "metadata".
  std::function<void(const World&, const Metadata&, const Spec&, Faults&)> check;
  std::function<std::vector<Reference>(const World&, const Metadata&, const Spec&)> refers_to;
  // Brings the change to the rest of the platform. Throwing undoes the whole apply.
  std::function<void(const ChangeOf<Spec>&)> changed;
};

template <class Spec>
Kind make_kind(KindOf<Spec> of) {
  const auto read = [](const json::value& spec) { return falaj::decode<Spec>(spec, "reading a spec"); };
  Kind kind{of.name, of.plural, of.help, of.levels, {}, {}, {}, {}, {}};
  kind.decode = [](const json::value& spec, Faults& faults) {
    Spec out{};
    decode_into(out, spec, faults, "spec");
  };
  if (of.check)
    kind.check = [read, check = of.check](const World& world, const Metadata& metadata, const json::value& spec,
                                          Faults& faults) { check(world, metadata, read(spec), faults); };
  if (of.refers_to)
    kind.refers_to = [read, refers = of.refers_to](const World& world, const Metadata& metadata,
                                                   const json::value& spec) {
      return refers(world, metadata, read(spec));
    };
  if (of.changed)
    kind.changed = [read, changed = of.changed](sql::Writer& writer, const sql::Act& act, const Metadata& metadata,
                                                const json::value* before, const json::value* after) {
      std::optional<Spec> was, is;
      if (before) was = read(*before);
      if (after) is = read(*after);
      changed({writer, act, metadata, was ? &*was : nullptr, is ? &*is : nullptr});
    };
  kind.schema = [](json::object& definitions) { return schema_of<Spec>(definitions); };
  return kind;
}

// The kinds of a platform, in the order in which they are applied: one may refer only to those before it. Built in the
// composition root from an explicit list.
class Registry {
 public:
  explicit Registry(std::vector<Kind> kinds);
  std::span<const Kind> kinds() const { return kinds_; }
  const Kind* find(std::string_view name) const;  // by its name; null when there is none
  const Kind& get(
      std::string_view any_name) const;           // by name or plural, in any case; throws not_found with what there is
  std::size_t rank(std::string_view name) const;  // Requires: it is one of them
  std::string meant(std::string_view name) const;  // "; did you mean 'Project'?" or "; allowed: ..."

 private:
  std::vector<Kind> kinds_;
};

}  // namespace falaj::resource
