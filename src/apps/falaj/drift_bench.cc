// SPDX-License-Identifier: Apache-2.0
// How often a monitor reports drift where there is none, and how soon where there is, beside what is usually done on
// the same streams. What is measured is what monitors do (watch::look): columns by themselves and together, over
// windows and blocks of them. Streams have 50 columns, numbers of several shapes and texts; a reference of 8,000 rows;
// windows of 500 rows.
//   drift_bench [--streams N] [--trials N] [--threads N]
//   drift_bench --export DIRECTORY [--trials N]   streams and what we say of them: tests/clients/compare_drift.py
//   drift_bench --draw FILE.json --out FILE.svg   what that measured, as a picture
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "cli/plot.h"
#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/stats/change.h"
#include "foundation/stats/distance.h"
#include "foundation/stats/drift.h"
#include "lifecycle/watch/look.h"

namespace falaj::watch {
namespace {

constexpr std::size_t kColumns = 50, kWindowRows = 500, kReferenceBlocks = 32, kReferenceBlockRows = 250, kHorizon = 30,
                      kCategories = 10, kPsiEdges = 10;
constexpr double kLevel = 0.05;  // chance of any false alarm: of any column or of all together, in any window
constexpr double kCorrelation = 0.6;
constexpr int kStreamsTold = 100;  // what is known so far is said after so many

using Random = std::mt19937_64;
using Values = std::vector<double>;

// ---- streams

enum class Form { bell, skewed, flat, humps, few, text };
Form form_of(std::size_t column) {
  constexpr Form kForms[] = {Form::bell, Form::bell, Form::skewed, Form::flat, Form::humps, Form::few, Form::text};
  return kForms[column % std::size(kForms)];
}
constexpr std::size_t kBell = 0, kPartner = 1, kSkewed = 2, kText = 6;

struct Fault {
  enum class Kind { none, mean, variance, mix, rotation, unit } kind = Kind::none;
  double size = 0;
  std::vector<std::size_t> columns() const {
    switch (kind) {
      case Kind::none:
        return {};
      case Kind::mean:
      case Kind::variance:
        return {kBell};
      case Kind::rotation:
        return {kBell, kPartner};
      case Kind::mix:
        return {kText};
      case Kind::unit:
        return {kSkewed};
    }
    return {};
  }
};

// Rows, one after the other. Neighbours may be alike: each column then keeps so much of its last value.
class World {
 public:
  World(std::uint64_t seed, bool alike) : random_(seed) {
    constexpr double kKeeps[] = {0, 0.5, 0.9, 0.98};
    for (std::size_t c = 0; c < kColumns; ++c) keeps_[c] = alike ? kKeeps[c / 2 % std::size(kKeeps)] : 0;
    for (double& at : at_) at = normal_(random_);
  }
  const std::array<double, kColumns>& next(const Fault& fault) {
    const double together = fault.kind == Fault::Kind::rotation ? fault.size : kCorrelation;
    double before = 0;
    for (std::size_t c = 0; c < kColumns; ++c) {
      double news = normal_(random_);
      if (form_of(c) == Form::bell && c % 7 == kPartner)  // goes with the one before it
        news = (c == kPartner ? together : kCorrelation) * before +
               std::sqrt(1 - std::pow(c == kPartner ? together : kCorrelation, 2)) * news;
      before = news;
      at_[c] = keeps_[c] * at_[c] + std::sqrt(1 - keeps_[c] * keeps_[c]) * news;
      row_[c] = shaped(c, at_[c], fault);
    }
    return row_;
  }

