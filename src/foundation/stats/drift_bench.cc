// SPDX-License-Identifier: Apache-2.0
// How often drift is reported where there is none, and how soon where there is: beside what is usually done, on the
// same streams. Streams have 50 columns and windows of 500 rows.
//   drift_bench [--streams N] [--trials N] [--export DIRECTORY]
// --export writes streams and what we say of them, for others to look at the same: tests/clients/compare_drift.py
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/stats/change.h"
#include "foundation/stats/distance.h"
#include "foundation/stats/drift.h"
#include "foundation/stats/together.h"

namespace falaj::stats {
namespace {

constexpr std::size_t kColumns = 50, kWindowRows = 500, kReferenceRows = 5000, kQuietWindows = 30, kHorizon = 60;
constexpr std::size_t kCategories = 10, kEdges = 10;
constexpr std::uint32_t kReferenceSketch = 2048, kWindowSketch = 512;
constexpr double kLevel = 0.05;  // chance of any false alarm: of any column, in any window

using Random = std::mt19937_64;
using Values = std::vector<double>;

double normal(Random& random) {
  static thread_local std::normal_distribution<double> one;
  return one(random);
}

// Columns as they are met: bell-shaped, skewed, flat, in two humps, and of few values.
double draw(std::size_t column, Random& random) {
  switch (column % 5) {
    case 0:
      return normal(random);
    case 1:
      return std::exp(normal(random));
    case 2:
      return std::generate_canonical<double, 53>(random);
    case 3:
      return normal(random) + (random() % 3 == 0 ? 4 : 0);
    default:
      return static_cast<double>(random() % 20);
  }
}

std::size_t draw_category(Random& random) {  // the k-th in proportion to 1/k
  static const auto weights = [] {
    std::array<double, kCategories> out{};
    for (std::size_t k = 0; k < kCategories; ++k) out[k] = 1.0 / static_cast<double>(k + 1);
    return out;
  }();
  static thread_local std::discrete_distribution<std::size_t> one(weights.begin(), weights.end());
  return one(random);
}

template <class Draw>
Values many(std::size_t n, Draw draw_one) {
  Values out(n);
  for (double& value : out) value = draw_one();
  return out;
}

Quantiles sketch(const Values& values) {
  Quantiles out(kWindowSketch);
  for (const double value : values) out.add(value);
  return out;
}

// The largest gap of ranks of two sorted samples: as everybody computes it, without sketches.
double exact_ks(const Values& a, const Values& b) {
  double gap = 0;
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    const double at = std::min(a[i], b[j]);
    while (i < a.size() && a[i] <= at) ++i;
    while (j < b.size() && b[j] <= at) ++j;
    gap = std::max(gap, std::abs(static_cast<double>(i) / static_cast<double>(a.size()) -
                                 static_cast<double>(j) / static_cast<double>(b.size())));
  }
  return gap;
}

Values sorted(Values values) {
  std::sort(values.begin(), values.end());
  return values;
}

// One column watched in all ways at once. A way has alarmed in the window whose number it holds, counted from 1.
struct Watched {
  struct Alarms {
    std::size_t ours = 0;
    std::size_t each_window = 0;  // a test at 5 % in every window, shared among columns: what a drift library does
    std::size_t horizon = 0;      // the same test, shared among windows too: as few false alarms as ours
    std::size_t stability = 0;    // population stability index above 0.2: a rule of thumb
  };
  Alarms alarms;
  std::size_t windows = 0;
  double chance = 1;  // of what our blocks that end with this window show

  void add(double test_p, double index, std::size_t horizon) {
    ++windows;
    const auto mark = [&](std::size_t& at, bool alarm) {
      if (at == 0 && alarm) at = windows;
    };
    const double columns = kColumns;
    mark(alarms.ours, chance < kLevel);
    mark(alarms.each_window, test_p < kLevel / columns);
    mark(alarms.horizon, test_p < kLevel / columns / static_cast<double>(horizon));
    mark(alarms.stability, index > 0.2);
  }
};

struct NumberColumn {
  Values reference;
  Quantiles sketched{kReferenceSketch};
  Values cuts, expected;
  Blocks<Quantiles> blocks;
  Watched watched;

