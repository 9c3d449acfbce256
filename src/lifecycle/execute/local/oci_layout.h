// SPDX-License-Identifier: Apache-2.0
#pragma once

// Images as the Open Container Initiative lays them out in a directory: index.json names a manifest, that names layers,
// each a tar archive, all by their SHA-256 under blobs/. Nothing in one is trusted beyond its digests.

#include <string>
#include <vector>

namespace falaj::execute::local {

struct OciImage {
  std::string manifest;             // its digest: names the image
  std::vector<std::string> layers;  // digests, the lowest first
};

bool is_oci_layout(const std::string& directory);

// The one image for this kind of machine. Throws invalid, corrupt (a digest does not match).
OciImage read_oci_layout(const std::string& directory);

// Lays the image's layers over each other in `target`, a directory that is empty. Links in them lead nowhere outside.
// Devices are left out, and so is every power to become another user. Throws corrupt, exhausted, unavailable.
void unpack(const std::string& directory, const OciImage& image, const std::string& target);

}  // namespace falaj::execute::local
