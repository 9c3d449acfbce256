// SPDX-License-Identifier: Apache-2.0
#pragma once

// The values of the model registry. Times are milliseconds since 1970, as clients of this field send them.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/bytes.h"
#include "lifecycle/track/types.h"

namespace falaj::models {

using track::Found;
using track::KeyValue;
using track::Where;

// Deprecated in favour of aliases, but older clients still move versions through them.
enum class Stage { none, staging, production, archived };
std::string_view name(Stage stage);                       // "None", "Staging", "Production", "Archived"
std::optional<Stage> parse_stage(std::string_view text);  // in any case

struct Alias {
  std::string alias;
  std::int64_t version = 0;
  friend bool operator==(const Alias&, const Alias&) = default;
};

struct Version {
  std::string model;
  std::int64_t model_row = 0;  // stays when the model is renamed
  std::int64_t number = 0;     // 1, 2, 3, ... of its model; never used again
  std::int64_t created_ms = 0, updated_ms = 0;
  std::string created_by;
  Stage stage = Stage::none;
  std::string description;
  std::string source;                      // as the client gave it
  std::string run_id, run_link, model_id;  // "" = none
  std::string origin_run;                  // that made it, as far as the source tells; "" = not known
  std::vector<KeyValue> tags;
  std::vector<std::string> aliases;
};

struct Model {
  std::int64_t row = 0;
  std::string name;
  std::int64_t created_ms = 0, updated_ms = 0;
  std::string created_by, description;
  bool needs_approval = false;  // promotions wait for a second person
  std::vector<KeyValue> tags;
  std::vector<Alias> aliases;
  std::vector<Version> latest;  // the newest of each stage that has one
};

struct NewVersion {
  std::string model, source;
  std::string run_id, run_link, model_id, description;
  std::vector<KeyValue> tags;
};

struct Search {
  std::string filter;
  std::vector<std::string> order_by;
  std::size_t offset = 0, limit = 100;
};

// A version that was made of a logged model.
struct Registration {
  std::string model_id, name;
  std::int64_t version = 0;
};

inline constexpr std::size_t kNameMax = 256, kNameBytesMax = 768, kAliasMax = 255;
inline constexpr std::size_t kDescriptionMax = 16'384, kTagMax = 100'000, kTagsMax = 100;
inline constexpr std::size_t kSourceMax = 2'000, kFilesMax = 10'000;
inline constexpr std::size_t kSearchModelsMax = 1'000, kSearchVersionsMax = 200'000;
inline constexpr std::string_view kPromptTag = "mlflow.prompt.is_prompt";

// Where clients read a version's files: "mlflow-artifacts:/@versions/17/3" with its model's row and its number.
inline constexpr std::string_view kVersionsRoot = "@versions";
std::string artifact_uri(const Version& version);
// Reads the path of it back: "17/3/data/model.onnx" (what follows "@versions/"); nothing when it is no such path.
struct VersionPath {
  std::int64_t model_row = 0, number = 0;
  std::string path;  // "" = the root
};
std::optional<VersionPath> parse_version_path(std::string_view after_root);

}  // namespace falaj::models
