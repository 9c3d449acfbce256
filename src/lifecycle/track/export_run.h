// SPDX-License-Identifier: Apache-2.0
#pragma once

// A run as it stands in an export: what it is as JSON, its points as CSV. docs/formats/run_export.md

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lifecycle/track/types.h"
#include "storage/blob/object.h"

namespace falaj::track {

inline constexpr std::size_t kExportedRunBytesMax = std::size_t{32} << 20;

// The points of one metric that speak of one model and one dataset.
struct ExportedSeries {
  std::string key, model_id, dataset_name, dataset_digest;
};
struct ExportedDataset {
  std::string name, digest, source_type, source, schema, profile;
  std::map<std::string, std::string> tags;
};
struct ExportedModel {
  std::string model_id;
  std::int64_t step = 0;
};
// One that the run made, or put out without another run having made it. Its metrics are those of runs that speak of it.
struct ExportedLoggedModel {
  std::string model_id, name, type;
  std::string source_run_id;  // the run's, or ''
  std::string status, stage;
  std::int64_t created_ms = 0, updated_ms = 0;
  std::map<std::string, std::string> params, tags;
};
struct ExportedRun {
  std::string run_id, experiment;  // its name
  std::string name, user, status, stage;
  std::int64_t start_ms = 0;
  std::optional<std::int64_t> end_ms;
  std::map<std::string, std::string> params, tags;
  std::vector<ExportedDataset> datasets;
  std::vector<std::string> model_inputs;
  std::vector<ExportedModel> model_outputs;
  std::vector<ExportedSeries> series;
  std::vector<ExportedLoggedModel> logged_models;
};

std::string to_text(const ExportedRun& run);  // one line of canonical JSON
// Throws invalid for what could not have been logged.
ExportedRun parse_exported_run(std::string_view text);

inline constexpr std::string_view kPointsHeader = "series,unix_ms,step,value\n";
void append_csv(std::string& out, std::size_t series, const Point& point);

// Reads points.csv: the bits of every value are those that were written.
class PointsReader {
 public:
  // `series`: how many the run has.
  PointsReader(blob::Source source, std::size_t series) : source_(std::move(source)), series_(series) {}
  struct Line {
    std::size_t series = 0;
    Point point;
  };
  // Nothing at the end. Series by series, each in the order of a history and no point twice; else throws invalid.
  std::optional<Line> next();

 private:
  std::optional<std::string_view> line();  // without its end, valid until the next

  blob::Source source_;
  const std::size_t series_;
  std::string text_;
  std::size_t at_ = 0;
  std::int64_t lines_ = 0;
  std::optional<Line> last_;
};

}  // namespace falaj::track
