// SPDX-License-Identifier: Apache-2.0
#include "governance/resource/resource.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/crypto/hash.h"

namespace falaj::resource {
namespace {

json::value without_empty(const Metadata& metadata) {
  auto out = encode(metadata).as_object();
  out.erase("revision");
  for (const auto* key : {"tenant", "project", "description"})
    if (out.at(key).as_string().empty()) out.erase(key);
  for (const auto* key : {"labels", "annotations"})
    if (out.at(key).as_object().empty()) out.erase(key);
  return out;
}

// A value in one line, short enough to read.
std::string shown(const json::value& value) {
  constexpr std::size_t kMost = 80;
  auto text = canonical(value);
  if (value.is_string() && !text.empty()) text = std::string(value.as_string());
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  if (text.size() <= kMost) return text;
  text.resize(kMost);
  while (!text.empty() && !is_utf8(text)) text.pop_back();
  return text + "...";
}

void diff_into(std::vector<std::string>& out, const std::string& path, const json::value* before,
               const json::value* after) {
  const bool maps = (!before || before->is_object()) && (!after || after->is_object());
  const bool lists = (!before || before->is_array()) && (!after || after->is_array());
  if (maps) {
    std::map<std::string_view, std::pair<const json::value*, const json::value*>> members;
    if (before)
      for (const auto& m : before->as_object()) members[m.key()].first = &m.value();
    if (after)
      for (const auto& m : after->as_object()) members[m.key()].second = &m.value();
    for (const auto& [key, sides] : members) diff_into(out, shape::below(path, key), sides.first, sides.second);
  } else if (lists) {
    const auto at = [](const json::value* list, std::size_t i) {
      return list ? list->as_array().if_contains(i) : nullptr;
    };
    const auto count = std::max(before ? before->as_array().size() : 0, after ? after->as_array().size() : 0);
    for (std::size_t i = 0; i < count; ++i) diff_into(out, shape::below(path, i), at(before, i), at(after, i));
  } else if (!before) {
    out.push_back(fmt::format("+ {}: {}", path, shown(*after)));
  } else if (!after) {
    out.push_back(fmt::format("- {}: {}", path, shown(*before)));
  } else if (*before != *after) {
    out.push_back(fmt::format("~ {}: {} -> {}", path, shown(*before), shown(*after)));
  }
}

}  // namespace

std::string Key::str() const {
  if (tenant.empty()) return fmt::format("{} {}", kind, name);
  if (project.empty()) return fmt::format("{} {}/{}", kind, tenant, name);
  return fmt::format("{} {}/{}/{}", kind, tenant, project, name);
}

iam::Scope Key::scope() const {
  if (kind == "Tenant") return iam::Scope::of_tenant(name);
  if (kind == "Project") return iam::Scope::of_project(tenant, name);
  return iam::Scope::of(tenant, project, lower(kind), name);
}

iam::Scope Key::change_scope() const { return kind == "Tenant" ? iam::Scope::of("", "", "tenant", name) : scope(); }

json::value Resource::body() const {
  return json::object{
      {"apiVersion", kApiVersion}, {"kind", kind}, {"metadata", without_empty(metadata)}, {"spec", spec}};
}

Digest Resource::digest() const { return crypto::sha256(canonical(body())); }

json::value Stored::json() const {
  auto out = resource.body();
  out.as_object()["metadata"].as_object()["revision"] = revision;
  out.as_object()["status"] = {{"revision", revision},
                               {"digest", digest.hex()},
                               {"created_us", created_us},
                               {"updated_us", at_us},
                               {"updated_by", actor}};
  return out;
}

Resource read_body(std::string_view body) {
  try {
    const auto value = parse_json(body);
    Resource out;
    out.kind = std::string(value.at("kind").as_string());
    out.metadata = decode<Metadata>(value.at("metadata"), "reading a stored resource");
    out.spec = value.at("spec");
    return out;
  } catch (const std::exception& e) {
    throw Error(Code::corrupt, fmt::format("stored resource cannot be read: {}", e.what()));
  }
}

std::vector<std::string> diff(const json::value& before, const json::value& after) {
  std::vector<std::string> out;
  diff_into(out, "", before.is_null() ? nullptr : &before, after.is_null() ? nullptr : &after);
  return out;
}

}  // namespace falaj::resource
