// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/stats/outcomes.h"
#include "governance/resource/kind.h"

namespace falaj::watch {

inline constexpr const char* kMonitor = "Monitor";
inline constexpr std::string_view kReferences[] = {"training", "windows", "dataset", "past"};
// Of a chosen time: fewer do not say how much they differ from one another, of more the newest are taken.
inline constexpr std::int64_t kPastWindowsMin = 8, kPastWindowsMax = 1'000;

// Rows that are compared together. By their number, so that quiet nights and busy days are judged alike.
struct WindowSpec {
  std::int64_t rows = 1000;
  std::int64_t at_most_us = 3'600'000'000;
};

// A time that is known to have been good: `from` to `to`, or the last `windows` before `before`.
struct PastSpec {
  std::string from, to, before;  // RFC 3339
  std::int64_t windows = 0;
};

struct ColumnsSpec {
  std::vector<std::string> include, exclude;  // include: none is all
};

// How much of a fault is worth a word. That it is no chance is asked besides.
struct QualitySpec {
  double missing = 0.01;        // rise of the share of missing values
  double fresh = 0.01;          // share of values that the reference never had
  double outside = 0.01;        // share of numbers beyond the reference's range
  std::int64_t silence_us = 0;  // without a request; 0: any length
};

// Columns together: rows of each window that leave the server whole, chosen by chance.
struct TogetherSpec {
  std::int64_t rows = 500;
};

// What became of predictions: their labels, compared with the first of them.
struct LabelsSpec {
  std::int64_t rows = 200;    // labels that are compared together
  std::int64_t windows = 20;  // of so many, the first, is the reference
};

// How well the model does: labels joined with the predictions of the log.
struct PerformanceSpec {
  std::int64_t rows = 200;    // labelled predictions that are judged together
  std::int64_t windows = 20;  // of so many, the first, is the reference where the training left none
  std::int64_t wait_us = 0;   // a prediction is judged so long after it was made, when late labels have come, too
  std::string time;           // an input that says when; "": when it was answered
  std::string output = "prediction";
  std::string task;  // "": as the training says
};

struct MonitorSpec {
  std::string endpoint;
  std::string reference = "training";
  std::int64_t reference_windows = 20;
  std::string reference_dataset;  // NAME@VERSION
  std::optional<PastSpec> reference_past;
  WindowSpec window;
  double level = 0.01;
  std::int64_t horizon = 1000;
  ColumnsSpec columns;
  QualitySpec quality;
  std::optional<TogetherSpec> together;
  std::optional<LabelsSpec> labels;
  std::optional<PerformanceSpec> performance;
  std::int64_t rows_per_second = 1000;
  std::int64_t keep_us = 2'592'000'000'000;
};

resource::Kind monitor_kind();

// Which windows of the past are the reference: those that ended within, the newest `windows` of them; 0: all.
struct Past {
  std::int64_t from_us = 0, to_us = 0, windows = 0;
};
std::optional<Past> past_of(const MonitorSpec& spec);  // of reference: past

// Requires: reference: dataset, of a spec that was checked.
struct DatasetVersion {
  std::string name;
  std::int64_t version = 0;
};
DatasetVersion dataset_of(const MonitorSpec& spec);

// Columns, columns together, labels and performance are looked at by themselves: each gets an equal share of the level.
double level_of_each(const MonitorSpec& spec);

}  // namespace falaj::watch

