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

constexpr std::uint32_t kQuantilesK = 2'000;  // a rank is off by about 0.1 %

// The distribution of a column. Sorting is what fitting would spend its time on, so after the first rows only one in
// eight is taken, by a hash of its number, so that no period in the data is met; each stands for eight then.
class Sampled {
 public:
  void add(std::uint64_t row, double value) {
    if (row < kAllRows)
      first_.add(value);
    else if ((row * 0x9e3779b97f4a7c15) >> 61 == 0)
      rest_.add(value);
  }
  void merge(const Sampled& other) {
    first_.merge(other.first_);
    rest_.merge(other.rest_);
  }
  stats::Quantiles whole() const {
    stats::Quantiles out = first_;
    for (int times = 0; times < 8; ++times) out.merge(rest_);
    return out;
  }

 private:
  static constexpr std::uint64_t kAllRows = 100'000;
  stats::Quantiles first_{kQuantilesK}, rest_{kQuantilesK};
};

// What is known of one feature so far; each only when it is needed.
struct Seen {
  stats::Moments raw;   // of the values present
  stats::Moments bent;  // of the same after clip and log
  std::optional<Sampled> quantiles;
  std::optional<stats::Frequent> counts;  // texts; whole numbers as decimals, missing as ""
};

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

double median_of(const stats::Quantiles& quantiles) { return quantiles.count() == 0 ? 0 : quantiles.quantile(0.5); }

FittedNumber fit_number(const Number& number, const Seen& seen) {
  FittedNumber fit = without_statistics(number);
  if (number.fill == Fill::mean) fit.fill = seen.raw.mean();  // 0 of nothing
  if (number.fill == Fill::median) fit.fill = median_of(seen.quantiles->whole());
  if (number.fill == Fill::constant) fit.fill = number.constant;
  if (!number.standardise) return fit;
  fit.mean = seen.bent.mean();
  const double deviation = std::sqrt(seen.bent.variance());
  // What differs only by rounding is constant.
  const bool constant = !(deviation > 1e-12 * std::max(1.0, std::fabs(fit.mean)));
  fit.scale = constant ? 0 : 1 / deviation;
  return fit;
}

FittedCategory fit_buckets(const Category& category, const Seen& seen) {
  FittedCategory fit;
  fit.boundaries = category.boundaries;
  const auto quantiles = category.buckets > 0 ? seen.quantiles->whole() : stats::Quantiles();
  if (quantiles.count() > 0) {
    for (const double edge : stats::edges(quantiles, category.buckets))
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

FittedCategory fit_values(const Category& category, const Seen& seen, bool text) {
  FittedCategory fit;
  for (const auto& entry : seen.counts->top(category.categories_max)) {
    if (entry.counted < category.count_min) break;
    auto id = static_cast<std::int64_t>(fit.ids.size()) + 1;
    if (category.hash_buckets > 0)
      id = 1 + static_cast<std::int64_t>(stats::hash64(entry.text) % category.hash_buckets);
    fit.ids.push_back(id);
    fit.labels.push_back(entry.text.empty() ? "missing" : entry.text);
    if (text)
      fit.texts.push_back(entry.text);
    else
      fit.whole.push_back(entry.text.empty() ? kMissingWhole : *parse_int(entry.text));
  }
  fit.cardinality = category.hash_buckets > 0 ? category.hash_buckets + 1 : fit.ids.size() + 1;
  if (category.hash_buckets > 0) {
    fit.labels.clear();
    if (category.encode == Encode::one_hot)
      for (std::size_t id = 1; id < fit.cardinality; ++id) fit.labels.push_back(fmt::format("#{}", id));
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
        seen[use.feature].quantiles.emplace();
    for (const auto& use : layout.by_bucket)
      if (std::get<Category>(fitted.features[use.feature].how).buckets > 0) seen[use.feature].quantiles.emplace();
    for (const auto* uses : {&layout.by_whole, &layout.by_column})
      for (const auto& use : *uses) seen[use.feature].counts.emplace(stats::Frequent::kCountersMax);
  }

  void add_numbers(const Evaluator::Value& values, const Evaluator::Value& missing, const Evaluator::Value& bent,
                   std::size_t count) {
    for (std::size_t k = 0; k < layout.numbers.size(); ++k) {
      const auto& use = layout.numbers[k];
      const double *raw = values.at<double>(use.value), *after = bent.at<double>(k);
      const auto* absent = missing.at<std::uint8_t>(use.value);
      auto& known = seen[use.feature];
      const auto& number = std::get<Number>(fitted.features[use.feature].how);
      for (std::size_t r = 0; r < count; ++r) {
        if (absent[r]) continue;
        if (number.fill == Fill::mean) known.raw.add(raw[r]);
        if (number.standardise) known.bent.add(after[r]);
        if (known.quantiles) known.quantiles->add(rows + r, raw[r]);
      }
    }
  }

  void add_categories(const Evaluator::Value& values, const Evaluator::Value& missing, std::size_t count) {
    for (const auto& use : layout.by_bucket) {
      auto& known = seen[use.feature];
      const double* value = values.at<double>(use.value);
      const auto* absent = missing.at<std::uint8_t>(use.value);
      for (std::size_t r = 0; known.quantiles && r < count; ++r)
        if (!absent[r]) known.quantiles->add(rows + r, value[r]);
    }
    for (const auto& use : layout.by_whole) {
      auto& counts = *seen[use.feature].counts;
      const double* value = values.at<double>(use.value);
      const auto* absent = missing.at<std::uint8_t>(use.value);
      for (std::size_t r = 0; r < count; ++r) {
        if (absent[r])
          counts.add("");
        else
          counts.add(fmt::format_int(static_cast<std::int64_t>(std::clamp(value[r], -kWholeMost, kWholeMost))).c_str());
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
    rep.rows += rows;
  }
  rep.add_columns(batch);
  if (rep.layout.wide.empty()) rep.rows += batch.rows;
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