 private:
  static double rank(double normal) { return 0.5 * std::erfc(-normal / std::sqrt(2.0)); }
  double shaped(std::size_t column, double normal, const Fault& fault) {
    switch (form_of(column)) {
      case Form::bell:
        if (column == kBell && fault.kind == Fault::Kind::mean) return normal + fault.size;
        return column == kBell && fault.kind == Fault::Kind::variance ? normal * fault.size : normal;
      case Form::skewed:
        return std::exp(normal) * (column == kSkewed && fault.kind == Fault::Kind::unit ? fault.size : 1);
      case Form::flat:
        return rank(normal);
      case Form::humps:
        return normal + (random_() % 3 == 0 ? 4 : 0);
      case Form::few:
        return std::floor(20 * rank(normal));
      case Form::text:
        break;
    }
    // The k-th category in proportion to 1/k; of each row, with so much chance, the last instead of the first.
    static const double all = [] {
      double sum = 0;
      for (std::size_t k = 1; k <= kCategories; ++k) sum += 1.0 / static_cast<double>(k);
      return sum;
    }();
    double left = rank(normal) * all;
    std::size_t k = 0;
    while (k + 1 < kCategories && (left -= 1.0 / static_cast<double>(k + 1)) > 0) ++k;
    const bool moved = column == kText && fault.kind == Fault::Kind::mix && k == 0 &&
                       std::generate_canonical<double, 53>(random_) < fault.size;
    return static_cast<double>(moved ? kCategories - 1 : k);
  }

  Random random_;
  std::normal_distribution<double> normal_;
  std::array<double, kColumns> keeps_{}, at_{}, row_{};
};

// Some rows: as sketches, as a sample, and column by column as they are.
struct Seen {
  traffic::Sketches sketches;
  stats::RowSample rows;
  std::vector<Values> values = std::vector<Values>(kColumns);
};

std::string name_of(std::size_t column) { return fmt::format("c{:02}", column); }

Seen see(World& world, const Fault& fault, std::size_t rows, std::uint64_t from) {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> out;
    for (std::size_t k = 0; k < kCategories; ++k) out.push_back(fmt::format("category {}", k));
    return out;
  }();
  Seen out;
  std::vector<stats::RowSample::Column> columns;
  std::array<traffic::ColumnSketch*, kColumns> to{};
  for (std::size_t c = 0; c < kColumns; ++c) {
    to[c] = &out.sketches[name_of(c)];
    columns.push_back({name_of(c), form_of(c) == Form::text});
    out.values[c].reserve(rows);
  }
  out.rows = stats::RowSample(std::move(columns), static_cast<std::uint32_t>(rows));
  std::array<double, kColumns> whole{};
  for (std::size_t i = 0; i < rows; ++i) {
    const auto& row = world.next(fault);
    for (std::size_t c = 0; c < kColumns; ++c) {
      out.values[c].push_back(row[c]);
      whole[c] = row[c];
      if (form_of(c) != Form::text) {
        to[c]->add(row[c]);
        continue;
      }
      const auto& text = texts[static_cast<std::size_t>(row[c])];
      to[c]->add(std::string_view(text));
      whole[c] = stats::text_code(text);
    }
    out.rows.add(stats::RowSample::key(1, from + i), whole);
  }
  return out;
}

// ---- what is usually done

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

// One column by the usual tests: Kolmogorov and Smirnov's or chi-square, and the stability index.
class Usual {
 public:
  Usual(Values reference, bool text) : text_(text), reference_(std::move(reference)) {
    std::sort(reference_.begin(), reference_.end());
    if (text_) {
      for (std::size_t k = 0; k + 1 < kCategories; ++k) cuts_.push_back(static_cast<double>(k));
    } else {
      for (std::size_t k = 1; k < kPsiEdges; ++k)
        if (const double cut = reference_[k * reference_.size() / kPsiEdges]; cuts_.empty() || cuts_.back() < cut)
          cuts_.push_back(cut);
    }
    expected_ = counted(reference_);
  }
  struct Told {
    double p, index;
  };
  Told look(Values window) const {
    std::sort(window.begin(), window.end());
    const auto seen = counted(window);
    const double p = text_ ? stats::chi_square_test_p(expected_, seen)
                           : stats::ks_test_p(exact_ks(reference_, window), static_cast<double>(reference_.size()),
                                              static_cast<double>(window.size()));
    return {p, stats::population_stability_index(expected_, seen)};
  }

