// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "governance/resource/resources.h"
#include "lifecycle/data/datasets.h"
#include "lifecycle/features/definitions.h"
#include "lifecycle/features/kinds.h"

namespace falaj::features {

struct TrainSet {
  std::string service;
  data::VersionName spine;  // the rows to be described
  std::string time;         // the column of the spine that says as of when; the dataset's own when ""
  std::string into;         // the dataset whose next version it becomes; declared when it is not there
  std::string key{};        // of the caller's choice: with the same one it is made once, and found again then
};

// Training sets made of declared features. Thread-safe.
class Features {
 public:
  // All of them outlive this.
  Features(sql::Database& database, resource::Resources& resources, data::Datasets& datasets, Definitions& definitions)
      : database_(database), resources_(resources), datasets_(datasets), definitions_(definitions) {}

  // Every column of the spine, then every feature of the service, each as it was known at the row's own time. Throws
  // denied when `authorise` refuses dataset.read on the spine, or feature.read on the service or one of its views. That
  // rows about people are read is recorded, as it is when they are read online.
  data::Version train_set(const Where& where, const TrainSet& wanted, const resource::Authorise& authorise,
                          const sql::Act& act, const table::Workspace::Watch& watch = {});

 private:
  struct Joined {
    std::string stored, computed;  // relations of the room, "" where there is nothing of the kind
    std::string from;              // "origin_delays (flights@3)"
    std::optional<data::Input> input;
  };
  // `index`: of the view among those that are joined in this room.
  Joined join(table::Workspace& room, const Where& where, const Selected& wanted, std::size_t index,
              const std::string& time, const table::Workspace::Watch& watch);
  void compute(table::Workspace& room, const Selected& wanted, const table::Schema& spine, const std::string& stored,
               const std::string& into);
  std::shared_ptr<const Selection> may_select(const Where& where, const TrainSet& wanted,
                                              const resource::Authorise& authorise, const sql::Act& act);
  void declare(const Where& where, const std::string& name, const table::Schema& schema, const std::string& time,
               const resource::Authorise& authorise, const sql::Act& act);

  sql::Database& database_;
  resource::Resources& resources_;
  data::Datasets& datasets_;
  Definitions& definitions_;
};

}  // namespace falaj::features
