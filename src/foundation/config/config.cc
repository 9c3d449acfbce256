// SPDX-License-Identifier: Apache-2.0
#include "foundation/config/config.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "foundation/base/text.h"
#include "foundation/base/yaml.h"
#include "foundation/config/secret.h"

namespace falaj::config {
namespace {

constexpr std::string_view kPrefix = "FALAJ_";
constexpr std::string_view kSecretRule = "must be a reference file:PATH or env:NAME; a secret itself never stands here";

Kind kind_of(const shape::Type& type) {
  switch (type.kind) {
    case shape::Type::Kind::boolean:
      return Kind::boolean;
    case shape::Type::Kind::whole:
      return Kind::whole;
    case shape::Type::Kind::real:
      return Kind::real;
    case shape::Type::Kind::text:
      return Kind::text;
    case shape::Type::Kind::optional:
      return kind_of(*type.inner);
    default:
      return Kind::structure;
  }
}

const Setting* find(const std::vector<Setting>& settings, std::string_view key) {
  const auto it = std::find_if(settings.begin(), settings.end(), [&](const Setting& s) { return s.key == key; });
  return it == settings.end() ? nullptr : &*it;
}

const json::value* value_at(const json::value& root, std::string_view key) {
  const json::value* at = &root;
  for (const auto part : split(key, '.')) {
    const auto* object = at->if_object();
    at = object ? object->if_contains(part) : nullptr;
    if (!at) return nullptr;
  }
  return at;
}

// False when something that is no section is in the way; decoding will say so.
bool put(json::object& root, std::string_view key, json::value value) {
  json::object* at = &root;
  const auto parts = split(key, '.');
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    auto& next = (*at)[parts[i]];
    if (next.is_null()) next.emplace_object();
    at = next.if_object();
    if (!at) return false;
  }
  (*at)[parts.back()] = std::move(value);
  return true;
}

// What text from the environment or the command line stands for. Left as text when it is not of the kind: decoding
// then finds the fault.
json::value from_text(const Setting& setting, std::string_view text) {
  switch (setting.kind) {
    case Kind::text:
      break;
    case Kind::boolean:
      if (text == "true" || text == "false") return text == "true";
      break;
    case Kind::whole:
      if (const auto v = parse_int(text)) return *v;
      break;
    case Kind::real:
    case Kind::structure: {
      auto documents = parse_yaml(text);
      if (documents.size() == 1) return std::move(documents[0].value);
      break;
    }
  }
  return json::value(text);
}

class Merger {
 public:
  Merger(const std::vector<Setting>& settings, const Sources& sources) : settings_(settings), sources_(sources) {}

  Merged run() {
    take_file();
    for (const auto& variable : sources_.environment)
      if (std::string_view(variable).starts_with(kPrefix)) take_variable(variable);
    for (const auto& text : sources_.overrides) take_override(text);
    check_secrets();
    for (auto& [name, fault] : unknown_variables_)
      if (!named_by_secret_.contains(name)) merged_.faults.push_back(std::move(fault));
    return std::move(merged_);
  }

 private:
  void take_file() {
    std::vector<YamlDocument> documents;
    try {
      documents = parse_yaml(sources_.file_text);
    } catch (const Error& error) {
      merged_.faults.push_back({sources_.file_name, error.what()});
      return;
    }
    if (documents.empty() || documents[0].value.is_null()) return;
    if (documents.size() > 1 || !documents[0].value.is_object()) {
      merged_.faults.push_back({sources_.file_name, "must be one map of sections"});
      return;
    }
    merged_.value = std::move(documents[0].value.get_object());
    for (const auto& [path, at] : documents[0].positions)
      if (!path.empty()) merged_.sources[path] = fmt::format("{}:{}", sources_.file_name, at.line);
    drop_empty_sections(merged_.value, "");
  }

  // "http:" with every line below it commented out is an empty section, not a fault.
  void drop_empty_sections(json::object& section, const std::string& path) {
    for (auto& [key, value] : section) {
      const std::string below = shape::below(path, key) + ".";
      const bool is_section = std::any_of(settings_.begin(), settings_.end(),
                                          [&](const Setting& s) { return std::string_view(s.key).starts_with(below); });
      if (is_section && value.is_null()) value.emplace_object();
      if (is_section && value.is_object()) drop_empty_sections(value.get_object(), shape::below(path, key));
    }
  }

  void take_variable(std::string_view variable) {
    const auto name = variable.substr(0, variable.find('='));
    if (name.size() == variable.size()) return;
    const auto setting =
        std::find_if(settings_.begin(), settings_.end(), [&](const Setting& s) { return s.variable() == name; });
    if (setting != settings_.end()) return take(*setting, variable.substr(name.size() + 1), std::string(name));
    if (std::find(sources_.other_variables.begin(), sources_.other_variables.end(), name) !=
        sources_.other_variables.end())
      return;
    std::vector<std::string> names;
    for (const auto& s : settings_) names.push_back(s.variable());
    unknown_variables_[std::string(name)] = {std::string(name), unknown(name, names)};
  }

  void take_override(std::string_view text) {
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) {
      merged_.faults.push_back({std::string(text.substr(0, 60)), "must be section.key=value (--set)"});
      return;
    }
    const auto key = text.substr(0, equals);
    if (const auto* setting = find(settings_, key)) return take(*setting, text.substr(equals + 1), "--set");
    std::vector<std::string> keys;
    for (const auto& s : settings_) keys.push_back(s.key);
    merged_.faults.push_back({std::string(key), unknown(key, keys) + " (--set)"});
  }

