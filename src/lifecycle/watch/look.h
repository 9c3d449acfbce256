// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a window says of the columns in it, as a function of values: no clock, no store.
//
// Each column has up to three tests: drift (the distribution), missing (how often there is no value), and range
// (numbers beyond, texts never in the reference). Each looks at windows one by one and at the newest 2, 4, 8 ... of
// them together (stats::Blocks); a finding begins when chance would not bring as much, within so many windows, to any
// of the tests. It stands until blocks as long as the one that showed it look ordinary again.
// Columns together have two, classifier and kernel, of whole rows; columns that have a finding of their own are left
// out of them, so that what they find is something else.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "foundation/base/shape.h"
#include "foundation/stats/drift.h"
#include "lifecycle/watch/kind.h"
#include "lifecycle/watch/reference.h"

namespace falaj::watch {

// One window, or several of them together.
struct Window {
  std::int64_t number = 0;  // of its stream, from 0; of several, the first
  std::int64_t from_us = 0, until_us = 0;
  traffic::Sketches columns;
  stats::RowSample rows{};  // whole ones, where somebody asked for them
  void merge(const Window& later);
};

struct Distances {
  std::optional<double> ks, psi, js, wasserstein;
};

// Bins of what the index and the divergence are counted over.
inline constexpr std::size_t kPsiBins = 10, kPsiCategoriesMax = 64;
// None where the two do not hold the same, or one holds nothing.
Distances distances_of(const traffic::ColumnSketch& reference, const traffic::ColumnSketch& window);
Distances distances_of(const stats::Ordered& reference, const stats::Ordered& window);  // of numbers

// One column of one window.
// How well a model that tells two classes apart probably does, before labels come, if what its scores mean still holds.
struct ExpectedSeen {
  double accuracy = 0, accuracy_low = 0, accuracy_high = 0, accuracy_was = 0;  // 95 % bounds; when it was tested
  double auc = 0, auc_low = 0, auc_high = 0, auc_was = 0;
};
struct ColumnSeen {
  std::string column;
  std::int64_t rows = 0, missing = 0;
  double effective_rows = 0;
  double p = 1;       // of drift, in this window alone
  double chance = 1;  // of what the blocks that end with it show, to be seen anywhere in the horizon
  Distances distances;
  std::string note;  // why it is not compared; or how well the model probably does
  std::optional<ExpectedSeen> expected;
};

// How well a model did: over so many labelled predictions, and by its reference.
struct Measured {
  double value = 0, low = 0, high = 0;  // 95 % bounds
  double was = 0, was_low = 0, was_high = 0;
  std::int64_t labels = 0;
};

struct Finding {
  std::string column, test, kind;  // kind: drift, quality, performance or skew
  std::int64_t since_us = 0, window = 0;
  std::int64_t windows = 0;  // that show it together
  double score = 0;          // how much less likely by chance than it may be, in powers of ten
  double p = 1;
  Distances distances;
  std::optional<Measured> measured;  // of kind performance
  std::string text, diagnosis;
};

// What one test has come to so far.
struct TestState {
  std::optional<Finding> found;  // while it stands
  std::int64_t quiet = 0;        // blocks in a row, as long as the one that showed it, that look ordinary
  std::int64_t clear_from = 0;   // windows before this one led to a finding that has ended, and count no more
};
// Requires of who keeps it: `tests` is kept; `blocks` follows from the newest windows (remember).
struct State {
  stats::Blocks<Window> blocks;
  std::map<std::string, TestState> tests;  // by "TEST COLUMN"
};
// As many windows, from one whose number is a multiple of this on, make the blocks what they were.
inline constexpr std::int64_t kRemembered = static_cast<std::int64_t>(stats::Blocks<Window>::kWindowsMax);
void remember(State& state, Window window);

struct Looked {
  State state;
  std::vector<Finding> findings;  // all that stand
  std::vector<ColumnSeen> columns;
};
// Ensures: while nothing changes, the chance that a finding of a test ever begins within spec.horizon windows is at
// most spec.level for all tests of columns, and as much for columns together.
Looked look(const Reference& reference, const MonitorSpec& spec, State state, const Window& window);

// What findings of columns together are called by.
inline constexpr std::string_view kTogether = "*";
// Makes the reference's rows ready for a monitor that compares columns together; nothing where it does not.
void prepare_together(Reference& reference, const MonitorSpec& spec);

}  // namespace falaj::watch

