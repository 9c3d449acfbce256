// SPDX-License-Identifier: Apache-2.0
#pragma once

// A pipeline's steps as a graph, and everything that can be said against it before it runs. Pure.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lifecycle/flow/bodies.h"
#include "lifecycle/flow/references.h"
#include "lifecycle/flow/spec.h"

namespace falaj::flow {

// One step, or one combination of its matrix.
struct Instance {
  std::string id;        // "train", or "train.2"
  std::size_t step = 0;  // of the spec
  std::map<std::string, json::value> matrix;
  std::vector<std::size_t> needs;  // instances that come before it, each once
};

// Immutable. Instances are in an order in which each comes after those it needs.
struct Plan {
  PipelineSpec spec;
  std::vector<Instance> instances;

  const StepSpec& step_of(const Instance& instance) const { return spec.steps[instance.step]; }
  const Instance* find(std::string_view id) const;
  std::size_t step_named(std::string_view name) const;  // spec.steps.size() when there is none
};

// Every fault, with paths that begin with "spec".
void check(const PipelineSpec& spec, const CheckTraining& training, Faults& faults);
// Requires: check found nothing.
Plan plan_of(const PipelineSpec& spec);

// The parameters of a run: what was given and the defaults, each of its type. Texts of another type are read as it, as
// a command line has nothing but texts. Throws invalid with every fault.
json::object parameters_of(const PipelineSpec& spec, const json::object& given);

// What references of a step mean. Steps that ran `outputs` of; the type of each.
expr::Type type_of(const Plan& plan, const Instance& instance, const Reference& reference);

}  // namespace falaj::flow
