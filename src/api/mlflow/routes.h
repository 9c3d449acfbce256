// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/platform.h"
#include "api/route.h"

namespace falaj::api::mlflow {

// MLflow's tracking and registry protocol; together they are add_mlflow_routes of platform.h.
void add_experiment_routes(Routes& routes, Platform& platform);
void add_run_routes(Routes& routes, Platform& platform);       // runs, params, metrics, tags, inputs, history
void add_artifact_routes(Routes& routes, Platform& platform);  // the proxy, and the lists of what a run has

}  // namespace falaj::api::mlflow