  static std::string unknown(std::string_view word, const std::vector<std::string>& known) {
    const std::vector<std::string_view> views(known.begin(), known.end());
    const auto meant = nearest(word, views);
    return meant ? fmt::format("unknown setting; did you mean '{}'?", *meant) : "unknown setting";
  }

  void take(const Setting& setting, std::string_view text, const std::string& source) {
    try {
      if (!put(merged_.value, setting.key, from_text(setting, text))) return;
    } catch (const Error& error) {
      merged_.faults.push_back({setting.key, fmt::format("{} ({})", error.what(), source)});
      return;
    }
    // Places inside a value that is replaced no longer say where it came from.
    std::erase_if(merged_.sources, [&](const auto& entry) {
      return std::string_view(entry.first).starts_with(setting.key + ".") ||
             std::string_view(entry.first).starts_with(setting.key + "[");
    });
    merged_.sources[setting.key] = source;
  }

  void check_secrets() {
    for (const auto& setting : settings_) {
      if (!setting.bounds.secret) continue;
      const json::value root(merged_.value);
      const auto* value = value_at(root, setting.key);
      const auto* text = value ? value->if_string() : nullptr;
      if (!text || text->empty()) continue;
      if (std::string_view(*text).starts_with("env:")) named_by_secret_.emplace(std::string_view(*text).substr(4));
      if (is_secret_reference(*text)) continue;
      const auto source = merged_.sources.find(setting.key);
      merged_.faults.push_back(
          {setting.key, fmt::format("{} ({})", kSecretRule, source == merged_.sources.end() ? "?" : source->second)});
      put(merged_.value, setting.key, "");  // so that no later message can show it
    }
  }

  const std::vector<Setting>& settings_;
  const Sources& sources_;
  Merged merged_;
  std::map<std::string, Fault> unknown_variables_;
  std::set<std::string, std::less<>> named_by_secret_;
};

std::string shown(const Setting& setting, const json::value& value) {
  if (value.is_null()) return "";
  const auto* whole = value.if_int64();
  if (whole && setting.bounds.unit == Unit::bytes && *whole >= 0)
    return format_bytes(static_cast<std::uint64_t>(*whole));
  if (whole && setting.bounds.unit == Unit::duration) return format_duration_us(*whole);
  if (const auto* text = value.if_string()) return std::string(*text);
  return json::serialize(value);
}

}  // namespace

std::string Setting::variable() const {
  std::string out(kPrefix);
  for (const char c : key)
    out += c == '.' || c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return out;
}

std::string Setting::allowed() const {
  if (bounds.secret) return "file:PATH or env:NAME";
  if (!bounds.one_of.empty()) return fmt::format("{}", fmt::join(bounds.one_of, ", "));
  if (bounds.text.accepts) return std::string(bounds.text.rule);
  if (kind == Kind::boolean) return "true, false";
  if (!bounds.low) return "";
  const std::string range = fmt::format("{} to {}", shown(*this, *bounds.low), shown(*this, *bounds.high));
  return kind == Kind::text ? range + " bytes" : kind == Kind::structure ? range + " entries" : range;
}

Merged merge(const std::vector<Setting>& settings, const Sources& sources) { return Merger(settings, sources).run(); }

void refuse_faults(const std::vector<Setting>& settings, Merged merged, Faults decoding) {
  for (auto& fault : decoding) {
    if (const auto source = merged.sources.find(fault.where); source != merged.sources.end())
      fault.what += fmt::format(" ({})", source->second);
    else if (const auto* setting = find(settings, fault.where); setting && setting->bounds.required)
      fault.what +=
          fmt::format(" (give it in the file, in {} or with --set {}=...)", setting->variable(), setting->key);
    merged.faults.push_back(std::move(fault));
  }
  refuse_if_any("configuration", std::move(merged.faults));
}

std::vector<Row> rows(const std::vector<Setting>& settings, const json::value& loaded, const Merged& merged) {
  std::vector<Row> out;
  for (const auto& setting : settings) {
    const auto* found = value_at(loaded, setting.key);
    std::string value = found ? shown(setting, *found) : "";
    std::string standard = shown(setting, setting.standard);
    if (setting.bounds.secret) {
      value = value.empty() ? "(not set)" : "(set)";
      standard = standard.empty() ? "(not set)" : "(set)";
    }
    const auto source = merged.sources.find(setting.key);
    out.push_back({setting.key, std::move(value), std::move(standard),
                   source == merged.sources.end() ? "default" : source->second, std::string(setting.help),
                   setting.allowed()});
  }
  return out;
}

void add_settings(const Fields& fields, const void* standard, const std::string& path, std::vector<Setting>& out) {
  for (const auto& field : fields) {
    auto key = shape::below(path, field.name);
    const void* member = shape::member_of(standard, field);
    if (field.type->kind == shape::Type::Kind::structure)
      add_settings(field.type->fields(), member, key, out);
    else
      out.push_back(
          {std::move(key), field.help, field.bounds, kind_of(*field.type), shape::encode(*field.type, member)});
  }
}

void require_distinct_variables(const std::vector<Setting>& settings) {
  std::set<std::string> seen;
  for (const auto& setting : settings)
    CHECK(seen.insert(setting.variable()).second, "two settings would have the same environment variable");
}

}  // namespace falaj::config
