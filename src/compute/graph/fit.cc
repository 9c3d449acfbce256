// SPDX-License-Identifier: Apache-2.0
// Statistics of the training data, by the same lowering that transforms: what is counted is what comes out.
#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "compute/graph/evaluate.h"
#include "compute/graph/transform.h"
#include "compute/graph/transform_rep.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/stats/distance.h"
#include "foundation/stats/distinct.h"
#include "foundation/stats/frequent.h"
#include "foundation/stats/moments.h"
#include "foundation/stats/quantiles.h"

namespace falaj::graph {
namespace {

// What is known of one feature so far; each only when it is needed.
struct Seen {
  stats::Moments raw;   // of the values present
  stats::Moments bent;  // of the same after clip and log
  std::optional<stats::Quantiles> quantiles;
  std::optional<stats::Frequent> counts;  // texts; whole numbers as decimals, missing as ""
};

constexpr std::uint32_t kQuantilesK = 2'000;  // a rank is off by about 0.1 %

FittedNumber without_statistics(const Number& number) {
  FittedNumber fit;
  if (number.low) fit.low = *number.low;
  if (number.high) fit.high = *number.high;
  return fit;
}

Fitted unfitted(std::vector<Column> columns, std::vector<Feature> features) {
  check_features(columns, features);
  Fitted out{std::move(columns), std::move(features), {}};
  for (const auto& feature : out.features) {
    if (const auto* number = std::get_if<Number>(&feature.how))
      out.fits.emplace_back(without_statistics(*number));
    else if (std::holds_alternative<Cycle>(feature.how))
      out.fits.emplace_back(FittedCycle{});
    else if (std::holds_alternative<Category>(feature.how))
      out.fits.emplace_back(FittedCategory{});
    else
      out.fits.emplace_back(FittedCross{});
  }
  return out;
}

FittedNumber fit_number(const Number& number, const Seen& seen) {
  FittedNumber fit = without_statistics(number);
  const bool nothing = seen.raw.count() == 0;
  if (number.fill == Fill::mean) fit.fill = nothing ? 0 : seen.raw.mean();
  if (number.fill == Fill::median) fit.fill = nothing ? 0 : seen.quantiles->quantile(0.5);
  if (number.fill == Fill::constant) fit.fill = number.constant;
  if (!number.standardise) return fit;
  fit.mean = nothing ? 0 : seen.bent.mean();
  const double deviation = std::sqrt(seen.bent.variance());
  // What differs only by rounding is constant.
  const bool constant = !(deviation > 1e-12 * std::max(1.0, std::fabs(fit.mean)));
  fit.scale = constant ? 0 : 1 / deviation;
  return fit;
}

FittedCategory fit_buckets(const Category& category, const Seen& seen) {
  FittedCategory fit;
  fit.boundaries = category.boundaries;
  if (category.buckets > 0 && seen.quantiles->count() > 0) {
    for (const double edge : stats::edges(*seen.quantiles, category.buckets))
      // Buckets begin at a boundary, bins end at an edge: the next number after it begins the bucket.
      fit.boundaries.push_back(std::nextafter(edge, std::numeric_limits<double>::infinity()));
  }
  fit.cardinality = fit.boundaries.size() + 2;
  for (std::size_t id = 1; id < fit.cardinality; ++id) {
    const auto from = id == 1 ? std::string("-inf") : fmt::format("{:.6g}", fit.boundaries[id - 2]);
    const auto to = id + 1 == fit.cardinality ? std::string("inf") : fmt::format("{:.6g}", fit.boundaries[id - 1]);
    fit.labels.push_back(fmt::format("[{}, {})", from, to));
  }
  return fit;
}

// A whole number that is none of `known`, to stand for missing ones.
std::int64_t free_number(std::vector<std::int64_t> known) {
  std::sort(known.begin(), known.end());
  std::int64_t candidate = -1;
  while (std::binary_search(known.begin(), known.end(), candidate)) --candidate;
  return candidate;
}

FittedCategory fit_values(const Category& category, const Seen& seen, bool text) {
  FittedCategory fit;
  bool missing_known = false;
  for (const auto& entry : seen.counts->top(category.categories_max)) {
    if (entry.counted < category.count_min) break;
    auto id = static_cast<std::int64_t>(fit.ids.size()) + 1;
    if (category.hash_buckets > 0)
      id = 1 + static_cast<std::int64_t>(stats::hash64(entry.text) % category.hash_buckets);
    fit.ids.push_back(id);
    fit.labels.push_back(entry.text.empty() ? "missing" : entry.text);
    if (text)
      fit.texts.push_back(entry.text);
    else if (entry.text.empty())
      missing_known = true, fit.whole.push_back(0);  // replaced below, when all others are known
    else
      fit.whole.push_back(*parse_int(entry.text));
  }
  fit.cardinality = category.hash_buckets > 0 ? category.hash_buckets + 1 : fit.ids.size() + 1;
  if (category.hash_buckets > 0) {
    fit.labels.clear();
    if (category.encode == Encode::one_hot)
      for (std::size_t id = 1; id < fit.cardinality; ++id) fit.labels.push_back(fmt::format("#{}", id));
  }
  if (text) return fit;
  fit.missing = free_number(fit.whole);
  if (missing_known) {
    const auto at = std::find(fit.labels.begin(), fit.labels.end(), "missing") - fit.labels.begin();
    fit.whole[static_cast<std::size_t>(at)] = fit.missing;
  }
  return fit;
}

FittedCross fit_cross(std::size_t left, std::size_t right, std::size_t buckets) {
  FittedCross fit;
  if (left * right <= buckets) {
    fit.left_times = static_cast<std::int64_t>(right);
    fit.modulus = fit.buckets = static_cast<std::int64_t>(left * right);
  } else {
    // Ids are below 2^31, so nothing overflows; the modulus is prime, so that pairs spread whatever the ids.
    fit.left_times = 1'640'531'527, fit.right_times = 97'755'481, fit.modulus = 2'147'483'647;
    fit.buckets = static_cast<std::int64_t>(buckets);
  }
  fit.cardinality = static_cast<std::size_t>(fit.buckets) + 1;
  return fit;
}

}  // namespace

struct Fitter::Rep {
  explicit Rep(Fitted given) : fitted(std::move(given)), layout(fitted.columns, fitted.features) {
    tables.resize(fitted.features.size());
    seen.resize(fitted.features.size());
    for (const auto& use : layout.numbers)
      if (std::get<Number>(fitted.features[use.feature].how).fill == Fill::median)
        seen[use.feature].quantiles.emplace(kQuantilesK);
    for (const auto& use : layout.by_bucket)
      if (std::get<Category>(fitted.features[use.feature].how).buckets > 0)
        seen[use.feature].quantiles.emplace(kQuantilesK);
    for (const auto* uses : {&layout.by_whole, &layout.by_column})
      for (const auto& use : *uses) seen[use.feature].counts.emplace(stats::Frequent::kCountersMax);
  }

