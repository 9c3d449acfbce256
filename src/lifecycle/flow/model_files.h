// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "governance/vault/vault.h"
#include "lifecycle/flow/gate.h"
#include "lifecycle/models/registry.h"

namespace falaj::flow {

// What a file is that runs something when it is opened, as pickles do: by its name and its first bytes. "" = none that
// we know.
std::string runs_something(std::string_view name, std::string_view first_bytes);
inline constexpr std::size_t kFirstBytes = 512;

// Whether the files of a version are those that were signed, its ONNX models are whole and within limits, and none of
// its files runs something when it is opened. Never throws for what is in them.
Finding look_at_files(models::Registry& models, vault::Vault& vault, const vault::Where& where,
                      const models::Version& version);

}  // namespace falaj::flow