  explicit NumberColumn(Values values) : reference(sorted(values)) {
    for (const double value : values) sketched.add(value);
    cuts = edges(sketched, kEdges);
    expected = counts(sketched, cuts);
  }
  void look(Values values, std::size_t horizon) {
    const auto window = sketch(values);
    const double gap = exact_ks(reference, sorted(std::move(values)));
    watched.chance = 1;
    blocks.add(window, [&](const Quantiles& block, std::uint64_t windows) {
      watched.chance = std::min(watched.chance, chance_at_all(differ_p(sketched, block), windows, horizon, kColumns));
    });
    watched.add(ks_test_p(gap, static_cast<double>(reference.size()), static_cast<double>(window.count())),
                population_stability_index(expected, counts(window, cuts)), horizon);
  }
};

struct Counts {
  Values of = Values(kCategories);
  void merge(const Counts& other) {
    for (std::size_t i = 0; i < of.size(); ++i) of[i] += other.of[i];
  }
};

struct CategoryColumn {
  Values reference = Values(kCategories);
  Blocks<Counts> blocks;
  Watched watched;

  explicit CategoryColumn(Random& random) {
    for (std::size_t i = 0; i < kReferenceRows; ++i) ++reference[draw_category(random)];
  }
  // Of each row, with so much chance, the last category instead of the first.
  void look(Random& random, double moved, std::size_t horizon) {
    Counts counted;
    Values& window = counted.of;
    for (std::size_t i = 0; i < kWindowRows; ++i) {
      auto category = draw_category(random);
      if (category == 0 && std::generate_canonical<double, 53>(random) < moved) category = kCategories - 1;
      ++window[category];
    }
    watched.chance = 1;
    blocks.add(counted, [&](const Counts& block, std::uint64_t windows) {
      watched.chance =
          std::min(watched.chance, chance_at_all(differ_p(reference, block.of), windows, horizon, kColumns));
    });
    watched.add(chi_square_test_p(reference, window), population_stability_index(reference, window), horizon);
  }
};

// ---- how often nothing is something

void false_alarms(int streams) {
  int ours = 0, each_window = 0, horizon = 0, stability = 0;
  for (int stream = 0; stream < streams; ++stream) {
    Random random(static_cast<std::uint64_t>(stream) * 7919 + 1);
    bool any_ours = false, any_each = false, any_horizon = false, any_index = false;
    const auto count = [&](const Watched::Alarms& alarms) {
      any_ours = any_ours || alarms.ours > 0;
      any_each = any_each || alarms.each_window > 0;
      any_horizon = any_horizon || alarms.horizon > 0;
      any_index = any_index || alarms.stability > 0;
    };
    for (std::size_t column = 0; column < kColumns; ++column) {
      if (column % 5 == 4 && column % 2 == 0) {
        CategoryColumn watched(random);
        for (std::size_t w = 0; w < kQuietWindows; ++w) watched.look(random, 0, kQuietWindows);
        count(watched.watched.alarms);
        continue;
      }
      const auto one = [&] { return draw(column, random); };
      NumberColumn watched(many(kReferenceRows, one));
      for (std::size_t w = 0; w < kQuietWindows; ++w) watched.look(many(kWindowRows, one), kQuietWindows);
      count(watched.watched.alarms);
    }
    ours += any_ours ? 1 : 0;
    each_window += any_each ? 1 : 0;
    horizon += any_horizon ? 1 : 0;
    stability += any_index ? 1 : 0;
  }
  const double all = streams;
  std::printf("false alarms in %d streams of %zu columns and %zu windows, nothing changing (stated: at most %g)\n",
              streams, kColumns, kQuietWindows, kLevel);
  std::printf("  ours %.4f   test in each window %.4f   the same, windows counted too %.4f   index > 0.2 %.4f\n",
              ours / all, each_window / all, horizon / all, stability / all);
  const json::object line{{"claim", "streams with a false alarm, 50 columns"},
                          {"ours", ours / all},
                          {"unit", "share"},
                          {"against", "stated level"},
                          {"limit", kLevel},
                          {"ratio", ours / all / kLevel},
                          {"goal", 1},
                          {"better", "lower"}};
  std::puts(json::serialize(line).c_str());
}

// ---- how soon something is noticed

struct Delay {
  double windows = 0;  // mean, those not found counted as the horizon
  int found = 0;
  void add(std::size_t at) {
    windows += static_cast<double>(at == 0 ? kHorizon : at);
    found += at > 0 ? 1 : 0;
  }
};

struct Fault {
  const char* kind;
  const char* unit;
  std::vector<double> sizes;
};

Watched::Alarms change_number(const std::string& kind, double size, Random& random) {
  const bool skewed = kind == "unit";
  const auto before = [&] { return skewed ? std::exp(normal(random)) : normal(random); };
  NumberColumn watched(many(kReferenceRows, before));
  for (std::size_t w = 0; w < kHorizon; ++w)
    watched.look(many(kWindowRows, [&] { return kind == "mean" ? before() + size : before() * size; }), kHorizon);
  return watched.watched.alarms;
}

Watched::Alarms change_mix(double size, Random& random) {
  CategoryColumn watched(random);
  for (std::size_t w = 0; w < kHorizon; ++w) watched.look(random, size, kHorizon);
  return watched.watched.alarms;
}

Values pairs(std::size_t n, double correlation, Random& random) {
  Values out;
  for (std::size_t i = 0; i < n; ++i) {
    const double x = normal(random);
    out.push_back(x);
    out.push_back(correlation * x + std::sqrt(1 - correlation * correlation) * normal(random));
  }
  return out;
}

struct Sampled {
  static constexpr std::size_t kRowsMax = 4000;  // as many are kept of a block
  Values rows;
  void merge(const Sampled& other) {
    rows.insert(rows.end(), other.rows.begin(), other.rows.end());
    if (rows.size() / 2 <= kRowsMax) return;
    Values every_other;
    for (std::size_t i = 0; i + 1 < rows.size(); i += 4) every_other.insert(every_other.end(), {rows[i], rows[i + 1]});
    rows = std::move(every_other);
  }
};

// No column changes, only how two go together.
Watched::Alarms change_rotation(double correlation, Random& random) {
  constexpr double kBefore = 0.6;
  Watched watched;
  const auto first = [](const Values& rows) {
    Values out;
    for (std::size_t i = 0; i < rows.size(); i += 2) out.push_back(rows[i]);
    return sorted(std::move(out));
  };
  const auto known = pairs(kReferenceRows, kBefore, random);
  const auto reference = first(known);
  Blocks<Sampled> blocks;
  for (std::size_t w = 0; w < kHorizon; ++w) {
    const auto after = pairs(kWindowRows, correlation, random);
    watched.chance = 1;
    blocks.add({after}, [&](const Sampled& block, std::uint64_t windows) {
      const double p = classifier_test({known, 2}, {block.rows, 2}, w).p;
      watched.chance = std::min(watched.chance, chance_at_all(p, windows, kHorizon, kColumns));
    });
    watched.add(ks_test_p(exact_ks(reference, first(after)), kReferenceRows, kWindowRows), 0, kHorizon);
  }
  return watched.alarms;
}

void delays(int trials) {
  const std::vector<Fault> faults = {{"mean", "deviations added", {0.05, 0.1, 0.2, 0.5}},
                                     {"variance", "times as wide", {1.05, 1.1, 1.25, 1.5}},
                                     {"mix", "of one category become another", {0.05, 0.1, 0.2, 0.4}},
                                     {"rotation", "correlation, 0.6 before", {0.5, 0.4, 0.2, -0.6}},
                                     {"unit", "times, such as kilometres for miles", {1.05, 1.1, 1.609344, 1000}}};
  std::printf("windows of %zu rows until it is noticed, mean of %d (%zu: not within that many); found\n", kWindowRows,
              trials, kHorizon);
  std::printf("  %-10s %8s  %16s %28s %28s\n", "change", "size", "ours", "test, as few false alarms", "index > 0.2");
  for (const auto& fault : faults)
    for (const double size : fault.sizes) {
      Delay ours, test, stability;
      for (int trial = 0; trial < trials; ++trial) {
        Random random(static_cast<std::uint64_t>(trial) * 104'729 + 17);
        const std::string kind = fault.kind;
        const auto alarms = kind == "mix"        ? change_mix(size, random)
                            : kind == "rotation" ? change_rotation(size, random)
                                                 : change_number(kind, size, random);
        ours.add(alarms.ours);
        test.add(alarms.horizon);
        stability.add(alarms.stability);
      }
      const double n = trials;
      std::printf("  %-10s %8g  %8.1f (%3.0f %%) %20.1f (%3.0f %%) %20.1f (%3.0f %%)   %s\n", fault.kind, size,
                  ours.windows / n, 100 * ours.found / n, test.windows / n, 100 * test.found / n, stability.windows / n,
                  100 * stability.found / n, fault.unit);
      std::array<char, 80> claim{};
      std::snprintf(claim.data(), claim.size(), "windows until noticed, %s %g", fault.kind, size);
      const json::object line{{"claim", claim.data()},
                              {"ours", ours.windows / n},
                              {"unit", "windows"},
                              {"against", "test with as few false alarms"},
                              {"limit", test.windows / n},
                              {"ratio", ours.windows / test.windows},
                              {"goal", 1},
                              {"better", "lower"}};
      std::puts(json::serialize(line).c_str());
    }
}

// ---- for others to look at the same

json::array list(const Values& values) { return json::array(values.begin(), values.end()); }

json::object statistics(Random& random) {
  // Few enough values for sketches to be exact.
  const auto a = many(300, [&] { return normal(random); }), b = many(280, [&] { return 0.3 + 1.2 * normal(random); });
  Values x(kCategories), y(kCategories), errors;
  for (int i = 0; i < 3000; ++i) {
    ++x[draw_category(random)];
    ++y[(draw_category(random) + (i % 9 == 0 ? 1 : 0)) % kCategories];
  }
  for (int i = 0; i < 4000; ++i)
    errors.push_back(std::generate_canonical<double, 53>(random) < (i < 2000 ? 0.2 : 0.35) ? 1 : 0);
  Adwin adwin(0.002);
  PageHinkley hinkley(0.005, 50);
  json::array cuts, rises;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (adwin.add(errors[i])) cuts.push_back(i);
    if (hinkley.add(errors[i])) rises.push_back(i);
  }
  const auto first = sketch(a), second = sketch(b);
  const double gap = ks(first, second);
  return {{"a", list(a)},
          {"b", list(b)},
          {"x", list(x)},
          {"y", list(y)},
          {"errors", list(errors)},
          {"ks", gap},
          {"ks_p", ks_test_p(gap, 300, 280)},
          {"wasserstein", wasserstein(first, second)},
          {"jensen_shannon", jensen_shannon(x, y)},
          {"chi_square_p", chi_square_test_p(x, y)},
          {"adwin", std::move(cuts)},
          {"page_hinkley", std::move(rises)}};
}

// A stream column by column, each its reference and then its windows, as 64-bit numbers; and when we alarm.
std::size_t write_stream(std::ofstream& out, std::uint64_t seed, std::size_t windows, double shift) {
  Random random(seed);
  std::size_t first = 0;
  const auto write = [&](const Values& values) {
    out.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(double)));
  };
  for (std::size_t column = 0; column < kColumns; ++column) {
    const auto one = [&] { return draw(column, random); };
    const auto reference = many(kReferenceRows, one);
    write(reference);
    NumberColumn watched(reference);
    for (std::size_t w = 0; w < windows; ++w) {
      const auto window = many(kWindowRows, [&] { return one() + (column == 0 ? shift : 0); });
      write(window);
      watched.look(window, windows);
    }
    const auto at = watched.watched.alarms.ours;
    if (at > 0 && (first == 0 || at < first)) first = at;
  }
  return first;
}

