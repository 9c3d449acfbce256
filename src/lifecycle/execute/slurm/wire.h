// SPDX-License-Identifier: Apache-2.0
#pragma once

// What Slurm 22.05 writes and reads as JSON (openapi v0.0.38): slurmrestd, squeue --json and sinfo --json alike.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/json.h"
#include "lifecycle/execute/slurm/gateway.h"

namespace falaj::execute::slurm {

std::string submit_body(const Submission& submission);

// The first error of an answer. Answers carry errors also when they succeeded: see what else they hold.
struct Refusal {
  std::int64_t number = 0;  // -1: Slurm does not say; also a token it does not take, or no controller
  std::string text;
};
std::optional<Refusal> refusal_of(const json::value& answer);
// unavailable when the same call may succeed later, else invalid.
Error error_of(std::string_view doing, const Refusal& refusal);

inline constexpr std::int64_t kUnspecified = -1, kNoSuchJob = 2017, kNotNow = 2020, kAlreadyDone = 2021;

// Throw unavailable when the answer does not have the shape it should have.
std::vector<Job> jobs_of(const json::value& answer);
std::vector<Node> nodes_of(const json::value& answer, const std::string& zone, Isolation isolation);

// "gpu:a100:4(S:0-1),gpu:v100:2,license:1": GPUs by type; one without a type has the type "".
std::vector<std::pair<std::string, std::int64_t>> gpus_of(std::string_view gres);

}  // namespace falaj::execute::slurm
