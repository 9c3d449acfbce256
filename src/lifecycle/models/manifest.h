// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/crypto/sign.h"

namespace falaj::models {

struct ManifestFile {
  std::string path;  // below the version's root
  std::int64_t bytes = 0;
  Digest content;  // as blob::ObjectInfo has it
  friend bool operator==(const ManifestFile&, const ManifestFile&) = default;
};

// What a version is: every file and its content. docs/formats/model_manifest.md
struct Manifest {
  std::string tenant, project, name;
  std::int64_t version = 0;
  std::int64_t created_ms = 0;
  std::string run_id, model_id, source;
  std::vector<ManifestFile> files;  // in order of their paths
  std::string signature;            // inputs and outputs as the MLmodel file declares them, as JSON; "" = it does not
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// The text is what is signed: kept and passed on as it is.
struct SignedManifest {
  std::string text;
  crypto::Signature signature{};
};

std::string to_text(const Manifest& manifest);   // canonical JSON
Manifest parse_manifest(std::string_view text);  // throws corrupt for what to_text did not make
SignedManifest sign(const Manifest& manifest, const crypto::Signer& signer);

// For whoever loads a version: is this what the holder of the key signed? Throws corrupt.
Manifest verify(const SignedManifest& manifest, const crypto::PublicKey& key);
// Are these the files, all of them and no others? In any order. Throws corrupt and names the first that is not.
void check_files(const Manifest& manifest, std::span<const ManifestFile> files);

}  // namespace falaj::models
