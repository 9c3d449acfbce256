// SPDX-License-Identifier: Apache-2.0
#pragma once

// Settings of a program: a described struct (base/shape.h) filled from, each over the one before,
//   its own defaults < a YAML file < FALAJ_SECTION_KEY in the environment < --set section.key=value.
// A described struct inside it is a section. An unknown key is a fault; all faults are reported at once, each with the
// source of the value. This knows no setting of its own: a module describes its settings beside its code.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "foundation/base/shape.h"

namespace falaj::config {

struct Sources {
  std::string file_name = {};                     // for messages
  std::string file_text = {};                     // YAML; "" when there is no file
  std::vector<std::string> environment = {};      // "NAME=value"; only names that begin with FALAJ_ are looked at
  std::vector<std::string> overrides = {};        // "section.key=value"
  std::vector<std::string> other_variables = {};  // FALAJ_ names that are no settings
};

enum class Kind { boolean, whole, real, text, structure };

// One key: "http.port".
struct Setting {
  std::string key;
  std::string_view help;
  Bounds bounds;
  Kind kind;
  json::value standard;  // its default; null: none

  std::string variable() const;  // FALAJ_HTTP_PORT
  std::string allowed() const;   // in words
};

// A line of `config explain`. A secret's value is "(set)" or "(not set)".
struct Row {
  std::string key, value, standard, source, help, allowed;
};

// Every setting of T, sections in order of description.
template <Described T>
std::vector<Setting> settings_of();

// Throws invalid with every fault. A function `static void check(const T&, Faults&)` in Shape<T> may add faults that
// concern several settings.
template <Described T>
T load(const Sources& sources);

// As load, then what each setting is and where it came from.
template <Described T>
std::vector<Row> explain(const Sources& sources);

// ---------------------------------------------------------------------------------------------------------------------

struct Merged {
  json::object value;
  std::map<std::string, std::string, std::less<>> sources;  // by key, of what is not a default
  Faults faults;
};
Merged merge(const std::vector<Setting>& settings, const Sources& sources);
// Adds to each fault of decoding where its value came from, and throws if there is any, those of merging included.
void refuse_faults(const std::vector<Setting>& settings, Merged merged, Faults decoding);
std::vector<Row> rows(const std::vector<Setting>& settings, const json::value& loaded, const Merged& merged);
void require_distinct_variables(const std::vector<Setting>& settings);

void add_settings(const Fields& fields, const void* standard, const std::string& path, std::vector<Setting>& out);

template <Described T>
std::vector<Setting> settings_of() {
  std::vector<Setting> out;
  const T standard{};
  add_settings(shape::fields_of<T>(), &standard, "", out);
  require_distinct_variables(out);
  return out;
}

template <Described T>
std::pair<T, Merged> load_merged(const std::vector<Setting>& settings, const Sources& sources) {
  Merged merged = merge(settings, sources);
  T out{};
  Faults faults;
  decode_into(out, merged.value, faults);
  if constexpr (requires { Shape<T>::check(out, faults); }) {
    if (faults.empty() && merged.faults.empty()) Shape<T>::check(out, faults);
  }
  refuse_faults(settings, merged, std::move(faults));
  return {std::move(out), std::move(merged)};
}

template <Described T>
T load(const Sources& sources) {
  return load_merged<T>(settings_of<T>(), sources).first;
}

template <Described T>
std::vector<Row> explain(const Sources& sources) {
  const auto settings = settings_of<T>();
  const auto [loaded, merged] = load_merged<T>(settings, sources);
  return rows(settings, encode(loaded), merged);
}

}  // namespace falaj::config
