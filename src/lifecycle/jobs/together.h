// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "foundation/base/shape.h"
#include "lifecycle/jobs/spec.h"

namespace falaj::jobs {

// Jobs that are submitted together may wait for each other by name: each such name becomes the id of that job, as
// `ids[i]` is of `jobs[i]`. What is an id already stays, and so does what names none of them. Faults: a name that
// several of them have, and jobs that wait for each other in a circle. Pure.
using PlaceOf = std::function<std::string(std::size_t job, const std::string& path)>;
void link_by_name(std::vector<NewJob>& jobs, const std::vector<std::string>& ids, const PlaceOf& place_of,
                  Faults& faults);

}  // namespace falaj::jobs
