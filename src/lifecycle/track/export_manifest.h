// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/crypto/sign.h"

namespace falaj::track {

inline constexpr std::string_view kExportFormat = "falaj-run-export/1";
inline constexpr std::string_view kExportManifestName = "manifest.json", kExportSignatureName = "manifest.sig";
inline constexpr std::size_t kExportManifestBytesMax = std::size_t{32} << 20, kExportSignatureBytesMax = 4096;
inline constexpr std::size_t kExportRunsMax = 10'000, kExportMembersMax = 100'000;

// A file of an export.
struct ExportMember {
  std::string name;  // "runs/<id>/run.json", "runs/<id>/points.csv", "{runs,models}/<id>/artifacts/<path>"
  std::int64_t bytes = 0;
  std::string sha256;                  // of its bytes
  std::optional<std::string> content;  // of an artifact: as vault::Entry has it, to know what is there already
};
struct ExportExperiment {
  std::string name;
  std::map<std::string, std::string> tags;
};

// What an export holds: every other file of it, in order. docs/formats/run_export.md
struct ExportManifest {
  std::string format{kExportFormat};
  std::string instance, tenant, project, by;
  std::int64_t created_ms = 0;
  std::vector<ExportExperiment> experiments;  // of its runs, by name
  std::vector<std::string> runs;
  std::vector<ExportMember> members;
};

std::string to_text(const ExportManifest& manifest);                         // one line of canonical JSON
std::string sign_export(std::string_view text, const crypto::Signer& with);  // what manifest.sig holds

// Is this what the holder of a trusted key signed? Throws denied when another key signed it, invalid when it is no
// manifest, or not one of this version, or names what an export does not have.
ExportManifest verify_export(std::string_view text, std::string_view signature,
                             std::span<const crypto::PublicKey> trusted);

// "runs/<id>/artifacts/<path>" taken apart; Requires: a name of a verified manifest.
struct MemberName {
  enum class Kind { run, points, artifact, model_artifact } kind;
  std::string id, path;  // of the run, or the model
  bool is_file() const { return kind == Kind::artifact || kind == Kind::model_artifact; }
};
MemberName parse_member_name(std::string_view name);  // throws invalid

crypto::PublicKey parse_public_key(std::string_view hex);  // throws invalid

}  // namespace falaj::track
