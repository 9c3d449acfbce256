// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tables of tracking and how rows become values. Private to this directory and to lifecycle/models.

#include <optional>
#include <span>
#include <string>

#include "lifecycle/track/types.h"
#include "storage/sql/database.h"

namespace falaj::track {

// A run's row: `experiment` is the row of its experiment, `place` its number within it; both together are its key.
struct RunRow {
  std::int64_t experiment = 0, place = 0;
  RunInfo info;           // its experiment as a number of the project
  bool unimaged = false;  // images.h
};

struct ExperimentRow {
  std::int64_t id = 0;
  Experiment experiment;  // without tags
};

std::optional<ExperimentRow> find_experiment(sql::Reader& reader, const Where& where, std::int64_t number);
std::optional<ExperimentRow> find_experiment(sql::Reader& reader, const Where& where, const std::string& name);
ExperimentRow need_experiment(sql::Reader& reader, const Where& where, std::int64_t number);  // throws not_found
std::vector<KeyValue> experiment_tags(sql::Reader& reader, std::int64_t id);

std::optional<RunRow> find_run(sql::Reader& reader, const Where& where, const std::string& run_id);
RunRow need_run(sql::Reader& reader, const Where& where, const std::string& run_id);         // throws not_found
RunRow need_active_run(sql::Reader& reader, const Where& where, const std::string& run_id);  // and invalid
Run load_run(sql::Reader& reader, const RunRow& row);  // with everything it logged
std::optional<RunRow> run_at(sql::Reader& reader, std::int64_t experiment, std::int64_t place);

// The points of some series together, in the order of a history; as Track::history.
HistoryPage history_page(sql::Reader& reader, std::span<const std::int64_t> series, const std::optional<Point>& after,
                         std::size_t limit);

void check_dataset(const Dataset& dataset);                                                      // throws invalid
std::int64_t dataset_row(sql::Writer& writer, std::int64_t experiment, const Dataset& dataset);  // made when missing

// The next of an ever growing count; `many` at once gives the first of them.
std::int64_t next_number(sql::Writer& writer, const char* of, std::int64_t many = 1);

std::string_view name(Stage stage);
sql::Param nullable(const std::optional<std::int64_t>& value);
sql::Param number_or_null(double value);  // NaN is no value: SQLite would store NULL by itself, PostgreSQL not
std::string scope_of(const Where& where, std::string_view kind, std::string_view thing);

}  // namespace falaj::track