  void add_numbers(const Evaluator::Value& values, const Evaluator::Value& missing, const Evaluator::Value& bent,
                   std::size_t rows) {
    for (std::size_t k = 0; k < layout.numbers.size(); ++k) {
      const auto& use = layout.numbers[k];
      const double *raw = values.at<double>(use.value), *after = bent.at<double>(k);
      const auto* absent = missing.at<std::uint8_t>(use.value);
      auto& known = seen[use.feature];
      const auto& number = std::get<Number>(fitted.features[use.feature].how);
      for (std::size_t r = 0; r < rows; ++r) {
        if (absent[r]) continue;
        known.raw.add(raw[r]);
        if (number.standardise) known.bent.add(after[r]);
        if (known.quantiles) known.quantiles->add(raw[r]);
      }
    }
  }

  void add_categories(const Evaluator::Value& values, const Evaluator::Value& missing, std::size_t rows) {
    for (const auto& use : layout.by_bucket) {
      if (!seen[use.feature].quantiles) continue;
      for (std::size_t r = 0; r < rows; ++r)
        if (!missing.at<std::uint8_t>(use.value)[r]) seen[use.feature].quantiles->add(values.at<double>(use.value)[r]);
    }
    for (const auto& use : layout.by_whole) {
      for (std::size_t r = 0; r < rows; ++r) {
        const double value = std::clamp(values.at<double>(use.value)[r], -9e18, 9e18);
        if (missing.at<std::uint8_t>(use.value)[r])
          seen[use.feature].counts->add("");
        else
          seen[use.feature].counts->add(fmt::format_int(static_cast<std::int64_t>(value)).c_str());
      }
    }
  }

