// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "compute/protocol/inference.h"
#include "compute/serve/catalogue.h"

// Which variant of an endpoint is meant. Pure.
namespace falaj::serve {

// What the first value of an input says, as text: the same for the same value whatever the type that it came as, so
// that a user is the same user by JSON, as INT32 and as INT64. "": nothing.
std::string sticky_key(const protocol::Ask& ask, std::string_view input);
std::string sticky_key(const protocol::Predict& ask, std::string_view field);  // of the first row; entities' keys, too

// The variant that is called so; else of those that answer with that version the one with the greatest share. Null:
// there is none.
const ServedVariant* variant_by_version(const ServedEndpoint& endpoint, std::string_view version);

// The one with the greatest share, which the endpoint is described by. Null: none answers.
const ServedVariant* main_variant(const ServedEndpoint& endpoint);

}  // namespace falaj::serve