 private:
  Values counted(const Values& sorted) const {
    Values out(cuts_.size() + 1);
    std::size_t bin = 0;
    for (const double value : sorted) {
      while (bin < cuts_.size() && cuts_[bin] < value) ++bin;
      ++out[bin];
    }
    return out;
  }
  bool text_;
  Values reference_, cuts_, expected_;
};

// ---- one stream watched in all ways

// A way has alarmed in the window whose number it holds, counted from 1; 0 = never.
struct Alarms {
  std::size_t ours = 0;
  std::size_t each_window = 0;  // a test at 5 % in every window, shared among columns: what a drift library does
  std::size_t horizon = 0;      // the same test, shared among windows too: as few false alarms as ours
  std::size_t stability = 0;    // population stability index above 0.2: a rule of thumb
};

using Sink = std::function<void(std::size_t column, const Values& values)>;

bool concerns(const std::vector<std::size_t>& changed, std::size_t column) {
  return changed.empty() || std::find(changed.begin(), changed.end(), column) != changed.end();
}

// What is known of a stream before it is watched. Streams with the same seed are the same until then, whatever changes.
struct Known {
  Known(std::uint64_t seed, bool alike) : world(seed, alike), values(kColumns) {
    std::vector<traffic::Sketches> blocks;
    std::vector<stats::RowSample> samples;
    for (std::size_t i = 0; i < kReferenceBlocks; ++i) {
      auto block = see(world, {}, kReferenceBlockRows, i * kReferenceBlockRows);
      for (std::size_t c = 0; c < kColumns; ++c)
        values[c].insert(values[c].end(), block.values[c].begin(), block.values[c].end());
      blocks.push_back(std::move(block.sketches));
      samples.push_back(std::move(block.rows));
    }
    spec.level = kLevel;
    spec.horizon = kHorizon;
    spec.together.emplace();
    reference = make_reference(blocks, "before", samples);
    prepare_together(reference, spec);
    spec.level = level_of_each(spec);
    for (std::size_t c = 0; c < kColumns; ++c) usual.emplace_back(values[c], form_of(c) == Form::text);
  }
  World world;
  std::vector<Values> values;
  MonitorSpec spec;
  Reference reference;
  std::vector<Usual> usual;
};

// `sink` gets the values of the columns that the fault is in.
Alarms watch_stream(const Known& known, const Fault& fault, const Sink& sink = {}) {
  const auto changed = fault.columns();
  for (std::size_t c = 0; c < kColumns; ++c)
    if (sink && concerns(changed, c)) sink(c, known.values[c]);
  Alarms out;
  State state;
  World world = known.world;
  for (std::size_t w = 1; w <= kHorizon; ++w) {
    auto window = see(world, fault, kWindowRows, kReferenceBlocks * kReferenceBlockRows + (w - 1) * kWindowRows);
    const auto mark = [&](std::size_t& at, bool alarm) {
      if (at == 0 && alarm) at = w;
    };
    for (std::size_t c = 0; c < kColumns; ++c) {
      if (!concerns(changed, c)) continue;
      if (sink) sink(c, window.values[c]);
      const auto [p, index] = known.usual[c].look(std::move(window.values[c]));
      mark(out.each_window, p < kLevel / kColumns);
      mark(out.horizon, p < kLevel / kColumns / kHorizon);
      mark(out.stability, index > 0.2);
    }
    if (out.ours > 0) continue;
    auto looked = look(known.reference, known.spec, std::move(state),
                       {static_cast<std::int64_t>(w - 1), 0, 0, std::move(window.sketches), std::move(window.rows)});
    state = std::move(looked.state);
    mark(out.ours, std::any_of(looked.findings.begin(), looked.findings.end(), [&](const Finding& finding) {
           return finding.column == kTogether ||
                  concerns(changed, static_cast<std::size_t>(std::atoi(finding.column.c_str() + 1)));
         }));
  }
  return out;
}

// Calls work(i) for every i below `count`, on so many threads.
void each(int count, int threads, const std::function<void(int)>& work) {
  std::atomic<int> next{0};
  std::vector<std::jthread> running;
  for (int t = 0; t < threads; ++t)
    running.emplace_back([&] {
      for (int i = next++; i < count; i = next++) work(i);
    });
}

void claim(const std::string& name, double ours, const char* unit, const char* against, double limit) {
  const json::object line{{"claim", name},  {"ours", ours},
                          {"unit", unit},   {"against", against},
                          {"limit", limit}, {"ratio", limit > 0 ? ours / limit : (ours > 0 ? 1e9 : 0)},
                          {"goal", 1},      {"better", "lower"}};
  std::puts(json::serialize(line).c_str());
  std::fflush(stdout);
}

// ---- how often nothing is something

void false_alarms(int streams, int threads, bool alike) {
  const char* rows = alike ? "neighbours alike" : "independent rows";
  std::vector<Alarms> all;
  const auto share = [&](std::size_t Alarms::*way) {
    return static_cast<double>(std::count_if(all.begin(), all.end(), [&](const Alarms& a) { return a.*way > 0; })) /
           static_cast<double>(all.size());
  };
  for (int from = 0; from < streams; from += kStreamsTold) {
    all.resize(static_cast<std::size_t>(std::min(streams, from + kStreamsTold)));
    each(static_cast<int>(all.size()) - from, threads, [&](int i) {
      const Known known(static_cast<std::uint64_t>(from + i) * 7919 + 1, alike);
      all[static_cast<std::size_t>(from + i)] = watch_stream(known, {});
    });
    fmt::print(
        "false alarms in {} streams of {} columns and {} windows, {}, nothing changing (stated: at most {})\n"
        "  ours {:.4f}   test in each window {:.4f}   the same, windows counted too {:.4f}   index > 0.2 {:.4f}\n",
        all.size(), kColumns, kHorizon, rows, kLevel, share(&Alarms::ours), share(&Alarms::each_window),
        share(&Alarms::horizon), share(&Alarms::stability));
    std::fflush(stdout);
  }
  claim(fmt::format("streams with a false alarm, {} columns, {}", kColumns, rows), share(&Alarms::ours), "share",
        "stated level", kLevel);
}

// ---- how soon something is noticed

struct Kind {
  Fault::Kind kind;
  const char *name, *unit;
  std::vector<double> sizes;
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> out = {
      {Fault::Kind::mean, "mean", "deviations added", {0.05, 0.1, 0.2, 0.35, 0.5}},
      {Fault::Kind::variance, "variance", "times as wide", {1.05, 1.1, 1.2, 1.35, 1.5}},
      {Fault::Kind::mix, "mix", "of the first category become the last", {0.05, 0.1, 0.2, 0.3, 0.4}},
      {Fault::Kind::rotation, "rotation", "correlation, 0.6 before", {0.45, 0.3, 0.0, -0.3, -0.6}},
      {Fault::Kind::unit, "unit", "times, such as 1.609 for miles", {1.05, 1.1, 1.25, 1.609344, 1000}}};
  return out;
}

void delays(int trials, int threads) {
  std::vector<Fault> faults;
  for (const auto& kind : kinds())
    for (const double size : kind.sizes) faults.push_back({kind.kind, size});
  std::vector<std::vector<Alarms>> all(faults.size(), std::vector<Alarms>(static_cast<std::size_t>(trials)));
  each(trials, threads, [&](int i) {
    const Known known(static_cast<std::uint64_t>(i) * 104'729 + 17, false);
    for (std::size_t f = 0; f < faults.size(); ++f)
      all[f][static_cast<std::size_t>(i)] = watch_stream(known, faults[f]);
  });
  fmt::print(
      "windows of {} rows until it is noticed, mean of {} ({}: not within that many); found\n"
      "  {:<10} {:>8}  {:>16} {:>28} {:>28}\n",
      kWindowRows, trials, kHorizon, "change", "size", "ours", "test, as few false alarms", "index > 0.2");
  auto of_fault = all.begin();
  for (const auto& kind : kinds())
    for (const double size : kind.sizes) {
      const auto& seen = *of_fault++;
      const auto mean = [&](std::size_t Alarms::*way) {
        double sum = 0;
        for (const auto& one : seen) sum += static_cast<double>(one.*way == 0 ? kHorizon : one.*way);
        return sum / trials;
      };
      const auto found = [&](std::size_t Alarms::*way) {
        return 100.0 *
               static_cast<double>(
                   std::count_if(seen.begin(), seen.end(), [&](const Alarms& a) { return a.*way > 0; })) /
               trials;
      };
      fmt::print("  {:<10} {:>8g}  {:>8.1f} ({:3.0f} %) {:>20.1f} ({:3.0f} %) {:>20.1f} ({:3.0f} %)   {}\n", kind.name,
                 size, mean(&Alarms::ours), found(&Alarms::ours), mean(&Alarms::horizon), found(&Alarms::horizon),
                 mean(&Alarms::stability), found(&Alarms::stability), kind.unit);
      claim(fmt::format("windows until noticed, {} {:g}", kind.name, size), mean(&Alarms::ours), "windows",
            "test with as few false alarms", mean(&Alarms::horizon));
    }
}

// ---- for others to look at the same

json::array list(const Values& values) { return json::array(values.begin(), values.end()); }

json::object statistics(Random& random) {
  std::normal_distribution<double> normal;
  stats::Quantiles first(512), second(512);  // few enough values for sketches to be exact
  Values a, b, x(kCategories), y(kCategories), errors;
  for (int i = 0; i < 300; ++i) first.add(a.emplace_back(normal(random)));
  for (int i = 0; i < 280; ++i) second.add(b.emplace_back(0.3 + 1.2 * normal(random)));
  const auto category = [&] { return std::min<std::size_t>(random() % kCategories, random() % kCategories); };
  for (int i = 0; i < 3000; ++i) {
    ++x[category()];
    ++y[(category() + (i % 9 == 0 ? 1 : 0)) % kCategories];
  }
  for (int i = 0; i < 4000; ++i)
    errors.push_back(std::generate_canonical<double, 53>(random) < (i < 2000 ? 0.2 : 0.35) ? 1 : 0);
  stats::Adwin adwin(0.002);
  json::array cuts;
  for (std::size_t i = 0; i < errors.size(); ++i)
    if (adwin.add(errors[i])) cuts.push_back(i);
  const double gap = stats::ks(first, second);
  return {{"a", list(a)},
          {"b", list(b)},
          {"x", list(x)},
          {"y", list(y)},
          {"errors", list(errors)},
          {"ks", gap},
          {"ks_p", stats::ks_test_p(gap, 300, 280)},
          {"wasserstein", stats::wasserstein(first, second)},
          {"jensen_shannon", stats::jensen_shannon(x, y)},
          {"chi_square_p", stats::chi_square_test_p(x, y)},
          {"adwin", std::move(cuts)}};
}

// Each trial: of every column that the fault is in (of quiet streams all), its reference and then its windows, as
// 64-bit numbers; and the window in which we alarm.
json::array write_trials(const std::string& path, int trials, int threads, const Fault& fault) {
  std::vector<std::vector<Values>> data(static_cast<std::size_t>(trials));
  std::vector<std::size_t> ours(static_cast<std::size_t>(trials));
  each(trials, threads, [&](int i) {
    auto& columns = data[static_cast<std::size_t>(i)];
    columns.resize(kColumns);
    const Known known(static_cast<std::uint64_t>(i) * 104'729 + 17, false);
    const auto alarms = watch_stream(known, fault, [&](std::size_t column, const Values& values) {
      columns[column].insert(columns[column].end(), values.begin(), values.end());
    });
    ours[static_cast<std::size_t>(i)] = alarms.ours;
    std::erase_if(columns, [](const Values& values) { return values.empty(); });
  });
  std::ofstream out(path, std::ios::binary);
  for (const auto& columns : data)
    for (const auto& values : columns)
      out.write(reinterpret_cast<const char*>(values.data()),
                static_cast<std::streamsize>(values.size() * sizeof(double)));
  return json::array(ours.begin(), ours.end());
}

void export_all(const std::string& directory, int trials, int threads) {
  Random random(1);
  json::array texts, faults;
  for (std::size_t c = 0; c < kColumns; ++c)
    if (form_of(c) == Form::text) texts.push_back(c);
  const auto add = [&](const char* name, double size, const char* unit, const Fault& fault) {
    const auto file = fmt::format("{}-{}.f64", name, faults.size());
    auto ours = write_trials(fmt::format("{}/{}", directory, file), trials, threads, fault);
    const auto changed = fault.columns();
    json::array columns(changed.begin(), changed.end());
    for (std::size_t c = 0; changed.empty() && c < kColumns; ++c) columns.push_back(c);
    faults.push_back(json::object{{"name", name},
                                  {"size", size},
                                  {"unit", unit},
                                  {"file", file},
                                  {"columns", std::move(columns)},
                                  {"ours", std::move(ours)}});
  };
  add("quiet", 0, "", {});
  for (const auto& kind : kinds())
    for (const double size : kind.sizes) add(kind.name, size, kind.unit, {kind.kind, size});
  const json::object told{{"statistics", statistics(random)},
                          {"columns", kColumns},
                          {"texts", std::move(texts)},
                          {"reference_rows", kReferenceBlocks * kReferenceBlockRows},
                          {"window_rows", kWindowRows},
                          {"windows", kHorizon},
                          {"level", kLevel},
                          {"trials", trials},
                          {"faults", std::move(faults)}};
  std::ofstream(directory + "/drift.json") << json::serialize(told);
}

// ---- as a picture

// {"mean": {"unit", "sizes", "lines": {"Falaj": [windows], ...}}, ...}: a chart for each change, two side by side.
void draw(const std::string& from, const std::string& to) {
  std::ifstream in(from);
  const auto told = json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
  constexpr double kWide = 960, kHigh = 540;
  std::string charts;
  std::size_t many = 0;
  for (const auto& [name, one] : told.as_object()) {
    cli::Chart chart;
    chart.title = fmt::format("windows until a change is noticed: {}", std::string_view(name));
    chart.x_title = std::string(one.at("unit").as_string());
    for (const auto& [who, windows] : one.at("lines").as_object()) {
      cli::Line line{std::string(who), {}, {}};
      const auto& sizes = one.at("sizes").as_array();
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        if (sizes[i].to_number<double>() > 100) continue;  // one far away would press the others together
        line.x.push_back(sizes[i].to_number<double>());
        line.y.push_back(windows.at(i).to_number<double>());
      }
      chart.lines.push_back(std::move(line));
    }
    auto svg = cli::to_svg(chart);
    svg = svg.substr(svg.find("<svg"));
    const auto place = fmt::format("<svg x=\"{}\" y=\"{}\" ", static_cast<double>(many % 2) * kWide,
                                   std::floor(static_cast<double>(many) / 2) * kHigh);
    charts += place + svg.substr(5);
    ++many;
  }
  const double rows = std::ceil(static_cast<double>(many) / 2);
  std::ofstream(to) << fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\">\n{}</svg>\n",
      2 * kWide, rows * kHigh, kWide, rows * kHigh / 2, charts);
}

int run(std::span<char*> arguments) {
  int streams = 1000, trials = 40, threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::string directory, drawn, out;
  for (std::size_t i = 1; i + 1 < arguments.size(); i += 2) {
    const std::string name = arguments[i];
    const char* value = arguments[i + 1];
    if (name == "--streams")
      streams = std::atoi(value);
    else if (name == "--trials")
      trials = std::atoi(value);
    else if (name == "--threads")
      threads = std::atoi(value);
    else if (name == "--export")
      directory = value;
    else if (name == "--draw")
      drawn = value;
    else if (name == "--out")
      out = value;
    else
      throw Error(Code::invalid, "unknown option " + name);
  }
  if (!drawn.empty()) return draw(drawn, out), 0;
  if (!directory.empty()) return export_all(directory, trials, threads), 0;
  if (streams > 0) {
    false_alarms(streams, threads, false);
    false_alarms(streams, threads, true);
  }
  if (trials > 0) delays(trials, threads);
  return 0;
}

}  // namespace
}  // namespace falaj::watch

int main(int argc, char** argv) {
  try {
    return falaj::watch::run(std::span(argv, static_cast<std::size_t>(argc)));
  } catch (const falaj::Error& error) {
    std::fprintf(stderr, "drift_bench: %s\n", error.what());
    return 2;
  }
}
