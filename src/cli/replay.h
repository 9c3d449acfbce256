// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/session.h"
#include "foundation/base/json.h"

namespace falaj::cli {

// endpoint replay
void add_endpoint_replay(CLI::App& endpoint, Session& session);

// ---- what of it is a function of values

// Columns of a query that are not the model's: what became of a row, when that was known, and when the row was.
struct ReplayColumns {
  std::optional<std::size_t> label, known, time;
  std::vector<std::string> names;

  json::object ask(const json::array& row) const;  // without them, but for the time, which a model may want
};
// Throws invalid for a name that the query does not have.
// The query in the order of its column `time`, and rows of one time in an order that is the same whenever it is asked,
// so that no row is missed or taken twice between two pages of it. Without `time`: in its own order.
std::string replay_query(const std::string& query, const std::string& time);
ReplayColumns replay_columns(const json::array& columns, const std::string& label, const std::string& known,
                             const std::string& time);

// How the prediction for a row of a request is called, from how its first is.
std::string prediction_of_row(std::string_view first, std::size_t row);

// Labels on their way: each is told when the replay has come to the moment at which it was known.
class LabelsDue {
 public:
  void add(std::string known, std::string prediction, json::value value);
  json::array take(std::string_view now);  // those known by then, the earliest first
  json::array take_all() { return take({}); }

 private:
  struct Due {
    std::string known, prediction;
    json::value value;
  };
  std::vector<Due> due_;  // a heap, the earliest on top
};

}  // namespace falaj::cli
