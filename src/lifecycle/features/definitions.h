// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "foundation/base/mutex.h"
#include "governance/resource/resources.h"
#include "lifecycle/data/datasets.h"
#include "lifecycle/features/kinds.h"
#include "lifecycle/lookup/computed.h"
#include "lifecycle/lookup/feature.h"
#include "lifecycle/lookup/view.h"

namespace falaj::features {

using data::Where;

// A feature view that was looked at: what its rows are, and what is kept of them online.
struct Definition {
  std::string name;
  std::int64_t revision = 0;
  FeatureViewSpec spec;
  EntitySpec entity;
  data::DatasetSpec dataset;
  table::Schema rows;      // that its features are made of
  std::string select;      // of those, over the dataset by its name
  bool row_by_row = true;  // of one row of the dataset each: pushed and appended rows can be looked at alone
  ViewPlan plan;           // all its features
  // Of everything that what is kept online depends on: rows that were kept for another meaning are never read by it.
  Digest meaning;
  std::shared_ptr<const lookup::View> view;
  lookup::Computed computed;  // features of the request, and of the others

  bool has_entity() const { return !spec.entity.empty(); }
  bool personal() const { return dataset.personal.has_value(); }
};

using lookup::Place;

// Features of one view that were asked for, in order.
struct Selected {
  std::shared_ptr<const Definition> from;
  std::optional<std::int64_t> pinned;  // the revision that was asked for
  std::vector<std::string> features;
  std::vector<Place> places;  // one for each feature
};
using Selection = std::vector<Selected>;

// Views and services as they are declared, read once and kept until they change. Thread-safe.
class Definitions {
 public:
  Definitions(resource::Resources& resources, data::Datasets& datasets) : resources_(resources), datasets_(datasets) {}

  // The newest revision, or the one of that number. Throws not_found, invalid.
  std::shared_ptr<const Definition> view(const Where& where, const std::string& name,
                                         std::optional<std::int64_t> revision = std::nullopt);
  // "VIEW:FEATURE", ... as a service names them. Throws invalid, not_found.
  std::shared_ptr<const Selection> select(const Where& where, const std::vector<std::string>& features);
  std::shared_ptr<const Selection> select_service(const Where& where, const std::string& service);
  PushSourceSpec push_source(const Where& where, const std::string& name);

 private:
  // The texts that it was made of: as long as they are the ones that the resources give, it holds.
  struct Kept {
    std::vector<std::pair<resource::Key, resource::TextCache::Text>> texts;
    std::shared_ptr<const Definition> definition;
  };
  // A list of features, or a service, and what it names: it holds as long as its text and its views do.
  struct KeptSelection {
    resource::TextCache::Text text;  // of the service; null for a list
    std::shared_ptr<const Selection> selection;
  };
  using Name = std::tuple<std::string, std::string, std::string, std::int64_t>;
  std::shared_ptr<const Definition> make(const Where& where, const std::string& name,
                                         std::optional<std::int64_t> revision, Kept& kept);
  Selection make_selection(const Where& where, const std::vector<std::string>& features);
  std::shared_ptr<const Selection> find_selection(const std::string& name, const resource::TextCache::Text& text,
                                                  const Where& where);
  std::shared_ptr<const Selection> keep_selection(const std::string& name, resource::TextCache::Text text,
                                                  Selection selection);

  resource::Resources& resources_;
  data::Datasets& datasets_;
  Mutex mu_;
  std::map<Name, std::shared_ptr<const Kept>> kept_ GUARDED_BY(mu_);
  std::unordered_map<std::string, std::shared_ptr<const KeptSelection>> selections_ GUARDED_BY(mu_);
};

// From what a room that has the dataset under its name reads the rows of a view, in the same order every time. What a
// query groups, joins or tells apart comes in any order: such rows are put into a table first, by all their columns.
std::string lay_out_rows(table::Workspace& room, const Definition& of, const std::string& table,
                         const table::Workspace::Watch& watch = {});
online::Type online_type(table::Type type);
std::shared_ptr<const lookup::View> view_of(const Definition& definition);  // by its plan, meaning and time to live
// Throws invalid.
lookup::Computed computed_of(const FeatureViewSpec& spec, const lookup::View& view);

}  // namespace falaj::features
