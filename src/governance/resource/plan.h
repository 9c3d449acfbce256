// SPDX-License-Identifier: Apache-2.0
#pragma once

// From documents to steps. Private to this directory.

#include <optional>
#include <span>
#include <vector>

#include "governance/resource/document.h"
#include "governance/resource/resources.h"

namespace falaj::resource {

std::string_view verb_of(Outcome outcome);  // "create", ...; "read" for what stays as it is

struct Declared {
  const Document* document;
  const Kind* kind;
  Resource resource;
};

// Reads every document; throws invalid with all faults. Sorted into the order of applying.
std::vector<Declared> read_all(const Registry& registry, std::span<const Document> documents);

struct Step {
  const Kind* kind = nullptr;
  Outcome outcome = Outcome::unchanged;
  Key key;
  std::optional<Stored> before;
  std::optional<Resource> after;
  std::vector<Reference> references;

  Change change() const;
};

// Compares with what is stored and checks permissions, revisions and references, in that order. Throws denied,
// conflict, invalid.
std::vector<Step> plan_apply(sql::Reader& reader, std::span<const Declared> declared, const Authorise& authorise);
std::vector<Step> plan_remove(sql::Reader& reader, const Registry& registry, std::span<const Key> keys,
                              const Authorise& authorise);

}  // namespace falaj::resource
