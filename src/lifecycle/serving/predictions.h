// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/base/mutex.h"
#include "foundation/stats/sequential.h"
#include "foundation/sys/clock.h"
#include "governance/resource/resources.h"
#include "lifecycle/data/datasets.h"
#include "lifecycle/serving/kind.h"
#include "storage/sql/database.h"

namespace falaj::serving {

using vault::Where;

// ---- what serving programs send of what they answered
struct LoggedColumn {
  std::string name, type;
};
struct LoggedSegment {
  std::string segment;  // its name, the same however often it is sent
  std::int64_t rows = 0;
  std::string lines;  // of JSON, one a row
};
struct LoggedBatch {
  std::string tenant, project, endpoint;
  std::vector<LoggedColumn> columns;
  std::vector<LoggedSegment> segments;
};

// ---- what became of predictions
struct Label {
  std::string prediction;  // as its answer called it
  double value = 0;
  std::int64_t at_us = 0;  // when it was known
};
struct LabelsTaken {
  std::int64_t added = 0;
  std::int64_t known = 0;        // they were there, with this value
  std::int64_t conflicting = 0;  // they were there, with another, which stays
};
inline constexpr std::size_t kLabelsMax = 10'000;  // in one call

inline constexpr const char* kLabelStream = "labels";  // instead of columns

std::string predictions_dataset(const std::string& endpoint);
std::string labels_dataset(const std::string& endpoint);

// The prediction log of endpoints and the labels that come later: datasets of the project. Rows are on disk when
// accept() or add_labels() returns, and become part of a version a while later, or when somebody wants to read them.
// Thread-safe.
class PredictionLog {
 public:
  static std::span<const sql::Migration> migrations();
  struct Parts {
    sql::Database& database;
    resource::Resources& resources;
    data::Datasets& datasets;
    const sys::Clock& clock;
  };
  PredictionLog(Parts parts, Metrics& metrics);

  // Segments that came before are left out. Throws not_found and invalid: then they are nothing to send again.
  void accept(const LoggedBatch& batch);
  // The first label of a prediction stays. Throws invalid naming every row that is wrong, and takes none then.
  LabelsTaken add_labels(const Where& where, const std::string& endpoint, const std::vector<Label>& labels,
                         const sql::Act& act);

  // ---- what variants are compared by
  // Counts anew, what was predicted since then, when `rule` is another than what is counted for.
  void count_for(const Where& where, const std::string& endpoint, const std::string& rule, std::int64_t since_us);
  // A server says how many rows a version has answered since it loaded it.
  void expose(const Where& where, const std::string& endpoint, const std::string& variant, std::int64_t version,
              const std::string& server, std::int64_t rows);
  struct Counted {
    std::int64_t since_us = 0;
    struct OfVersion {
      std::int64_t exposures = 0;
      stats::Sample labels{};
    };
    std::map<std::pair<std::string, std::int64_t>, OfVersion> versions;  // by variant and version
  };
  Counted counted(const Where& where, const std::string& endpoint);

  // What was taken so far is in the newest versions when it returns.
  void flush(const Where& where, const std::string& endpoint);
  // Makes versions of what waits for long, and forgets what is older than endpoints say. Called now and then.
  void upkeep();

 private:
  struct Stream {  // an upload that is not a version yet
    std::string upload, columns;
    std::int64_t began_us = 0, bytes = 0, parts = 0;
  };
  std::optional<Stream> stream(const Where& where, const std::string& dataset);
  Stream begin(const Where& where, const std::string& dataset, const std::string& columns);
  void finish(const Where& where, const std::string& dataset) REQUIRES(taking_);
  std::vector<std::string> declare(const Where& where, const std::string& dataset,
                                   const std::vector<LoggedColumn>& columns);
  void export_labels(const Where& where, const std::string& endpoint) REQUIRES(taking_);
  void finish_due() REQUIRES(taking_);
  void forget_old();
  void forget_labels(const Where& where, const std::string& endpoint, std::int64_t before_us);
  void forget_rows(const Where& where, const std::string& dataset, std::int64_t before_us);

  Parts parts_;
  Counter& rows_;
  Counter& lost_;
  Counter& labels_;

  Mutex taking_;  // one at a time adds to the uploads
  std::int64_t next_tidy_us_ GUARDED_BY(taking_) = 0;

  // In memory between two writes: after a kill what a few seconds added is seen again in the servers' own counts.
  using Exposed = std::tuple<std::string, std::string, std::string, std::string, std::int64_t, std::string>;
  struct Exposure {
    std::int64_t seen = 0, total = 0;
    bool kept = false;
  };
  void load_exposures() REQUIRES(counting_);
  void keep_exposures();
  Mutex counting_;  // guards everything below
  bool loaded_ GUARDED_BY(counting_) = false;
  std::int64_t kept_us_ GUARDED_BY(counting_) = 0;
  std::map<Exposed, Exposure> exposures_ GUARDED_BY(counting_);
  std::map<std::string, std::string> rules_ GUARDED_BY(counting_);  // by endpoint: what is counted for, as far as known
};

}  // namespace falaj::serving
