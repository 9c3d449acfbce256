// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/session.h"

namespace falaj::cli {

// What the commands about datasets share.

std::string dataset_path(const std::string& name, std::string_view more = "");
// "flights" or "flights@3": the name, and the path element of the version.
std::pair<std::string, std::string> version_of(const std::string& text);

void print_version(Session& session, const json::value& version);

std::string format_by_name(std::string file);  // csv, jsonl or parquet; "" when its ending does not say

// A version with the rows of a file and no others. The dataset is declared when it is not there.
struct RowsFile {
  std::string dataset, path;
  std::string time;  // where the dataset is new: the column that says when a row happened; "" = the only one that can
};
json::value replace_rows(Session& session, const RowsFile& file);

void add_ingest_commands(CLI::App& dataset, Session& session);  // create, ingest

}  // namespace falaj::cli
