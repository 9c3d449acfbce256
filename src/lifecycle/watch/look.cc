// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/watch/look.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "foundation/stats/calibration.h"
#include "foundation/stats/distance.h"
#include "foundation/stats/drift.h"
#include "foundation/stats/outcomes.h"
#include "lifecycle/watch/diagnose.h"
#include "lifecycle/watch/judge.h"

namespace falaj::watch {
namespace {

using stats::Quantiles;
using traffic::ColumnSketch;
using Holds = ColumnSketch::Holds;

constexpr std::size_t kNewShownMax = 3;
constexpr const char *kDrift = "drift", *kMissing = "missing", *kRange = "range";
constexpr const char *kClassifier = "classifier", *kKernel = "kernel";
constexpr std::size_t kTogetherTests = 2;
constexpr std::uint32_t kBlockRows = 4'000;  // of columns together, whatever the length of a block
constexpr std::size_t kTests = 3;
constexpr std::string_view kAnswer = "out_prediction";

bool is_compared(const MonitorSpec& spec, const std::string& name, const ReferenceColumn& column) {
  const auto has = [&](const std::vector<std::string>& list) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  if (has(spec.columns.exclude)) return false;
  if (!spec.columns.include.empty()) return has(spec.columns.include);
  return !column.time;
}

double share(std::uint64_t some, std::uint64_t all) {
  return all == 0 ? 0 : static_cast<double>(some) / static_cast<double>(all);
}

// Counts of the reference's categories, and of all others together.
struct Categories {
  std::vector<stats::Frequent::Entry> known;
  std::vector<double> was, is;
};
Categories categories(const stats::Frequent& reference, const stats::Frequent& window) {
  Categories out;
  out.known = reference.top(kPsiCategoriesMax);
  double left_was = static_cast<double>(reference.total()), left_is = static_cast<double>(window.total());
  for (const auto& [text, counted] : out.known) {
    out.was.push_back(static_cast<double>(counted));
    out.is.push_back(static_cast<double>(window.counted(text)));
    left_was -= out.was.back(), left_is -= out.is.back();
  }
  out.was.push_back(left_was), out.is.push_back(left_is);
  return out;
}

// The marks that the range test counts: numbers beyond the reference's, texts that it never had.
struct Beyond {
  std::uint64_t count = 0;
  std::string shown;
};
Beyond numbers_beyond(const Quantiles& was, const Quantiles& is) {
  Beyond out;
  if (is.min() >= was.min() && is.max() <= was.max()) return out;  // nearly always
  for (const auto& [value, weight] : is.sorted())
    if (value < was.min() || value > was.max()) out.count += weight;
  out.shown = fmt::format("outside {:.6g} to {:.6g}, where all of the reference lies; now {:.6g} to {:.6g}", was.min(),
                          was.max(), is.min(), is.max());
  return out;
}
Beyond texts_beyond(const stats::Frequent& was, const stats::Frequent& is) {
  Beyond out;
  std::size_t many = 0;
  std::string names;
  for (const auto& [text, counted] : is.top(ColumnSketch::kTexts)) {
    if (was.counted(text) > 0) continue;
    out.count += counted;
    if (many++ < kNewShownMax) names += fmt::format("{}'{}'", names.empty() ? "" : ", ", text);
  }
  out.shown = fmt::format("values that the reference never had: {}{}", names, many > kNewShownMax ? ", ..." : "");
  return out;
}

// Whether the two can be compared by their values.
bool is_comparable(const ColumnSketch& was, const ColumnSketch& is) {
  return is.holds == was.holds && is.holds != Holds::nothing && is.present() > 0 && was.present() > 0;
}

// What a block shows of a column, in words.
struct Told {
  std::string kind, text, diagnosis;
};

Told tell_numbers(const ReferenceColumn& reference, const Quantiles& is) {
  const auto& was = reference.sketch.numbers;
  Told out{"drift",
           fmt::format("half lie below {:.4g}, below {:.4g} in the reference; largest gap of ranks {:.2f}",
                       is.quantile(0.5), was.quantile(0.5), stats::ks(was, is)),
           ""};
  if (is.min() == is.max() && was.min() != was.max())
    return {"quality", out.text, fmt::format("always {:.6g}: a value that is no longer filled in?", is.min())};
  // So far apart are two samples of one distribution at most, nineteen times of twenty.
  const double worth =
      1 / (reference.effect / static_cast<double>(was.count()) + reference.effect / static_cast<double>(is.count()));
  const double tolerance = std::sqrt(std::log(2 / kOrdinary) / (2 * worth)) + was.rank_error() + is.rank_error();
  if (const auto diagnosis = diagnose(was, is, tolerance)) {
    out.diagnosis = diagnosis->text;
    if (diagnosis->is_fault) out.kind = "quality";
  }
  return out;
}

Told tell_texts(const ReferenceColumn& reference, const ColumnSketch& seen) {
  const auto both = categories(reference.sketch.texts, seen.texts);
  const double all_was = static_cast<double>(reference.sketch.present()), all_is = static_cast<double>(seen.present());
  std::size_t most = both.known.size();
  double difference = both.is.back() / all_is - both.was.back() / all_was;
  for (std::size_t i = 0; i < both.known.size(); ++i)
    if (const double d = both.is[i] / all_is - both.was[i] / all_was; std::abs(d) > std::abs(difference))
      difference = d, most = i;
  const auto whose = most < both.known.size() ? fmt::format("'{}'", both.known[most].text) : std::string("others");
  Told out{"drift",
           fmt::format("{:.1f} % are {}, {:.1f} % in the reference", 100 * both.is[most] / all_is, whose,
                       100 * both.was[most] / all_was),
           ""};
  const auto now = seen.texts.top(2);
  if (now.size() == 1 && now[0].counted == seen.present() && both.known.size() > 1)
    return {"quality", out.text, fmt::format("always '{}': a value that is no longer filled in?", now[0].text)};
  return out;
}

// `effect`: so many rows are worth one independent one.
ExpectedSeen expected_of(const Reference& reference, const ColumnSketch& was, const ColumnSketch& is, double effect) {
  constexpr double kAt95 = 1.959963984540054;
  const auto now = stats::expected(*reference.calibration, is.numbers),
             then = stats::expected(*reference.calibration, was.numbers);
  const double wide = kAt95 * std::sqrt(std::max(1.0, effect));
  const auto low = [&](double value, double error) { return std::max(0.0, value - wide * error); };
  const auto high = [&](double value, double error) { return std::min(1.0, value + wide * error); };
  return {now.accuracy, low(now.accuracy, now.accuracy_error), high(now.accuracy, now.accuracy_error), then.accuracy,
          now.auc,      low(now.auc, now.auc_error),           high(now.auc, now.auc_error),           then.auc};
}

std::string said_of(const ExpectedSeen& expected) {
  return fmt::format("without labels, an accuracy of {:.3f} ({:.3f} to {:.3f}) is expected, {:.3f} when it was tested",
                     expected.accuracy, expected.accuracy_low, expected.accuracy_high, expected.accuracy_was);
}

// The tests of all columns over the blocks that end with one window.
class Looking {
 public:
  Looking(const Reference& reference, const MonitorSpec& spec, const Window& newest, State& state, std::size_t compared)
      : reference_(reference),
        spec_(spec),
        judge_(spec.level / 2, spec.horizon, compared * kTests, newest.number, state.tests),
        reference_level_(spec.level / 2 / static_cast<double>(compared * kTests)) {}

