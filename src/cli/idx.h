// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <istream>
#include <memory>
#include <string>
#include <vector>

namespace falaj::cli {

// Images and their labels in IDX files, the format in which MNIST and its kin are published.
struct IdxPair {
  std::string images, labels;  // paths; both may be gzip
  std::string part;            // train, valid or test
};

// The pairs in a directory: PART-images-idx3-ubyte and PART-labels-idx1-ubyte, with or without .gz; t10k is the test.
// In the order train, valid, test, others; none when there is no such file. Throws not_found when labels are missing.
std::vector<IdxPair> idx_pairs(const std::string& directory);

// As lines of CSV: image (bytes), label, part. Reading it throws what is wrong with the files: corrupt, not_found.
std::unique_ptr<std::istream> idx_as_csv(std::vector<IdxPair> pairs);

}  // namespace falaj::cli
