// SPDX-License-Identifier: Apache-2.0
// Private to api: what the native routes and those of Feast share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/call.h"
#include "lifecycle/features/features.h"
#include "lifecycle/features/online.h"

namespace falaj::api {

struct Turns;

// The protocol of Feast's server: a pass that it begins is one of `passes`, as those of the native routes are.
void add_feast_routes(Routes& routes, Platform& platform, const std::shared_ptr<Turns>& passes);

// The features that are asked for, by a service's name or their own; the caller may read all of their views. A read of
// what is about people is recorded here.
std::shared_ptr<const features::Selection> selected(Platform& platform, Call& call, const vault::Where& where,
                                                    const std::string& service, const std::vector<std::string>& names);
// A training set in the caller's name, who must be allowed to write datasets of the project and to read what it is made
// of.
data::Version make_train_set(Platform& platform, Call& call, const vault::Where& where,
                             const features::TrainSet& wanted);
// Before so many entities are read: not on a thread that must not wait, when that takes long.
void will_read(Platform& platform, const Call& call, const features::Selection& wanted, std::size_t entities);
// {"origin": ["SEA", ...], ...}: by column, typed as the keys of those views are.
enum class OtherColumns { refused, ignored };
features::Entities entities_of(const features::Selection& wanted, const json::value& given,
                               OtherColumns others = OtherColumns::refused);

}  // namespace falaj::api