  void block(const Window& block, std::uint64_t windows) {
    for (const auto& [name, seen] : block.columns) {
      const auto found = reference_.columns.find(name);
      if (found == reference_.columns.end() || !is_compared(spec_, name, found->second)) continue;
      const auto& column = found->second;
      drift(name, column, seen, block, windows);
      missing(name, column, seen, block, windows);
      range(name, column, seen, block, windows);
    }
  }
  struct Chance {
    double p = 1, at_all = 1;  // of the newest window; of any block that ends with it
    Distances distances;
  };
  const std::map<std::string, Chance>& chances() const { return chances_; }

 private:
  template <class Tell>
  void judge(const char* test, const std::string& name, const Window& block, std::uint64_t windows, double p,
             bool matters, Tell tell) {
    const auto [chance, counts] = judge_.see(test, name, {block.number, block.from_us, windows}, p, matters, tell);
    if (test != kDrift) return;
    auto& known = chances_[name];
    if (windows == 1) known.p = p;
    if (counts) known.at_all = std::min(known.at_all, chance);
  }

  void drift(const std::string& name, const ReferenceColumn& column, const ColumnSketch& seen, const Window& block,
             std::uint64_t windows) {
    const auto& was = column.sketch;
    if (seen.holds != was.holds && seen.holds != Holds::nothing && was.holds != Holds::nothing) {
      judge(kDrift, name, block, windows, 0, true, [&] {
        const auto words = [](Holds holds) { return holds == Holds::numbers ? "numbers" : "texts"; };
        Finding out;
        out.kind = "quality";
        out.text = fmt::format("holds {}, and {} in the reference", words(seen.holds), words(was.holds));
        return out;
      });
      return;
    }
    if (!is_comparable(was, seen)) return;
    const bool numbers = seen.holds == Holds::numbers;
    double p = 1;
    if (numbers) {
      const stats::Ordered now(seen.numbers);  // sorting is most of the work
      p = stats::differ_p(column.ordered, now, 1 / column.effect);
      if (windows == 1) chances_[name].distances = distances_of(column.ordered, now);
    } else {
      const auto both = categories(was.texts, seen.texts);
      p = stats::differ_p(both.was, both.is, 1 / column.effect);
      if (windows == 1) chances_[name].distances = distances_of(was, seen);
    }
    judge(kDrift, name, block, windows, p, true, [&] {
      Finding out;
      auto told = numbers ? tell_numbers(column, seen.numbers) : tell_texts(column, seen);
      out.kind = std::move(told.kind);
      out.text = std::move(told.text);
      out.diagnosis = std::move(told.diagnosis);
      if (name == kAnswer && reference_.calibration && out.diagnosis.empty())
        out.diagnosis = said_of(expected_of(reference_, was, seen, column.effect));
      out.distances = distances_of(was, seen);
      return out;
    });
  }

