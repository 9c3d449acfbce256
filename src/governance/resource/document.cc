// SPDX-License-Identifier: Apache-2.0
#include "governance/resource/document.h"

#include <fmt/format.h>

namespace falaj::resource {
struct Envelope {
  std::string api_version, kind;
  Metadata metadata;
  json::value spec = json::object{};
  json::value status;  // what a get says besides; not ours to read
};

namespace {

bool is_label(std::string_view text) {
  return text.size() <= 63 &&
         (text.empty() || (is_utf8(text) && text.find_first_of(",=!\n\r\t") == std::string_view::npos));
}

void check_words(const std::map<std::string, std::string>& words, std::string_view path, bool labels, Faults& faults) {
  for (const auto& [key, value] : words) {
    const auto where = shape::below(path, key);
    if (!is_name(key)) faults.push_back({where, fmt::format("the key must be {}", kNameRule)});
    if (labels && !is_label(value))
      faults.push_back({where, "must be at most 63 bytes of text without ',', '=' and '!'"});
  }
}

void check_level(const Kind& kind, const Metadata& metadata, Faults& faults) {
  const bool tenant = !metadata.tenant.empty(), project = !metadata.project.empty();
  if (project && !tenant) {
    faults.push_back({"metadata.tenant", "required, because a project is given"});
  } else if ((project && kind.levels.project) || (tenant && !project && kind.levels.tenant) ||
             (!tenant && kind.levels.platform)) {
    return;
  } else if (project) {
    faults.push_back({"metadata.project", fmt::format("a {} does not belong to a project", kind.name)});
  } else if (tenant && kind.levels.project) {
    faults.push_back({"metadata.project", fmt::format("required: a {} belongs to a project", kind.name)});
  } else if (tenant) {
    faults.push_back({"metadata.tenant", fmt::format("a {} belongs to the platform, not to a tenant", kind.name)});
  } else {
    faults.push_back({"metadata.tenant", fmt::format("required: a {} belongs to a tenant", kind.name)});
  }
}

}  // namespace
}  // namespace falaj::resource

template <>
struct falaj::Shape<falaj::resource::Envelope> {
  using E = resource::Envelope;
  static constexpr std::string_view name = "Resource";
  static constexpr std::string_view kVersions[] = {resource::kApiVersion};
  static Fields fields() {
    return {field("apiVersion", &E::api_version, "The version of this format.").required().one_of(kVersions),
            field("kind", &E::kind, "What it is.").required(),
            field("metadata", &E::metadata, "Its name and place.").required(),
            field("spec", &E::spec, "What is declared; each kind has its own."),
            field("status", &E::status, "What the platform says of it; left aside when applied.")};
  }
};

namespace falaj::resource {

std::string Document::where(std::string_view path) const {
  if (yaml.positions.empty()) return fmt::format("{}: {}", source, path);
  return fmt::format("{}:{}: {}", source, yaml.position(path).line, path);
}

std::vector<Document> read_documents(const std::string& file, std::string_view yaml) {
  std::vector<Document> out;
  try {
    for (auto& document : parse_yaml(yaml)) {
      if (document.value.is_null()) continue;
      if (out.size() >= kDocumentsMax) throw Error(Code::invalid, fmt::format("more than {} documents", kDocumentsMax));
      out.push_back({file, std::move(document)});
    }
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("{}: {}", file, e.what()), e.faults());
  }
  return out;
}

Document json_document(std::string source, json::value value) { return {std::move(source), {std::move(value), {}}}; }

std::optional<Resource> read_resource(const Registry& registry, const Document& document, Faults& faults) {
  Faults found;
  Envelope envelope;
  decode_into(envelope, document.yaml.value, found);
  if (const auto* kind = registry.find(envelope.kind)) {
    if (found.empty()) {  // otherwise they would speak of what could not be read
      check_words(envelope.metadata.labels, "metadata.labels", true, found);
      check_words(envelope.metadata.annotations, "metadata.annotations", false, found);
      check_level(*kind, envelope.metadata, found);
    }
    kind->decode(envelope.spec, found);
  } else if (!envelope.kind.empty()) {
    found.push_back(
        {"kind", fmt::format("no kind '{}'{}", envelope.kind.substr(0, 60), registry.meant(envelope.kind))});
  }
  for (auto& fault : found) faults.push_back({document.where(fault.where), std::move(fault.what)});
  if (!found.empty()) return std::nullopt;
  return Resource{std::move(envelope.kind), std::move(envelope.metadata), std::move(envelope.spec)};
}

}  // namespace falaj::resource
