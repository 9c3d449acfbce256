// SPDX-License-Identifier: Apache-2.0
#pragma once

// Files of jobs on their way into the vault and out of it.

#include <functional>
#include <string>
#include <vector>

#include "foundation/sys/files.h"
#include "governance/vault/vault.h"

namespace falaj::jobs {

// Every file below a directory, as paths within it. Links and devices are not there. Throws exhausted: too many.
std::vector<std::string> files_below(sys::Files& files);

// Stores these files, each under the name that `name_of` gives for its path; one that is gone by now is left out.
vault::Batch put_files(vault::Vault& vault, const vault::Where& where, sys::Files& files,
                       const std::vector<std::string>& paths,
                       const std::function<std::string(const std::string& path)>& name_of, const sql::Act& act);

// The other way: the vault checks every byte against its digest.
void take_file(vault::Vault& vault, const vault::Where& where, const vault::Entry& entry, sys::Files& files,
               const std::string& path);

// Every name that begins with `root`, page by page.
void each_entry(const vault::Vault& vault, const vault::Where& where, const std::string& root,
                const std::function<void(const vault::Entry&)>& each);

}  // namespace falaj::jobs