  void missing(const std::string& name, const ReferenceColumn& column, const ColumnSketch& seen, const Window& block,
               std::uint64_t windows) {
    const auto& was = column.sketch;
    if (seen.rows == 0 || was.rows == 0) return;
    const double before = share(was.missing, was.rows), now = share(seen.missing, seen.rows);
    const double p =
        stats::share_above_p(was.missing, was.rows, seen.missing, seen.rows, column.missing_effect, reference_level_);
    judge(kMissing, name, block, windows, p, now - before >= spec_.quality.missing, [&] {
      Finding out;
      out.kind = "quality";
      out.text = fmt::format("{:.1f} % are missing, {:.1f} % in the reference", 100 * now, 100 * before);
      return out;
    });
  }

  void range(const std::string& name, const ReferenceColumn& column, const ColumnSketch& seen, const Window& block,
             std::uint64_t windows) {
    const auto& was = column.sketch;
    const bool numbers = seen.holds == Holds::numbers;
    if (!is_comparable(was, seen) || (!numbers && was.texts.error() > 0))
      return;  // the reference had more than it names
    const auto beyond = numbers ? numbers_beyond(was.numbers, seen.numbers) : texts_beyond(was.texts, seen.texts);
    const double now = share(beyond.count, seen.present());
    const double p =
        stats::share_above_p(0, was.present(), beyond.count, seen.present(), column.effect, reference_level_);
    const bool matters = beyond.count > 0 && now >= (numbers ? spec_.quality.outside : spec_.quality.fresh);
    judge(kRange, name, block, windows, p, matters, [&] {
      Finding out;
      out.kind = "quality";
      out.text = fmt::format("{:.1f} % {} {}", 100 * now, numbers ? "lie" : "are", beyond.shown);
      return out;
    });
  }

