// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/mlflow/protocol.h"
#include "api/platform.h"
#include "api/route.h"
#include "lifecycle/track/artifacts.h"

namespace falaj::api::mlflow {

// MLflow's tracking and registry protocol; together they are add_mlflow_routes of platform.h.
void add_experiment_routes(Routes& routes, Platform& platform);
void add_run_routes(Routes& routes, Platform& platform);       // runs, params, metrics, tags, inputs, history
void add_artifact_routes(Routes& routes, Platform& platform);  // the proxy, and the lists of what a run has
void add_upload_routes(Routes& routes, Platform& platform);    // files in parts, and addresses to read from
void add_logged_model_routes(Routes& routes, Platform& platform);
void add_webhook_routes(Routes& routes, Platform& platform);
void add_registry_routes(Routes& routes, Platform& platform);  // registered models, versions, aliases, stages

// What a path of the proxy stands for: "3/<run id>/artifacts/model/MLmodel" or "3/models/<model id>/artifacts/...".
struct Target {
  std::string root;      // as run_artifact and model_artifact name it
  std::string resource;  // for the audit log
  std::string path;      // below the root
};
// Throws invalid and not_found; `writes`: also invalid when the run is deleted.
Target target_of(Platform& platform, const track::Where& where, std::string_view given, bool writes);
// The file at a path of the proxy, which may also be a version's. Throws not_found.
vault::Entry file_at(Platform& platform, const track::Where& where, std::string_view given);
// A stored file as an answer; Range is understood. The second takes its name in the vault.
net::Response send_entry(Platform& platform, const Call& call, const track::Where& where, const vault::Entry& entry);
net::Response send_artifact(Platform& platform, const Call& call, const track::Where& where, const std::string& name);
// The member "files", when there are any; `before` is the directory they are in.
void put_files(Text& out, const std::vector<track::ArtifactInfo>& files, const std::string& before);

}  // namespace falaj::api::mlflow