  void add_columns(const Batch& batch) {
    for (const auto& use : layout.by_column) {
      auto& counts = *seen[use.feature].counts;
      const auto& values = batch.columns[use.value];
      if (const auto* texts = std::get_if<std::span<const std::string_view>>(&values)) {
        for (const auto& text : *texts)  // longer ones would be counted by their beginning, and are never known
          if (text.size() <= stats::Frequent::kTextMax) counts.add(text);
      } else if (const auto* whole = std::get_if<std::span<const std::int64_t>>(&values)) {
        for (const auto value : *whole) counts.add(fmt::format_int(value).c_str());
      } else {
        const auto& booleans = std::get<std::span<const std::uint8_t>>(values);
        const auto ones =
            static_cast<std::uint64_t>(std::count_if(booleans.begin(), booleans.end(), [](auto v) { return v != 0; }));
        if (ones > 0) counts.add("1", ones);
        if (ones < booleans.size()) counts.add("0", booleans.size() - ones);
      }
    }
  }

  const Fitted fitted;  // without statistics
  const Layout layout;
  std::vector<Table> tables;
  std::vector<Seen> seen;
  std::uint64_t rows = 0;
};

Fitter::Fitter(std::vector<Column> columns, std::vector<Feature> features)
    : rep_(std::make_unique<Rep>(unfitted(std::move(columns), std::move(features)))) {}
Fitter::~Fitter() = default;
Fitter::Fitter(Fitter&&) noexcept = default;
Fitter& Fitter::operator=(Fitter&&) noexcept = default;

void Fitter::add(const Batch& batch) {
  Rep& rep = *rep_;
  check_batch(batch, rep.fitted.columns);
  Slabs slabs(batch.rows);
  for (std::size_t first = 0; first < batch.rows && !rep.layout.wide.empty(); first += Slabs::kRowsMax) {
    const std::size_t rows = std::min(Slabs::kRowsMax, batch.rows - first);
    Evaluator machine(batch, rep.fitted.columns, rep.tables, slabs, first, rows);
    Lowering lowering(rep.fitted, rep.layout, machine);
    lowering.values();
    const auto bent = rep.layout.numbers.empty() ? Evaluator::Value{} : lowering.numbers();
    rep.add_numbers(lowering.all_values(), lowering.all_missing(), bent, rows);
    rep.add_categories(lowering.all_values(), lowering.all_missing(), rows);
  }
  rep.add_columns(batch);
  rep.rows += batch.rows;
}

void Fitter::merge(const Fitter& other) {
  CHECK(rep_->seen.size() == other.rep_->seen.size(), "of the same features");
  for (std::size_t at = 0; at < rep_->seen.size(); ++at) {
    Seen& mine = rep_->seen[at];
    const Seen& theirs = other.rep_->seen[at];
    mine.raw.merge(theirs.raw);
    mine.bent.merge(theirs.bent);
    if (mine.quantiles) mine.quantiles->merge(*theirs.quantiles);
    if (mine.counts) mine.counts->merge(*theirs.counts);
  }
  rep_->rows += other.rep_->rows;
}

Transform Fitter::finish() const {
  const Rep& rep = *rep_;
  if (rep.rows == 0) throw Error(Code::invalid, "there is nothing to fit the preprocessing to: no rows");
  Fitted out = rep.fitted;
  std::size_t one_hot = 0;
  for (const std::size_t feature : rep.layout.feature_of_id) {  // the sides of a cross come before it
    if (const auto* cross = std::get_if<Cross>(&out.features[feature].how)) {
      const auto side = [&](const std::string& name) {
        return out.fit<FittedCategory>(rep.layout.feature_of_id[rep.layout.id_of.at(name)]).cardinality;
      };
      out.fits[feature] = fit_cross(side(cross->left), side(cross->right), cross->buckets);
    } else {
      const auto& category = std::get<Category>(out.features[feature].how);
      const bool text = out.columns[index_of(out.columns, category.column)].kind == Kind::text;
      out.fits[feature] = is_bucketised(category) ? fit_buckets(category, rep.seen[feature])
                                                  : fit_values(category, rep.seen[feature], text);
    }
    const auto encoding = encoding_of(out, feature);
    if (encoding.how != Encode::one_hot) continue;
    one_hot += encoding.cardinality;
    if (one_hot > kOneHotMax)
      throw Error(Code::invalid,
                  fmt::format("one-hot encoding makes more than {} columns at feature '{}': embed it, or "
                              "give it fewer categories",
                              kOneHotMax, out.features[feature].name));
  }
  for (const auto& use : rep.layout.numbers)
    out.fits[use.feature] = fit_number(std::get<Number>(out.features[use.feature].how), rep.seen[use.feature]);
  return Transform(std::make_shared<const Transform::Rep>(std::move(out)));
}

}  // namespace falaj::graph