  const Reference& reference_;
  const MonitorSpec& spec_;
  Judge judge_;
  const double reference_level_;  // chance that a share of the reference is worse than thought; half of all chance
  std::map<std::string, Chance> chances_;
};

// Columns together over the blocks that end with one window. Requires: the columns of it have been looked at.
ColumnSeen look_together(const ReferenceRows& reference, const MonitorSpec& spec, State& state, const Window& window,
                         const std::vector<std::pair<Judge::Block, stats::RowSample>>& blocks) {
  std::set<std::string> found;
  for (const auto& [key, test] : state.tests)
    if (test.found) found.insert(test.found->column);
  Judge judge(spec.level / 2, spec.horizon, kTogetherTests, window.number, state.tests);
  const std::string name(kTogether);
  ColumnSeen out;
  out.column = name;
  for (const auto& one : blocks) {
    const auto& block = one.first;
    const auto& rows = one.second;
    const auto apart = reference.compare(rows, [&](const std::string& column) { return !found.contains(column); });
    const auto see = [&](const char* test, double p, const std::string& text) {
      const auto seen = judge.see(test, name, block, p, true, [&] {
        Finding finding;
        finding.kind = kDrift;
        finding.text = fmt::format("{}; most by {}", text, apart.most);
        return finding;
      });
      if (block.windows == 1) out.p = std::min(out.p, p);
      if (seen.counts) out.chance = std::min(out.chance, seen.chance);
    };
    if (block.windows == 1) {
      out.rows = static_cast<std::int64_t>(rows.count());
      out.effective_rows = static_cast<double>(rows.count()) / reference.classifier_effect();
      if (apart.columns < 2) out.note = "fewer than two columns that have no finding of their own";
    }
    see(kClassifier, apart.classifier_p,
        fmt::format("rows can be told from those of the reference, with an area under the curve of {:.3f}",
                    apart.area));
    see(kKernel, apart.kernel_p, "rows lie otherwise than those of the reference");
  }
  return out;
}

// Several inputs that moved, and the answers with them: the world, rather than one field.
void tell_together(std::vector<Finding>& findings) {
  std::string inputs;
  std::size_t many = 0;
  bool answers = false;
  for (const auto& one : findings) {
    if (one.test != kDrift || one.kind == "quality") continue;
    if (one.column.starts_with(traffic::kOutputPrefix)) {
      answers = true;
    } else if (many++ < 4) {
      inputs += fmt::format("{}{}", inputs.empty() ? "" : ", ", one.column);
    }
  }
  if (many < 2) return;
  for (auto& one : findings)
    if (one.test == kDrift && one.kind != "quality" && one.diagnosis.empty())
      one.diagnosis = fmt::format("{}{} moved together{}: what the model sees of the world has changed", inputs,
                                  many > 4 ? fmt::format(" and {} more", many - 4) : "",
                                  answers ? ", and its answers with them" : "");
}

}  // namespace

Distances distances_of(const ColumnSketch& was, const ColumnSketch& is) {
  Distances out;
  if (!is_comparable(was, is)) return out;
  if (is.holds == Holds::texts) {
    const auto both = categories(was.texts, is.texts);
    out.psi = stats::population_stability_index(both.was, both.is);
    out.js = stats::jensen_shannon(both.was, both.is);
    return out;
  }
  return distances_of(stats::Ordered(was.numbers), stats::Ordered(is.numbers));
}

Distances distances_of(const stats::Ordered& was, const stats::Ordered& is) {
  Distances out;
  out.ks = stats::ks(was, is);
  if (const double moved = stats::wasserstein(was, is); std::isfinite(moved)) out.wasserstein = moved;
  const auto cuts = stats::edges(was, kPsiBins);
  const auto a = stats::counts(was, cuts), b = stats::counts(is, cuts);
  out.psi = stats::population_stability_index(a, b);
  out.js = stats::jensen_shannon(a, b);
  return out;
}

void Window::merge(const Window& later) {
  until_us = std::max(until_us, later.until_us);
  traffic::merge_into(columns, later.columns);
  if (later.rows.columns().empty()) return;
  rows.set_limit(kBlockRows);
  rows.merge(later.rows);
}

void prepare_together(Reference& reference, const MonitorSpec& spec) {
  reference.together.reset();
  if (!spec.together || reference.rows.count() == 0) return;
  reference.together.emplace(reference.rows, [&](const std::string& name) {
    const auto found = reference.columns.find(name);
    return found != reference.columns.end() && is_compared(spec, name, found->second);
  });
}

void remember(State& state, Window window) {
  state.blocks.add(std::move(window), [](const Window&, std::uint64_t) {});
}

Looked look(const Reference& reference, const MonitorSpec& spec, State state, const Window& window) {
  Looked out;
  const auto compared = static_cast<std::size_t>(
      std::count_if(reference.columns.begin(), reference.columns.end(),
                    [&](const auto& entry) { return is_compared(spec, entry.first, entry.second); }));
  Looking looking(reference, spec, window, state, std::max<std::size_t>(1, compared));
  std::vector<std::pair<Judge::Block, stats::RowSample>> whole;  // looked at when columns have been
  auto sorted = window;
  for (auto& entry : sorted.columns) entry.second.numbers.sort();
  state.blocks.add(std::move(sorted), [&](const Window& block, std::uint64_t windows) {
    looking.block(block, windows);
    if (reference.together && block.rows.count() > 0)
      whole.push_back({{block.number, block.from_us, windows}, block.rows});
  });
  if (!whole.empty()) out.columns.push_back(look_together(*reference.together, spec, state, window, whole));
  for (const auto& [name, seen] : window.columns) {
    ColumnSeen told;
    told.column = name;
    told.rows = static_cast<std::int64_t>(seen.rows);
    told.missing = static_cast<std::int64_t>(seen.missing);
    const auto found = reference.columns.find(name);
    if (found == reference.columns.end()) {
      told.note = "not in the reference";
    } else if (!is_compared(spec, name, found->second)) {
      told.note = found->second.time ? "a time, which moves on by itself" : "not asked for";
    } else if (seen.holds == Holds::nothing) {
      told.note = "hidden: only whether there was a value";
    } else if (is_comparable(found->second.sketch, seen)) {
      const auto& was = found->second;
      told.effective_rows = static_cast<double>(seen.present()) / was.effect;
      if (const auto chance = looking.chances().find(name); chance != looking.chances().end())
        told.p = chance->second.p, told.chance = chance->second.at_all, told.distances = chance->second.distances;
      if (name == kAnswer && reference.calibration) {
        told.expected = expected_of(reference, was.sketch, seen, was.effect);
        told.note = said_of(*told.expected);
      }
    }
    out.columns.push_back(std::move(told));
  }
  // Numbers in another unit lie beyond the range, too: one word is enough.
  for (const auto& [key, test] : state.tests) {
    if (!test.found) continue;
    const auto drift = state.tests.find(fmt::format("{} {}", kDrift, test.found->column));
    const auto classifier = state.tests.find(fmt::format("{} {}", kClassifier, kTogether));
    const bool explained = (test.found->test == kRange && drift != state.tests.end() && drift->second.found &&
                            drift->second.found->kind == "quality") ||
                           (test.found->test == kKernel && classifier != state.tests.end() && classifier->second.found);
    if (!explained) out.findings.push_back(*test.found);
  }
  tell_together(out.findings);
  out.state = std::move(state);
  return out;
}

}  // namespace falaj::watch