namespace falaj {

template <>
struct Shape<watch::Distances> {
  using T = watch::Distances;
  static constexpr std::string_view name = "ColumnDistances";
  static Fields fields() {
    return {field("ks", &T::ks, "Kolmogorov and Smirnov's: the largest gap of ranks."),
            field("psi", &T::psi, "The population stability index, over ten bins of the reference."),
            field("js", &T::js, "Jensen and Shannon's divergence, in bits, over the same bins."),
            field("wasserstein", &T::wasserstein, "How far values must be moved in the mean, in their unit.")};
  }
};
template <>
struct Shape<watch::ExpectedSeen> {
  using T = watch::ExpectedSeen;
  static constexpr std::string_view name = "ExpectedPerformance";
  static Fields fields() {
    return {field("accuracy", &T::accuracy, "Of calling positive what is more likely to be."),
            field("accuracy_low", &T::accuracy_low, "The lower end of where labels will put it, in 95 of 100 windows."),
            field("accuracy_high", &T::accuracy_high, "The upper end."),
            field("accuracy_was", &T::accuracy_was, "The same of the scores that it is compared with."),
            field("auc", &T::auc, "The area under the ROC curve."),
            field("auc_low", &T::auc_low, "Its lower end."),
            field("auc_high", &T::auc_high, "Its upper end."),
            field("auc_was", &T::auc_was, "Of the scores that it is compared with.")};
  }
};
template <>
struct Shape<watch::ColumnSeen> {
  using T = watch::ColumnSeen;
  static constexpr std::string_view name = "ColumnSeen";
  static Fields fields() {
    return {
        field("column", &T::column, "Its name."),
        field("rows", &T::rows, "That were looked at."),
        field("missing", &T::missing, "Of them without a value."),
        field("effective_rows", &T::effective_rows, "As many independent ones they are worth."),
        field("p", &T::p, "Chance of such a distance, were nothing different; of this window alone."),
        field(
            "chance", &T::chance,
            "The same of blocks of windows that end with it, with all that was looked at; a finding begins at half the "
            "level."),
        field("distances", &T::distances, "From the reference."),
        field("note", &T::note, "Why it is not compared; of the answers, how well the model probably does."),
        field("expected", &T::expected,
              "Of the answers of a model that tells two classes apart, the same as numbers.")};
  }
};
template <>
struct Shape<watch::Measured> {
  using T = watch::Measured;
  static constexpr std::string_view name = "Measured";
  static Fields fields() {
    return {field("value", &T::value, "Over the windows that show it."),
            field("low", &T::low, "Its lower 95 % bound."),
            field("high", &T::high, "And the upper one."),
            field("was", &T::was, "Of the reference."),
            field("was_low", &T::was_low, "Its lower 95 % bound."),
            field("was_high", &T::was_high, "And the upper one."),
            field("labels", &T::labels, "Labelled predictions in these windows.")};
  }
};
template <>
struct Shape<watch::Finding> {
  using T = watch::Finding;
  static constexpr std::string_view name = "MonitorFinding";
  static Fields fields() {
    return {field("column", &T::column, "Whose."),
            field("test", &T::test, "What found it."),
            field("kind", &T::kind, "drift, quality, performance or skew."),
            field("since_us", &T::since_us, "From when on the evidence is strongest."),
            field("window", &T::window, "Number of the newest window that was looked at."),
            field("windows", &T::windows, "So many together show it."),
            field("score", &T::score, "How much less likely by chance than it may be, in powers of ten."),
            field("p", &T::p, "Chance of such a distance in these windows, were nothing different."),
            field("distances", &T::distances, "From the reference."),
            field("measured", &T::measured, "How well the model did; of kind performance."),
            field("text", &T::text, "What is seen."),
            field("diagnosis", &T::diagnosis, "What it may come from.")};
  }
};

template <>
struct Shape<watch::TestState> {
  using T = watch::TestState;
  static constexpr std::string_view name = "MonitorTestState";
  static Fields fields() {
    return {field("found", &T::found, ""), field("quiet", &T::quiet, ""), field("clear_from", &T::clear_from, "")};
  }
};

}  // namespace falaj
