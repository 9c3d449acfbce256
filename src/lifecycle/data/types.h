// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/base/shape.h"
#include "governance/vault/vault.h"
#include "storage/table/schema.h"

namespace falaj::data {

using vault::Where;

// ---- what a person declares (kind Dataset)
struct ColumnSpec {
  std::string name, type;
  bool nullable = true;
  std::string description;
};
// Why personal data is kept; what the records of processing that the law asks for are made of.
struct PersonalSpec {
  std::string subject_key;  // the column that names the person
  std::string purpose, basis;
  std::optional<std::int64_t> retention_us;
};
struct DatasetSpec {
  std::vector<ColumnSpec> columns;
  std::vector<std::string> key;  // columns that together name a row
  std::string time;              // the column that says when it happened
  std::string partition = "none";
  std::int64_t major = 1;
  std::string zone;
  std::optional<PersonalSpec> personal;

  table::Schema schema() const;
};
inline constexpr std::string_view kPartitions[] = {"none", "day", "month", "year"};
inline constexpr std::string_view kBases[] = {"consent",         "contract",        "legal_obligation",
                                              "vital_interests", "public_interest", "legitimate_interests"};
inline constexpr std::string_view kTypeNames[] = {"boolean", "int32", "int64", "float32",  "float64",
                                                  "text",    "bytes", "date",  "timestamp"};

// ---- what the machine makes of it
struct ColumnStats {
  std::string name, type;
  std::int64_t nulls = 0;
  std::int64_t distinct = 0;              // estimated within a few percent
  std::optional<std::string> min, max;    // as text
  std::optional<double> mean, deviation;  // of numbers
  std::vector<double> quantiles;          // of numbers: 0.01 0.05 0.25 0.5 0.75 0.95 0.99
  std::vector<std::string> top;           // most frequent values of text and booleans, and
  std::vector<std::int64_t> top_counts;   // about how often each occurs
};

struct File {
  std::int64_t id = 0;
  std::string name;       // in the vault
  std::string partition;  // "2001-03", or ""
  std::int64_t rows = 0, bytes = 0;
  std::optional<std::int64_t> first_us, last_us;  // of the time column
  Digest content;
  bool keys = false;  // of versions that are erased: only whose rows they had
};

enum class Mode { append, overwrite };
std::string_view name(Mode mode);
std::optional<Mode> parse_mode(std::string_view name);

// A version that another was made of.
struct Input {
  std::string dataset;
  std::int64_t row = 0;  // of that dataset
  std::int64_t number = 0;
  // Columns of it that the new version has too, with the same meaning: who is named in one is named in the other.
  std::vector<std::string> columns{};
};

// A version of a model whose answers a version's rows hold.
struct AnsweredBy {
  std::string model;
  std::int64_t version = 0;
  friend bool operator==(const AnsweredBy&, const AnsweredBy&) = default;
};

// That a version is no more: somebody's rows had to go, and what is left of it is in a newer one.
struct Erased {
  std::int64_t at_us = 0;
  std::optional<std::int64_t> replaced_by;  // the newest at that time; none when there was no other
};

// What a dataset was at a time. It never changes: its files are named by their content.
struct Version {
  std::string dataset;
  std::int64_t row = 0;  // of the dataset
  std::int64_t number = 0;
  Digest id;  // of the schema and the files' content: equal for equal rows in equal files
  std::int64_t major = 1;
  Mode mode = Mode::append;
  std::optional<std::int64_t> parent;  // the version it was appended to
  table::Schema schema;
  std::int64_t rows = 0, bytes = 0;
  std::vector<ColumnStats> stats;     // of the rows that came in with it
  std::vector<std::string> warnings;  // expectations that did not hold
  std::string source;                 // what it was made of, in words
  std::int64_t created_us = 0;
  std::string created_by;
  std::vector<Input> inputs;  // versions it was made of; none for rows that came from outside
  std::optional<AnsweredBy> answered_by;
  std::optional<Erased> erased;

  // By which runs name it as their input: MLflow's digests have at most 36 characters.
  std::string short_id() const { return id.hex().substr(0, 32); }
};

struct Dataset {
  std::string name;
  std::int64_t row = 0;
  std::int64_t versions = 0;
  std::optional<Version> newest;
};

enum class Format { csv, jsonl, parquet };
std::string_view name(Format format);
std::optional<Format> parse_format(std::string_view name);

}  // namespace falaj::data

template <>
struct falaj::Shape<falaj::data::ColumnSpec> {
  using S = data::ColumnSpec;
  static constexpr std::string_view name = "ColumnSpec";
  static Fields fields() {
    return {field("name", &S::name, "As files and queries call it.").required().length(1, 255),
            field("type", &S::type, "What it holds.").required().one_of(data::kTypeNames),
            field("nullable", &S::nullable, "Whether a value may be missing."),
            field("description", &S::description, "For people.").length(0, 4000)};
  }
};
template <>
struct falaj::Shape<falaj::data::PersonalSpec> {
  using S = data::PersonalSpec;
  static constexpr std::string_view name = "PersonalSpec";
  static Fields fields() {
    return {field("subjectKey", &S::subject_key, "The column that names the person.").required().length(1, 255),
            field("purpose", &S::purpose, "What the data is used for.").required().length(1, 2000),
            field("basis", &S::basis, "Why that is lawful.").required().one_of(data::kBases),
            field("retention", &S::retention_us, "How long it is kept.")
                .duration()
                .range(60'000'000, 3'153'600'000'000'000)};
  }
};
template <>
struct falaj::Shape<falaj::data::DatasetSpec> {
  using S = data::DatasetSpec;
  static constexpr std::string_view name = "DatasetSpec";
  static Fields fields() {
    return {
        field("columns", &S::columns, "Its columns, in order.").required().length(1, 2000),
        field("key", &S::key, "Columns that together name a row.").length(0, 16),
        field("time", &S::time, "The column that says when a row happened; a timestamp or date.").length(0, 255),
        field("partition", &S::partition, "Files are cut by this much of the time column.").one_of(data::kPartitions),
        field("major", &S::major, "Raised when columns change otherwise than by being added.").range(1, 1'000'000),
        field("zone", &S::zone, "Residency zone of its files; the project's when absent.").length(0, 63),
        field("personal", &S::personal, "Set when rows are about people.")};
  }
};
template <>
struct falaj::Shape<falaj::data::ColumnStats> {
  using S = data::ColumnStats;
  static constexpr std::string_view name = "ColumnStats";
  static Fields fields() {
    return {field("name", &S::name, "The column."),
            field("type", &S::type, "What it holds."),
            field("nulls", &S::nulls, "Missing values."),
            field("distinct", &S::distinct, "Different values, estimated."),
            field("min", &S::min, "The least."),
            field("max", &S::max, "The greatest."),
            field("mean", &S::mean, "Of numbers."),
            field("deviation", &S::deviation, "Standard deviation, of numbers."),
            field("quantiles", &S::quantiles, "0.01, 0.05, 0.25, 0.5, 0.75, 0.95 and 0.99, estimated; of numbers."),
            field("top", &S::top, "Most frequent values; of text and booleans."),
            field("top_counts", &S::top_counts, "About how often each of them occurs.")};
  }
};
