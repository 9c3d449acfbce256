// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "storage/blob/blocks.h"
#include "storage/blob/store.h"

namespace falaj::blob {

// Private to the store: what goes over everything that a tenant has.
Collected collect_garbage(Blocks& blocks, const Tenant& tenant, std::span<const Address> roots);
Destroyed destroy_objects(Blocks& blocks, const Tenant& tenant, std::span<const Address> objects,
                          const std::function<std::vector<Address>()>& needed);
Scrubbed scrub_blocks(Blocks& blocks, const Tenant& tenant);
std::uint64_t rewrap_blocks(Blocks& blocks, const Tenant& tenant);

}  // namespace falaj::blob