namespace falaj {

template <>
struct Shape<watch::WindowSpec> {
  using T = watch::WindowSpec;
  static constexpr std::string_view name = "MonitorWindow";
  static Fields fields() {
    return {field("rows", &T::rows, "So many are compared together.").range(50, 1'000'000),
            field("atMost", &T::at_most_us, "What came until then is compared, though it be fewer.")
                .duration()
                .range(1'000'000, 2'592'000'000'000)};
  }
};
template <>
struct Shape<watch::PastSpec> {
  using T = watch::PastSpec;
  static constexpr std::string_view name = "MonitorPast";
  static Fields fields() {
    return {field("from", &T::from, "Windows that ended from this moment on, RFC 3339 ...").length(0, 40),
            field("to", &T::to, "... until this one.").length(0, 40),
            field("windows", &T::windows, "Or: so many windows, the last ones ...").range(0, 1000),
            field("before", &T::before, "... that ended before this moment.").length(0, 40)};
  }
};
template <>
struct Shape<watch::ColumnsSpec> {
  using T = watch::ColumnsSpec;
  static constexpr std::string_view name = "MonitorColumns";
  static Fields fields() {
    return {field("include", &T::include, "Only these: inputs by name, outputs with out_ before it.").length(0, 256),
            field("exclude", &T::exclude, "Not these.").length(0, 256)};
  }
};
template <>
struct Shape<watch::QualitySpec> {
  using T = watch::QualitySpec;
  static constexpr std::string_view name = "MonitorQuality";
  static Fields fields() {
    return {field("missing", &T::missing, "Rise of the share of missing values that is worth a word.").range(0, 1),
            field("new", &T::fresh, "Share of texts that the reference never had.").range(0, 1),
            field("outside", &T::outside, "Share of numbers beyond what the reference had.").range(0, 1),
            field("silence", &T::silence_us, "So long without a request is a finding; 0: never.")
                .duration()
                .range(0, 2'592'000'000'000)};
  }
};
template <>
struct Shape<watch::TogetherSpec> {
  using T = watch::TogetherSpec;
  static constexpr std::string_view name = "MonitorTogether";
  static Fields fields() {
    return {field("rows", &T::rows, "Of each window so many, chosen by chance, leave the server whole; texts as codes.")
                .range(50, 5'000)};
  }
};
template <>
struct Shape<watch::LabelsSpec> {
  using T = watch::LabelsSpec;
  static constexpr std::string_view name = "MonitorLabels";
  static Fields fields() {
    return {field("rows", &T::rows, "Labels that are compared together.").range(20, 1'000'000),
            field("windows", &T::windows, "So many windows of them, the first, are the reference.").range(8, 1000)};
  }
};
template <>
struct Shape<watch::PerformanceSpec> {
  using T = watch::PerformanceSpec;
  static constexpr std::string_view name = "MonitorPerformance";
  static Fields fields() {
    return {
        field("rows", &T::rows, "Labelled predictions that are judged together.").range(20, 100'000),
        field("windows", &T::windows, "So many windows, the first, are the reference where the training left none.")
            .range(8, 1000),
        field("wait", &T::wait_us, "Judges predictions so long after they were made, when late labels have come, too.")
            .duration()
            .range(0, 31'536'000'000'000),
        field("time", &T::time, "An input that says when it was, such as date; absent: when it was answered.")
            .length(0, 256),
        field("output", &T::output, "Of the model, that is held against labels.").length(1, 256),
        field("task", &T::task, "binary, classes or regression; absent: as the training says.").one_of(stats::kTasks)};
  }
};
template <>
struct Shape<watch::MonitorSpec> {
  using T = watch::MonitorSpec;
  static constexpr std::string_view name = "MonitorSpec";
  static Fields fields() {
    return {
        field("endpoint", &T::endpoint, "What is watched.").required().text({is_name, kNameRule}),
        field("reference", &T::reference,
              "What it is compared with: training (reference.json of the model version; where it has none, windows), "
              "windows (the first referenceWindows of them), dataset (referenceDataset) or past (referencePast).")
            .one_of(watch::kReferences),
        field("referenceWindows", &T::reference_windows, "How many windows make a reference.").range(8, 1000),
        field("referenceDataset", &T::reference_dataset, "Of reference: dataset, a version: flights@3.").length(0, 256),
        field("referencePast", &T::reference_past, "Of reference: past, which windows."),
        field("window", &T::window, "How many rows are compared together."),
        field("level", &T::level, "Chance of any false finding of drift within `horizon` windows, over all columns.")
            .range(0, 1),
        field("horizon", &T::horizon, "Windows for which `level` holds.").range(10, 1'000'000),
        field("columns", &T::columns, "Which are compared; all but times when absent."),
        field("quality", &T::quality, "Faults of data that are told besides drift."),
        field(
            "together", &T::together,
            "Also compares whole rows: columns that no longer go together as before; absent: no row leaves a server."),
        field("labels", &T::labels, "Also watches what became of predictions: labels of its endpoint; absent: not."),
        field("performance", &T::performance,
              "How well the model does, by labels of logged predictions; absent: not watched."),
        field("rowsPerSecond", &T::rows_per_second, "Most rows that each server looks at; more are thinned by chance.")
            .range(1, 100'000),
        field("keep", &T::keep_us, "How long windows and findings stay.")
            .duration()
            .range(3'600'000'000, 315'360'000'000'000)};
  }
};

}  // namespace falaj
