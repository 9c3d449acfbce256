// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lifecycle/data/datasets.h"

namespace falaj::api {

// Puts the rows of a version, "flights@3", into a directory of this machine, as rows.parquet. What was staged is what
// the version says, byte by byte: the vault checks it on the way. Returns the digest by which runs name the version.
std::string stage_dataset(data::Datasets& datasets, const vault::Where& where, const std::string& version,
                          const std::string& directory);

}  // namespace falaj::api