void export_all(const std::string& directory, int streams) {
  constexpr std::size_t kWindows = 8;
  Random random(1);
  json::object told{{"statistics", statistics(random)}, {"columns", kColumns}, {"reference_rows", kReferenceRows},
                    {"window_rows", kWindowRows},       {"windows", kWindows}, {"streams", streams}};
  for (const auto& [name, shift] : {std::pair{"quiet", 0.0}, {"small", 0.15}, {"large", 0.5}}) {
    std::ofstream out(directory + "/" + name + ".f64", std::ios::binary);
    json::array alarms;
    for (int stream = 0; stream < streams; ++stream)
      alarms.push_back(write_stream(out, static_cast<std::uint64_t>(stream) + 1, kWindows, shift));
    told[name] = std::move(alarms);
  }
  std::ofstream(directory + "/drift.json") << json::serialize(told);
}

int run(std::span<char*> arguments) {
  int streams = 1000, trials = 40;
  std::string directory;
  for (std::size_t i = 1; i + 1 < arguments.size(); i += 2) {
    const std::string name = arguments[i];
    if (name == "--streams")
      streams = std::atoi(arguments[i + 1]);
    else if (name == "--trials")
      trials = std::atoi(arguments[i + 1]);
    else if (name == "--export")
      directory = arguments[i + 1];
    else
      throw Error(Code::invalid, "unknown option " + name);
  }
  if (!directory.empty()) {
    export_all(directory, std::min(streams, 20));
    return 0;
  }
  false_alarms(streams);
  delays(trials);
  return 0;
}

}  // namespace
}  // namespace falaj::stats

int main(int argc, char** argv) {
  try {
    return falaj::stats::run(std::span(argv, static_cast<std::size_t>(argc)));
  } catch (const falaj::Error& error) {
    std::fprintf(stderr, "drift_bench: %s\n", error.what());
    return 2;
  }
}
