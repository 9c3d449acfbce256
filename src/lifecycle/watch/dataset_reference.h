// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "lifecycle/data/datasets.h"
#include "lifecycle/watch/reference.h"

namespace falaj::watch {

// A version of a dataset as a reference: its columns are compared with inputs of the same names. In the order of
// `time`, a column of it, or of its rows where that is "". Of more than a hundred thousand rows, every so many.
// `whole`: also a sample of whole rows. Throws not_found.
Reference read_dataset(data::Datasets& datasets, const vault::Where& where, const std::string& name,
                       std::int64_t version, const std::string& time, bool whole);

}  // namespace falaj::watch
