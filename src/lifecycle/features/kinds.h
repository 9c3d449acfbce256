// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "governance/resource/kind.h"
#include "lifecycle/features/as_of.h"
#include "lifecycle/features/types.h"
#include "storage/table/workspace.h"

namespace falaj::features {

// Where the SQL of a view is looked at before it is accepted. Without, it is when it is first used.
inline constexpr table::Limits kCheckRoom{.memory_bytes = 64 << 20, .spill_bytes = 0, .threads = 1};
using MakeRoom = std::function<std::unique_ptr<table::Workspace>()>;
// Entity, FeatureView, FeatureService and PushSource, in the order in which they are applied.
std::vector<resource::Kind> feature_kinds(MakeRoom make_room = {});

// What the rows of a view are: SQL over a dataset of those columns, in a room that has nothing else. Throws invalid.
table::Schema describe_rows(table::Workspace& room, const std::string& dataset, const table::Schema& columns,
                            const std::string& sql);

// "VIEW", or "VIEW@REVISION" for what the view was when it had that revision.
struct ViewName {
  std::string view;
  std::optional<std::int64_t> revision;
};
std::optional<ViewName> parse_view_name(std::string_view text);
bool is_view_name(std::string_view text);
inline constexpr std::string_view kViewNameRule = "VIEW, or VIEW@REVISION";

// "VIEW:FEATURE", or "VIEW@REVISION:FEATURE" for what the view was when it had that revision.
struct FeatureName {
  std::string view;
  std::optional<std::int64_t> revision;
  std::string feature;  // "*": all
};
std::optional<FeatureName> parse_feature_name(std::string_view text);

std::vector<std::string> names_of(const FeatureViewSpec& view);  // of its features, in order

// A view over rows of these columns, for those of its features that `wanted` names (all when it is empty).
// Throws invalid with every fault.
ViewPlan compile(const FeatureViewSpec& view, const EntitySpec& entity, const table::Schema& rows,
                 const std::vector<std::string>& wanted);

}  // namespace falaj::features
