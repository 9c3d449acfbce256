// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compute/graph/graph.h"
#include "compute/protocol/inference.h"
#include "compute/serve/counts.h"
#include "foundation/base/json.h"
#include "foundation/sys/clock.h"
#include "lifecycle/lookup/feature.h"
#include "lifecycle/traffic/features.h"
#include "storage/online/store.h"

namespace falaj::serve {

// Whence features come in this process.
struct FeatureStore {
  std::shared_ptr<online::Reader> reader;                              // null: there is none on this machine
  std::map<std::string, std::shared_ptr<const online::Space>> spaces;  // by name, of those whose keys were told
};
std::shared_ptr<const online::Space> space_of(const traffic::SpaceKeys& keys);  // throws corrupt

// What happened to the features of one endpoint. Any number of threads.
struct FeatureCounts {
  std::atomic<std::uint64_t> by_status[4]{};  // in the order of online::Status
  std::atomic<std::uint64_t> failures{0};     // of reads
  Counts::Sum reads;
};

// The features of one endpoint, looked up in this process by the keys that rows name, and computed of the fields they
// bring: by the same code as the control plane's answers, so that they are the same. Thread-safe.
class EndpointFeatures {
 public:
  EndpointFeatures(traffic::Features plan, const FeatureStore& store, std::shared_ptr<FeatureCounts> counts);

  const traffic::Features& plan() const { return plan_; }
  const std::string& problem() const { return problem_; }  // why nothing can be looked up; "": it can
  const std::shared_ptr<FeatureCounts>& counts() const { return counts_; }
  void describe(protocol::Description& to) const;  // what rows name, and what they must not

  // Makes of rows that name entities rows and columns that hold every input of the model that they or the service name.
  // A feature that is null, missing or expired is left out of a row, as null is, or not a number. The request keeps
  // how new what was found is. `explained`, unless null, is told all that was looked up. Throws invalid for what a row
  // should not, or has to, name; unavailable.
  void fill(protocol::Predict& ask, std::span<const graph::Port> inputs, const sys::Clock& clock,
            json::object* explained) const;

 private:
  struct View {
    const traffic::FeatureView* plan = nullptr;
    std::shared_ptr<const lookup::View> view;
    lookup::Computed computed;
    std::vector<lookup::Column> key;
    std::vector<lookup::Place> places;  // of the features that are wanted
    std::shared_ptr<const online::Space> space;
    std::size_t first = 0;  // its first feature, in all views
  };
  struct Asked;   // what rows say for one view
  class Filling;  // takes what is found
  void add_view(const traffic::FeatureView& plan, const FeatureStore& store);
  void check_fields(const json::array& rows, std::span<const graph::Port> inputs) const;
  std::vector<Asked> keys_and_fields(const json::array& rows) const;
  std::int64_t read(const std::vector<Asked>& asked, const protocol::Predict& ask, const sys::Clock& clock,
                    lookup::FeatureSink& into) const;

  const traffic::Features plan_;
  const std::shared_ptr<online::Reader> reader_;
  const std::shared_ptr<FeatureCounts> counts_;
  std::string problem_;
  std::vector<View> views_;
  std::map<std::string, std::size_t, std::less<>> features_;  // their numbers by name
  std::set<std::string, std::less<>> given_;                  // fields that rows may name besides the model's inputs
};

// Of all endpoints in the list, in Prometheus' text format.
void write_feature_metrics(std::string& out,
                           const std::vector<std::pair<std::string, const EndpointFeatures*>>& endpoints);

}  // namespace falaj::serve
