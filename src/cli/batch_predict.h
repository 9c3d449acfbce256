// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench_requests.h"
#include "cli/session.h"

namespace falaj::cli {

struct BatchOptions {
  std::string endpoint, dataset;  // NAME or NAME@VERSION
  std::string to, server;
  std::vector<std::string> columns;
  bool again = false;
};

// --dataset, --columns, --to and --again of a command.
std::shared_ptr<BatchOptions> add_batch_options(CLI::App& command);

// Predicts every row of a version of a dataset and makes a version of another of the answers. Rows are read, asked and
// stored in parts, each durable when it is stored; the upload is found again by what is asked, so the same command goes
// on where it was killed, and finds what it made when it was done.
json::value predict_dataset(Session& session, const BatchOptions& options);

// ---- what of it is a function of values
struct ColumnType {
  std::string name, type;
};

// How a version is read and what its predictions look like.
struct BatchPlan {
  std::vector<ColumnType> carried;  // columns that the predictions keep
  std::vector<PortShape> inputs, outputs;
  std::vector<ColumnType> fed;  // a column for each input
  std::uint64_t part_rows = 0;

  // The carried columns, then the inputs, of one part, in the order of the version.
  std::string select(std::string_view table, std::uint64_t part) const;
  json::object ask(const json::array& row) const;  // of a row that select() gave
  json::array columns() const;                     // of the dataset of predictions
  // One row of it.
  json::object answer(const json::array& row, const json::object& said, std::string_view model_version) const;
};

// `version`: what the server says of one; `keep` empty: its key and time, or all when it has neither. Throws invalid
// when an input is no column of it, or a name would be given twice.
BatchPlan plan_batch(const json::value& version, const json::value& spec, const std::vector<std::string>& keep,
                     std::vector<PortShape> inputs, std::vector<PortShape> outputs);

}  // namespace falaj::cli
