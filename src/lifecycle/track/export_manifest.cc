// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/export_manifest.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/base/shape.h"
#include "foundation/base/text.h"
#include "lifecycle/track/artifacts.h"
#include "lifecycle/track/logged_models_tables.h"
#include "lifecycle/track/types.h"

namespace falaj::track {

namespace {

constexpr std::string_view kAlgorithm = "ed25519";
constexpr std::string_view kSigned = "falaj run export 1\n";  // no other thing we sign begins so

struct SignatureText {
  std::string algorithm, public_key, signature;
};

bool is_digest(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}
constexpr TextRule kDigestRule{is_digest, "64 hexadecimal digits"};

bool is_run_id(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}
constexpr TextRule kRunIdRule{is_run_id, "32 hexadecimal digits"};

template <class Array>
Array fixed(std::string_view what, std::string_view hex) {
  Array out{};
  const auto bytes = from_hex(hex);
  if (bytes.size() != out.size())
    throw Error(Code::invalid, fmt::format("{}: must have {} hexadecimal digits", what, 2 * out.size()));
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return out;
}

std::string message_of(std::string_view text) { return std::string(kSigned) + std::string(text); }

[[noreturn]] void refuse(const std::string& why) { throw Error(Code::invalid, "not an export of runs: " + why); }

// The runs first, each with its points after it, then all artifacts: whoever reads the file knows every run and model
// before the first large file comes.
void check_order(const ExportManifest& manifest) {
  std::set<std::string_view> runs, names;
  for (const auto& run : manifest.runs)
    if (!runs.insert(run).second) refuse(fmt::format("run {} is listed twice", run));
  std::size_t described = 0;
  std::string_view last_run;
  bool artifacts = false;
  for (const auto& member : manifest.members) {
    const auto name = parse_member_name(member.name);
    if (!names.insert(member.name).second) refuse(fmt::format("'{}' is listed twice", member.name));
    if (name.kind != MemberName::Kind::model_artifact && !runs.contains(name.id))
      refuse(fmt::format("'{}' is of a run that is not listed", member.name));
    if (name.is_file()) {
      if (!member.content) refuse(fmt::format("'{}' has no content digest", member.name));
      artifacts = true;
      continue;
    }
    if (artifacts) refuse(fmt::format("'{}' stands after the artifacts", member.name));
    if (name.kind == MemberName::Kind::points && last_run != name.id)
      refuse(fmt::format("'{}' does not stand after its run", member.name));
    if (name.kind == MemberName::Kind::run) {
      if (described >= manifest.runs.size() || manifest.runs[described] != name.id)
        refuse(fmt::format("'{}' is not in the order of the runs", member.name));
      last_run = manifest.runs[described++];
    }
  }
  if (described != manifest.runs.size()) refuse(fmt::format("run {} has no file", manifest.runs[described]));
}

}  // namespace
}  // namespace falaj::track

namespace falaj {

template <>
struct Shape<track::ExportMember> {
  using T = track::ExportMember;
  static constexpr std::string_view name = "ExportMember";
  static Fields fields() {
    return {field("name", &T::name, "Its name.").required().length(1, 1024),
            field("bytes", &T::bytes, "Its size.").required().range(0, std::int64_t{1} << 44),
            field("sha256", &T::sha256, "Of its bytes.").required().text(track::kDigestRule),
            field("content", &T::content, "Content digest of an artifact.").text(track::kDigestRule)};
  }
};
template <>
struct Shape<track::ExportExperiment> {
  using T = track::ExportExperiment;
  static constexpr std::string_view name = "ExportExperiment";
  static Fields fields() {
    return {field("name", &T::name, "Its name.").required().length(1, 4 * track::kExperimentNameBytesMax),
            field("tags", &T::tags, "Its tags.")};
  }
};
template <>
struct Shape<track::ExportManifest> {
  using T = track::ExportManifest;
  static constexpr std::string_view name = "ExportManifest";
  static Fields fields() {
    return {
        field("format", &T::format, "Which version.").required(),
        field("instance", &T::instance, "Where it was made."),
        field("tenant", &T::tenant, "Of which tenant."),
        field("project", &T::project, "Of which project."),
        field("by", &T::by, "Who made it."),
        field("created_ms", &T::created_ms, "When.").required(),
        field("experiments", &T::experiments, "Of its runs.").required().length(0, track::kExportRunsMax),
        field("runs", &T::runs, "Their ids.").required().length(1, track::kExportRunsMax).text(track::kRunIdRule),
        field("members", &T::members, "Every other file, in order.").required().length(1, track::kExportMembersMax)};
  }
};
template <>
struct Shape<track::SignatureText> {
  using T = track::SignatureText;
  [[maybe_unused]] static constexpr std::string_view name = "SignatureText";
  static Fields fields() {
    return {field("algorithm", &T::algorithm, "How.").required(),
            field("public_key", &T::public_key, "By whom.").required().text(track::kDigestRule),
            field("signature", &T::signature, "64 bytes.").required().length(128, 128)};
  }
};

}  // namespace falaj

