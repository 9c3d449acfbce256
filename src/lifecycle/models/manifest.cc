// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/manifest.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/json.h"

namespace falaj::models {

namespace {

constexpr std::string_view kFormat = "falaj-model-manifest/1";
constexpr std::string_view kSigned = "falaj model manifest 1\n";  // no other thing we sign begins so

[[noreturn]] void malformed(std::string_view why) {
  throw Error(Code::corrupt, fmt::format("not a model manifest: {}", why));
}

std::string text_of(const json::object& object, std::string_view key) {
  const auto* value = object.if_contains(key);
  if (!value || !value->is_string()) malformed(fmt::format("no text '{}'", key));
  return std::string(value->as_string());
}
std::int64_t number_of(const json::object& object, std::string_view key) {
  const auto* value = object.if_contains(key);
  if (!value || !value->is_int64()) malformed(fmt::format("no number '{}'", key));
  return value->as_int64();
}

std::string message_of(std::string_view text) { return std::string(kSigned) + std::string(text); }

}  // namespace

std::string to_text(const Manifest& manifest) {
  json::array files;
  for (const auto& file : manifest.files)
    files.push_back(json::object{{"path", file.path}, {"bytes", file.bytes}, {"content", file.content.hex()}});
  return canonical(json::object{{"format", kFormat},
                                {"tenant", manifest.tenant},
                                {"project", manifest.project},
                                {"name", manifest.name},
                                {"version", manifest.version},
                                {"created_ms", manifest.created_ms},
                                {"run_id", manifest.run_id},
                                {"model_id", manifest.model_id},
                                {"source", manifest.source},
                                {"files", std::move(files)},
                                {"signature", manifest.signature}});
}

Manifest parse_manifest(std::string_view text) {
  json::value value;
  try {
    value = parse_json(text);
  } catch (const Error& e) {
    malformed(e.what());
  }
  if (!value.is_object()) malformed("not an object");
  const auto& object = value.as_object();
  if (text_of(object, "format") != kFormat) malformed("another format");
  Manifest out;
  out.tenant = text_of(object, "tenant");
  out.project = text_of(object, "project");
  out.name = text_of(object, "name");
  out.version = number_of(object, "version");
  out.created_ms = number_of(object, "created_ms");
  out.run_id = text_of(object, "run_id");
  out.model_id = text_of(object, "model_id");
  out.source = text_of(object, "source");
  out.signature = text_of(object, "signature");
  const auto* files = object.if_contains("files");
  if (!files || !files->is_array()) malformed("no list 'files'");
  for (const auto& item : files->as_array()) {
    if (!item.is_object()) malformed("a file is not an object");
    const auto& file = item.as_object();
    try {
      out.files.push_back({text_of(file, "path"), number_of(file, "bytes"), Digest::parse(text_of(file, "content"))});
    } catch (const Error& e) {
      malformed(e.what());
    }
  }
  // One manifest, one text: nothing beside what was read, and in no other spelling.
  if (to_text(out) != text) malformed("not in canonical form");
  return out;
}

SignedManifest sign(const Manifest& manifest, const crypto::Signer& signer) {
  auto text = to_text(manifest);
  const auto signature = signer.sign(as_bytes(message_of(text)));
  return {std::move(text), signature};
}

Manifest verify(const SignedManifest& manifest, const crypto::PublicKey& key) {
  if (!crypto::verify(key, as_bytes(message_of(manifest.text)), manifest.signature))
    throw Error(Code::corrupt, "the manifest is not what was signed");
  return parse_manifest(manifest.text);
}

void check_files(const Manifest& manifest, std::span<const ManifestFile> files) {
  std::map<std::string_view, const ManifestFile*> there;
  for (const auto& file : files)
    if (!there.emplace(file.path, &file).second)
      throw Error(Code::corrupt, fmt::format("a file is there twice: {}", file.path));
  for (const auto& wanted : manifest.files) {
    const auto found = there.find(wanted.path);
    if (found == there.end())
      throw Error(Code::corrupt, fmt::format("a file of the manifest is missing: {}", wanted.path));
    if (*found->second != wanted)
      throw Error(Code::corrupt, fmt::format("a file is not what the manifest says: {}", wanted.path));
    there.erase(found);
  }
  if (!there.empty())
    throw Error(Code::corrupt, fmt::format("a file is not in the manifest: {}", there.begin()->first));
}

}  // namespace falaj::models
