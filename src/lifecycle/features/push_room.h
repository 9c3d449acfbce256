// SPDX-License-Identifier: Apache-2.0
// Private to lifecycle/features: a room in which pushed rows stand where the dataset's would.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lifecycle/lookup/view.h"
#include "storage/table/workspace.h"

namespace falaj::features {

class PushRoom {
 public:
  PushRoom(std::unique_ptr<table::Workspace> room, const std::string& dataset, table::Schema schema);
  static std::string name_of(const std::string& dataset, const table::Schema& schema);
  // From now on the dataset has these rows, and no others.
  void fill(const std::vector<std::vector<lookup::Value>>& rows);
  table::Workspace& room() { return *room_; }

 private:
  const std::unique_ptr<table::Workspace> room_;
  const table::Schema schema_;
};

}  // namespace falaj::features
