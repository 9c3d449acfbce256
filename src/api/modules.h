// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the parts of the platform bring: the one list of each, for the program and for tests.

#include <memory>
#include <vector>

#include "governance/iam/directory.h"
#include "governance/resource/kind.h"
#include "governance/vault/vault.h"
#include "lifecycle/flow/steps.h"
#include "lifecycle/jobs/kinds.h"
#include "lifecycle/watch/watch.h"
#include "storage/sql/database.h"

namespace falaj::api {

std::vector<sql::Migration> all_migrations();

// `files`: where features are tried out when they are declared.
std::vector<resource::Kind> all_kinds(iam::Directory& directory, sys::Files& files,
                                      const std::shared_ptr<jobs::Bell>& bell);

// What steps of pipelines ask of others. All of them outlive it.
flow::Steps::Asks asks_of(watch::Watch& watch, models::Registry& models, vault::Vault& vault);

}  // namespace falaj::api
