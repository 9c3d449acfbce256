// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/yaml.h"
#include "governance/resource/kind.h"
#include "governance/resource/resource.h"

namespace falaj::resource {

inline constexpr std::size_t kDocumentsMax = 1'000;  // in one apply

// One declaration as it came in, able to say where each of its parts stands.
struct Document {
  std::string source;  // the file, or what else it came from
  YamlDocument yaml;   // without positions when it came as JSON

  // "roles.yaml:12: spec.rules[0]", "documents[3]: spec.rules[0]"
  std::string where(std::string_view path) const;
};

// The documents of one YAML text; empty ones are left out. Throws invalid.
std::vector<Document> read_documents(const std::string& file, std::string_view yaml);
Document json_document(std::string source, json::value value);

// The resource a document declares, of a registered kind and at a level that kind has. Adds every fault, with its
// place, and gives nothing when there is one.
std::optional<Resource> read_resource(const Registry& registry, const Document& document, Faults& faults);

}  // namespace falaj::resource
