// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "compute/recipe/recipe.h"
#include "lifecycle/jobs/spec.h"
#include "lifecycle/models/registry.h"

namespace falaj::api {

inline constexpr char kTrainer[] = "falaj-train";   // the first word of its job's command
inline constexpr std::int64_t kTrainerRefused = 2;  // what it ends with when the recipe or the data are to blame

// The job that carries out a training. It needs no network and no credential: it reads what is staged for it, tells its
// metrics by a file, and what it leaves becomes files of its run and a version of a model when it has succeeded.
// What it is to be compared with is looked up now, and is nothing when the alias points at nothing yet. Throws
// not_found and invalid, compare.
jobs::NewJob job_of_training(models::Registry& registry, const models::Where& where, std::string name,
                             std::map<std::string, std::string> labels, recipe::Training training);

// The same of a step of a pipeline, whose body is the training's spec; and its faults, at their place.
jobs::NewJob job_of_training_body(models::Registry& registry, const models::Where& where, const std::string& name,
                                  const json::value& body);
void check_training_body(const json::value& body, const std::string& path, Faults& faults);

// Makes what a run left below "model" a version of a registered model, which is made when missing. Once: again it finds
// what it made.
void register_run_model(models::Registry& registry, const models::Where& where, const std::string& run_id,
                        const std::string& model, const std::string& alias);

}  // namespace falaj::api