namespace falaj::track {

crypto::PublicKey parse_public_key(std::string_view hex) { return fixed<crypto::PublicKey>("public key", hex); }

std::string to_text(const ExportManifest& manifest) { return canonical(encode(manifest)) + "\n"; }

std::string sign_export(std::string_view text, const crypto::Signer& with) {
  const auto signature = with.sign(as_bytes(message_of(text)));
  return canonical(encode(SignatureText{std::string(kAlgorithm), to_hex(with.public_key()), to_hex(signature)})) + "\n";
}

ExportManifest verify_export(std::string_view text, std::string_view signature,
                             std::span<const crypto::PublicKey> trusted) {
  const auto by = decode<SignatureText>(parse_json(trim(signature)), kExportSignatureName);
  if (by.algorithm != kAlgorithm) refuse(fmt::format("signed by an unknown algorithm: '{}'", by.algorithm));
  const auto key = parse_public_key(by.public_key);
  if (!crypto::verify(key, as_bytes(message_of(text)), fixed<crypto::Signature>("signature", by.signature)))
    refuse("the manifest is not what was signed");
  if (std::find(trusted.begin(), trusted.end(), key) == trusted.end())
    throw Error(Code::denied,
                fmt::format("the export was signed by a key that is not trusted here: if it is the key of the platform "
                            "you expect it from, give it with --key: {}",
                            by.public_key));
  auto parsed = parse_json(trim(text));
  // Before anything else: another version may have other fields.
  const auto* object = parsed.if_object();
  const auto* format = object ? object->if_contains("format") : nullptr;
  if (!format || !format->is_string() || format->as_string() != kExportFormat)
    refuse(fmt::format("its format is not {}", kExportFormat));
  auto manifest = decode<ExportManifest>(parsed, kExportManifestName);
  check_order(manifest);
  return manifest;
}

MemberName parse_member_name(std::string_view name) {
  constexpr std::string_view kRuns = "runs/", kModels = "models/", kArtifacts = "artifacts/";
  const bool model = name.starts_with(kModels);
  const auto id_begin = model ? kModels.size() : kRuns.size(), id_end = id_begin + (model ? 34 : 32);
  const auto bad = [&] { refuse(fmt::format("no file of an export has the name '{}'", name.substr(0, 200))); };
  if (!(model || name.starts_with(kRuns)) || name.size() <= id_end || name[id_end] != '/') bad();
  const auto id = name.substr(id_begin, id_end - id_begin), rest = name.substr(id_end + 1);
  if (!(model ? is_model_id(id) : is_run_id(id))) bad();
  if (!model && rest == "run.json") return {MemberName::Kind::run, std::string(id), ""};
  if (!model && rest == "points.csv") return {MemberName::Kind::points, std::string(id), ""};
  if (!rest.starts_with(kArtifacts)) bad();
  const auto path = rest.substr(kArtifacts.size());
  if (path.empty() || checked_artifact_path(path) != path) bad();
  return {model ? MemberName::Kind::model_artifact : MemberName::Kind::artifact, std::string(id), std::string(path)};
}

}  // namespace falaj::track
