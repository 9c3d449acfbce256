// SPDX-License-Identifier: Apache-2.0
#pragma once

// How rows become logged models. Private to this directory.

#include "lifecycle/track/logged_models.h"

namespace falaj::track {

struct LoggedModelRow {
  std::int64_t id = 0;          // grows with the time of making
  std::int64_t experiment = 0;  // the row of its experiment
  LoggedModel model;            // without params, tags and metrics
};

LoggedModelRow need_logged_model(sql::Reader& reader, const Where& where, const std::string& model_id,
                                 bool deleted_too = false);  // throws not_found
void check_model_name(const std::string& name);              // throws invalid
bool is_model_id(std::string_view text);                     // "m-" and 32 hexadecimal digits
std::optional<LoggedModelRow> find_logged_model_row(sql::Reader& reader, const Where& where,
                                                    const std::string& model_id);  // deleted ones too
// Those that the run made, and those that it put out and no run made, by id; deleted ones too.
std::vector<LoggedModelRow> logged_models_of_run(sql::Reader& reader, const Where& where, const std::string& run_id);
// The active ones of an experiment's row.
std::vector<LoggedModelRow> logged_models_of(sql::Reader& reader, std::int64_t experiment);
LoggedModel load_logged_model(sql::Reader& reader, const LoggedModelRow& row);  // with everything

}  // namespace falaj::track
