// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "governance/resource/kind.h"

namespace falaj::watch {

inline constexpr const char* kMonitor = "Monitor";
inline constexpr std::string_view kReferences[] = {"training", "windows"};

// Rows that are compared together. By their number, so that quiet nights and busy days are judged alike.
struct WindowSpec {
  std::int64_t rows = 1000;
  std::int64_t at_most_us = 3'600'000'000;
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

// What became of predictions: their labels, compared with the first of them.
struct LabelsSpec {
  std::int64_t rows = 200;    // labels that are compared together
  std::int64_t windows = 20;  // of so many, the first, is the reference
};

struct MonitorSpec {
  std::string endpoint;
  std::string reference = "training";
  std::int64_t reference_windows = 20;
  WindowSpec window;
  double level = 0.01;
  std::int64_t horizon = 1000;
  ColumnsSpec columns;
  QualitySpec quality;
  std::optional<LabelsSpec> labels;
  std::int64_t rows_per_second = 1000;
  std::int64_t keep_us = 2'592'000'000'000;
};

resource::Kind monitor_kind();

}  // namespace falaj::watch

namespace falaj {

template <>
struct Shape<watch::WindowSpec> {
  using T = watch::WindowSpec;
  static constexpr std::string_view name = "MonitorWindow";
  static constexpr auto fields =
      std::make_tuple(field("rows", &T::rows, "So many are compared together.").range(50, 1'000'000),
                      field("atMost", &T::at_most_us, "What came until then is compared, though it be fewer.")
                          .duration()
                          .range(1'000'000, 2'592'000'000'000));
};
template <>
struct Shape<watch::ColumnsSpec> {
  using T = watch::ColumnsSpec;
  static constexpr std::string_view name = "MonitorColumns";
  static constexpr auto fields = std::make_tuple(
      field("include", &T::include, "Only these: inputs by name, outputs with out_ before it.").length(0, 256),
      field("exclude", &T::exclude, "Not these.").length(0, 256));
};
template <>
struct Shape<watch::QualitySpec> {
  using T = watch::QualitySpec;
  static constexpr std::string_view name = "MonitorQuality";
  static constexpr auto fields = std::make_tuple(
      field("missing", &T::missing, "Rise of the share of missing values that is worth a word.").range(0, 1),
      field("new", &T::fresh, "Share of texts that the reference never had.").range(0, 1),
      field("outside", &T::outside, "Share of numbers beyond what the reference had.").range(0, 1),
      field("silence", &T::silence_us, "So long without a request is a finding; 0: never.")
          .duration()
          .range(0, 2'592'000'000'000));
};
template <>
struct Shape<watch::LabelsSpec> {
  using T = watch::LabelsSpec;
  static constexpr std::string_view name = "MonitorLabels";
  static constexpr auto fields = std::make_tuple(
      field("rows", &T::rows, "Labels that are compared together.").range(20, 1'000'000),
      field("windows", &T::windows, "So many windows of them, the first, are the reference.").range(8, 1000));
};
template <>
struct Shape<watch::MonitorSpec> {
  using T = watch::MonitorSpec;
  static constexpr std::string_view name = "MonitorSpec";
  static constexpr auto fields = std::make_tuple(
      field("endpoint", &T::endpoint, "What is watched.").required().text({is_name, kNameRule}),
      field("reference", &T::reference,
            "What it is compared with: training (reference.json of the model version; where it has none, windows) or "
            "windows (the first referenceWindows of them).")
          .one_of(watch::kReferences),
      field("referenceWindows", &T::reference_windows, "How many windows make a reference.").range(8, 1000),
      field("window", &T::window, "How many rows are compared together."),
      field("level", &T::level, "Chance of any false finding of drift within `horizon` windows, over all columns.")
          .range(0, 1),
      field("horizon", &T::horizon, "Windows for which `level` holds.").range(10, 1'000'000),
      field("columns", &T::columns, "Which are compared; all but times when absent."),
      field("quality", &T::quality, "Faults of data that are told besides drift."),
      field("labels", &T::labels, "Also watches what became of predictions: labels of its endpoint; absent: not."),
      field("rowsPerSecond", &T::rows_per_second, "Most rows that each server looks at; more are thinned by chance.")
          .range(1, 100'000),
      field("keep", &T::keep_us, "How long windows and findings stay.")
          .duration()
          .range(3'600'000'000, 315'360'000'000'000));
};

}  // namespace falaj
