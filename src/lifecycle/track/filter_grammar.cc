// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/filter_grammar.h"

namespace falaj::track {
namespace {

constexpr bool kOrders = true;
constexpr bool kOnlyFilters = false;

constexpr Attribute kRunAttributes[] = {
    {"run_id", "run_id", kTextOps | kListOps, kOrders},
    {"run_name", "run_name", kTextOps, kOrders},
    {"run name", "run_name", kTextOps, kOnlyFilters},
    {"Run name", "run_name", kTextOps, kOnlyFilters},
    {"Run Name", "run_name", kTextOps, kOnlyFilters},
    {"user_id", "user_id", kTextOps, kOrders},
    {"status", "status", kTextOps, kOrders},
    {"artifact_uri", "artifact_uri", kTextOps, kOrders},
    {"start_time", "start_time", kNumberOps, kOrders},
    {"created", "start_time", kNumberOps, kOrders},
    {"Created", "start_time", kNumberOps, kOrders},
    {"end_time", "end_time", kNumberOps, kOrders},
};
constexpr Keyed kRunKeyed[] = {
    {Entity::metric, kNumberOps, kOrders},
    {Entity::param, kTextOps | kNullOps, kOrders},
    {Entity::tag, kTextOps | kNullOps, kOrders},
    {Entity::dataset, kTextOps | kListOps, kOnlyFilters},
};

constexpr Attribute kExperimentAttributes[] = {
    {"name", "name", kTextOps, kOrders},
    {"experiment_id", "experiment_id", kNoOps, kOrders},
    {"creation_time", "creation_time", kNumberOps, kOrders},
    {"last_update_time", "last_update_time", kNumberOps, kOrders},
};
constexpr Keyed kExperimentKeyed[] = {{Entity::tag, kTextOps | kNullOps, kOnlyFilters}};

constexpr Keyed kRegistryKeyed[] = {{Entity::tag, kTextOps, kOnlyFilters}};
constexpr Attribute kRegisteredModelAttributes[] = {
    {"name", "name", kTextOps | kListOps, kOrders},
    {"last_updated_timestamp", "last_updated_timestamp", kNoOps, kOrders},
    {"timestamp", "last_updated_timestamp", kNoOps, kOrders},
    {"creation_timestamp", "creation_timestamp", kNoOps, kOrders},
};
constexpr Attribute kModelVersionAttributes[] = {
    {"name", "name", kTextOps | kListOps, kOrders},
    {"run_id", "run_id", kTextOps | kListOps, kOnlyFilters},
    {"source_path", "source_path", kTextOps, kOnlyFilters},
    {"version_number", "version_number", kNumberOps, kOrders},
    {"creation_timestamp", "creation_timestamp", kNoOps, kOrders},
    {"last_updated_timestamp", "last_updated_timestamp", kNoOps, kOrders},
};

constexpr Attribute kLoggedModelAttributes[] = {
    {"name", "name", kTextOps | kListOps, kOrders},
    {"model_id", "model_id", kTextOps | kListOps, kOrders},
    {"model_type", "model_type", kTextOps | kListOps, kOrders},
    {"status", "status", kTextOps | kListOps, kOrders},
    {"source_run_id", "source_run_id", kTextOps | kListOps, kOrders},
    {"creation_timestamp", "creation_timestamp", kNumberOps, kOrders},
    {"creation_time", "creation_timestamp", kNumberOps, kOrders},
    {"last_updated_timestamp", "last_updated_timestamp", kNumberOps, kOrders},
    {"last_updated_time", "last_updated_timestamp", kNumberOps, kOrders},
};
constexpr Keyed kLoggedModelKeyed[] = {
    {Entity::metric, kNumberOps, kOrders},
    {Entity::param, kTextOps | kListOps, kOnlyFilters},
    {Entity::tag, kTextOps | kListOps, kOnlyFilters},
};

}  // namespace

constinit const Grammar kRunGrammar{"runs", kRunAttributes, kRunKeyed};
constinit const Grammar kExperimentGrammar{"experiments", kExperimentAttributes, kExperimentKeyed};
constinit const Grammar kRegisteredModelGrammar{"registered models", kRegisteredModelAttributes, kRegistryKeyed};
constinit const Grammar kModelVersionGrammar{"model versions", kModelVersionAttributes, kRegistryKeyed};
constinit const Grammar kLoggedModelGrammar{"logged models", kLoggedModelAttributes, kLoggedModelKeyed};

}  // namespace falaj::track
