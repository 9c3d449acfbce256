// SPDX-License-Identifier: Apache-2.0
#include "compute/graph/fitted.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "compute/graph/shown.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::graph {
namespace {

constexpr std::size_t kBucketsMax = std::size_t{1} << 30;
constexpr std::size_t kBucketCellsMax = 25'000'000;

bool is_real(Kind kind) { return kind == Kind::float64 || kind == Kind::float32; }

// Collects what is wrong with features, one by one.
class FeatureFaults {
 public:
  explicit FeatureFaults(const std::vector<Column>& columns) : columns_(columns) {}

  void check(const Feature& feature, const std::vector<Feature>& all) {
    where_ = fmt::format("feature '{}'", shown(feature.name));
    std::visit([&](const auto& how) { check_one(how, all); }, feature.how);
  }
  void add(std::string where, std::string what) { faults_.push_back({std::move(where), std::move(what)}); }
  std::vector<Fault> take() { return std::move(faults_); }

 private:
  void wrong(std::string what) { add(where_, std::move(what)); }

  const Column* column(const std::string& name, Part part) {
    const auto at = std::find_if(columns_.begin(), columns_.end(), [&](const auto& c) { return c.name == name; });
    if (at == columns_.end()) {
      wrong(fmt::format("no such column: '{}'", shown(name)));
      return nullptr;
    }
    if (part != Part::whole && at->kind != Kind::timestamp)
      wrong(fmt::format("only a timestamp has parts, '{}' is {}", name, graph::name(at->kind)));
    return &*at;
  }

  void check_one(const Number& number, const std::vector<Feature>&) {
    const Column* found = column(number.column, number.part);
    if (found && found->kind == Kind::text) wrong("text is no number: make it a category");
    if (number.fill == Fill::constant && !std::isfinite(number.constant)) wrong("the constant is not finite");
    for (const auto& bound : {number.low, number.high})
      if (bound && std::isnan(*bound)) wrong("a bound is not a number");
    if (number.low && number.high && *number.low > *number.high)
      wrong(fmt::format("the low bound {} is above the high one {}", *number.low, *number.high));
  }

  void check_one(const Cycle& cycle, const std::vector<Feature>&) {
    const Column* found = column(cycle.column, Part::whole);
    if (found && found->kind != Kind::timestamp) wrong("only a timestamp has a place in a day, week or year");
  }

  void check_one(const Category& category, const std::vector<Feature>&) {
    const Column* found = column(category.column, category.part);
    const bool bucketised = is_bucketised(category);
    if (category.buckets > 0 && !category.boundaries.empty()) wrong("either boundaries or a number of buckets");
    if (category.hash_buckets > 0 && bucketised) wrong("either hashing or buckets");
    if (category.categories_max < 1 || category.categories_max > kCategoriesMax)
      wrong(fmt::format("1 to {} categories: {}", kCategoriesMax, category.categories_max));
    if (category.buckets > kCategoriesMax || category.boundaries.size() > kCategoriesMax || category.buckets == 1)
      wrong(fmt::format("2 to {} buckets", kCategoriesMax));
    if (category.hash_buckets > kBucketsMax) wrong(fmt::format("at most {} buckets", kBucketsMax));
    for (const double boundary : category.boundaries)
      if (!std::isfinite(boundary)) wrong("a boundary is not finite");
    if (!std::is_sorted(category.boundaries.begin(), category.boundaries.end(), std::less_equal<double>()))
      wrong("boundaries must ascend");
    if (!found) return;
    const bool by_value = !bucketised && category.part == Part::whole;
    if (found->kind == Kind::text && bucketised) wrong("text has no buckets");
    if (found->kind != Kind::text && category.hash_buckets > 0) wrong("only text is hashed");
    if (by_value && (is_real(found->kind) || found->kind == Kind::timestamp))
      wrong(fmt::format("{} is a category only by buckets{}", graph::name(found->kind),
                        found->kind == Kind::timestamp ? " or by a part" : ""));
  }

  void check_one(const Cross& cross, const std::vector<Feature>& all) {
    for (const auto& side : {cross.left, cross.right}) {
      const bool known = std::any_of(all.begin(), all.end(), [&](const Feature& f) {
        return f.name == side && std::holds_alternative<Category>(f.how);
      });
      if (!known) wrong(fmt::format("no category feature is called '{}'", shown(side)));
    }
    if (cross.buckets < 1 || cross.buckets > kBucketsMax) wrong(fmt::format("1 to {} buckets", kBucketsMax));
  }

  const std::vector<Column>& columns_;
  std::string where_;
  std::vector<Fault> faults_;
};

// ---- Encoding. One list of members serves both directions.
class FittedWriter {
 public:
  explicit FittedWriter(ByteWriter& out) : out_(out) {}
  void operator()(const std::string& v) { out_.text(v); }
  void operator()(const double& v) { out_.u64(std::bit_cast<std::uint64_t>(v)); }
  void operator()(const std::int64_t& v) { out_.u64(static_cast<std::uint64_t>(v)); }
  void operator()(const std::size_t& v) { out_.u64(v); }
  void operator()(const bool& v) { out_.u8(v); }
  template <class E>
  requires std::is_enum_v<E>
  void one_of(const E& v, std::size_t) { out_.u8(static_cast<std::uint8_t>(v)); }
  template <class T>
  void operator()(const std::vector<T>& v) {
    out_.u64(v.size());
    for (const auto& item : v) (*this)(item);
  }
  void operator()(const std::optional<double>& v) {
    out_.u8(v.has_value());
    if (v) (*this)(*v);
  }

 private:
  ByteWriter& out_;
};

class FittedReader {
 public:
  explicit FittedReader(ByteReader& in) : in_(in) {}
  void operator()(std::string& v) { v = in_.text(); }
  void operator()(double& v) { v = std::bit_cast<double>(in_.u64()); }
  void operator()(std::int64_t& v) { v = static_cast<std::int64_t>(in_.u64()); }
  void operator()(std::size_t& v) { v = in_.u64(); }
  void operator()(bool& v) { v = in_.u8() != 0; }
  template <class E>
  requires std::is_enum_v<E>
  void one_of(E& v, std::size_t values) {
    const auto got = in_.u8();
    if (got >= values) throw Error(Code::corrupt, "a transform is not what was written: an unknown choice");
    v = static_cast<E>(got);
  }
  template <class T>
  void operator()(std::vector<T>& v) {
    v.resize(size());
    for (auto& item : v) (*this)(item);
  }
  void operator()(std::optional<double>& v) {
    if (in_.u8() != 0) (*this)(v.emplace());
  }
  std::size_t size() {
    const auto got = in_.u64();
    // Nothing takes less than a byte, so that more than is left is never asked of the memory.
    if (got > in_.left()) throw Error(Code::corrupt, "a transform is not what was written: it ends too early");
    return got;
  }

 private:
  ByteReader& in_;
};

template <class Coder, class T>
void members(Coder& code, T& v) requires std::is_same_v<std::remove_const_t<T>, Column> {
  code(v.name), code.one_of(v.kind, std::size(kKinds)), code(v.nullable);
}
template <class Coder, class T>
void members(Coder& code, T& v) requires std::is_same_v<std::remove_const_t<T>, Number> {
  code(v.column), code.one_of(v.part, 3), code.one_of(v.fill, 4), code(v.constant), code(v.indicator);
  code(v.low), code(v.high), code(v.log), code(v.standardise);
}
template <class Coder, class T>
void members(Coder& code, T& v) requires std::is_same_v<std::remove_const_t<T>, Cycle> {
  code(v.column), code.one_of(v.period, 3);
}
template <class Coder, class T>
void members(Coder& code, T& v) requires std::is_same_v<std::remove_const_t<T>, Category> {
  code(v.column), code.one_of(v.part, 3), code.one_of(v.encode, 4), code.one_of(v.unseen, 2);
  code(v.categories_max), code(v.count_min), code(v.boundaries), code(v.buckets), code(v.hash_buckets);
}
template <class Coder, class T>
void members(Coder& code, T& v) requires std::is_same_v<std::remove_const_t<T>, Cross> {
  code(v.left), code(v.right), code(v.buckets), code.one_of(v.encode, 4);
}
template <class Coder, class T>
void members(Coder& code, T& v) requires std::is_same_v<std::remove_const_t<T>, FittedNumber> {
  code(v.fill), code(v.low), code(v.high), code(v.mean), code(v.scale);
}
template <class Coder, class T>
void members(Coder&, T&) requires std::is_same_v<std::remove_const_t<T>, FittedCycle> {}
template <class Coder, class T>
void members(Coder& code, T& v) requires std::is_same_v<std::remove_const_t<T>, FittedCategory> {
  code(v.texts), code(v.whole), code(v.ids), code(v.boundaries), code(v.labels), code(v.cardinality);
}
template <class Coder, class T>
void members(Coder& code, T& v) requires std::is_same_v<std::remove_const_t<T>, FittedCross> {
  code(v.left_times), code(v.right_times), code(v.modulus), code(v.buckets), code(v.cardinality);
}

template <class How, class Fit>
void read_feature(FittedReader& read, Fitted& out) {
  Feature feature;
  read(feature.name);
  How how;
  Fit fit;
  members(read, how), members(read, fit);
  feature.how = std::move(how);
  out.features.push_back(std::move(feature));
  out.fits.emplace_back(std::move(fit));
}

constexpr std::uint8_t kFittedVersion = 1;

// What lowering takes for granted of fits, so that damaged bytes end here.
void must_fit(bool ok, const char* what) {
  if (!ok) throw Error(Code::corrupt, std::string("a transform is not what was written: ") + what);
}

void check_fit(const Category& how, const FittedCategory& fit) {
  must_fit(fit.ids.size() == fit.texts.size() + fit.whole.size(), "ids of categories");
  must_fit(fit.texts.empty() || fit.whole.empty(), "two kinds of categories");
  must_fit(fit.cardinality >= 1 && fit.cardinality <= kBucketsMax + 1, "a cardinality");
  for (const auto id : fit.ids) must_fit(id >= 1 && static_cast<std::size_t>(id) < fit.cardinality, "an id");
  if (is_bucketised(how)) must_fit(fit.cardinality == fit.boundaries.size() + 2, "buckets");
  if (how.encode == Encode::one_hot) must_fit(fit.labels.size() + 1 == fit.cardinality, "labels");
}

void check_fit(const Cross&, const FittedCross& fit) {
  // Small enough that no pair overflows.
  constexpr auto kMost = std::int64_t{1} << 31;
  for (const auto times : {fit.left_times, fit.right_times}) must_fit(times >= 0 && times < kMost, "a cross");
  for (const auto limit : {fit.modulus, fit.buckets}) must_fit(limit >= 1 && limit < kMost, "a cross");
  must_fit(fit.cardinality == static_cast<std::size_t>(fit.buckets) + 1, "a cross");
}

void check_fits(const Fitted& fitted) {
  std::size_t one_hot = 0;
  for (std::size_t at = 0; at < fitted.features.size(); ++at) {
    const auto& how = fitted.features[at].how;
    if (const auto* category = std::get_if<Category>(&how)) check_fit(*category, fitted.fit<FittedCategory>(at));
    if (const auto* cross = std::get_if<Cross>(&how)) check_fit(*cross, fitted.fit<FittedCross>(at));
    if (how.index() < 2) continue;
    const auto encoding = encoding_of(fitted, at);
    if (encoding.how == Encode::one_hot) one_hot += encoding.cardinality;
    must_fit(one_hot <= kOneHotMax, "one-hot columns");
  }
}

}  // namespace

std::size_t index_of(const std::vector<Column>& columns, const std::string& name) {
  const auto at = std::find_if(columns.begin(), columns.end(), [&](const auto& c) { return c.name == name; });
  CHECK(at != columns.end(), "the column is there: features were checked");
  return static_cast<std::size_t>(at - columns.begin());
}

void check_features(const std::vector<Column>& columns, const std::vector<Feature>& features) {
  FeatureFaults faults(columns);
  std::set<std::string_view> names;
  for (const auto& column : columns) {
    const std::string where = fmt::format("column '{}'", shown(column.name));
    if (column.name.empty() || column.name[0] == '%' || column.name.size() > 256 || !is_utf8(column.name))
      faults.add(where, "a column has a name of at most 256 bytes of text that does not begin with %");
    if (!names.insert(column.name).second) faults.add(where, "is there twice");
  }
  names.clear();
  // Nothing of nothing is a transform: what is learned from images alone has it.
  if (features.empty() && !columns.empty()) faults.add("features", "there must be one at least");
  if (features.size() > kFeaturesMax) faults.add("features", fmt::format("at most {}", kFeaturesMax));
  for (const auto& feature : features) {
    if (feature.name.empty() || feature.name.size() > 256 || !is_utf8(feature.name))
      faults.add(fmt::format("feature '{}'", shown(feature.name)), "a feature has a name of at most 256 bytes of text");
    if (!names.insert(feature.name).second)
      faults.add(fmt::format("feature '{}'", shown(feature.name)), "is there twice");
    faults.check(feature, features);
  }
  // The model holds a matrix of all boundaries by all features that have some.
  std::size_t boundaries = 0, bucketised = 0;
  for (const auto& feature : features) {
    const auto* category = std::get_if<Category>(&feature.how);
    if (!category || !is_bucketised(*category)) continue;
    boundaries += std::max(category->buckets, category->boundaries.size() + 1);
    ++bucketised;
  }
  if (boundaries * bucketised > kBucketCellsMax)
    faults.add("features", fmt::format("{} buckets of {} features: at most {} if multiplied", boundaries, bucketised,
                                       kBucketCellsMax));
  refuse_if_any("preprocessing", faults.take());
}

Encoding encoding_of(const Fitted& fitted, std::size_t feature) {
  const auto& how = fitted.features[feature].how;
  if (const auto* category = std::get_if<Category>(&how))
    return {category->encode, category->unseen == Unseen::other, fitted.fit<FittedCategory>(feature).cardinality};
  return {std::get<Cross>(how).encode, false, fitted.fit<FittedCross>(feature).cardinality};
}

Layout::Layout(const std::vector<Column>& columns, const std::vector<Feature>& features) {
  // Whole columns first: parts stand behind all of them.
  for (const auto& feature : features) {
    const auto need = [&](const std::string& name) {
      const std::size_t column = index_of(columns, name);
      if (std::find(wide.begin(), wide.end(), column) == wide.end()) wide.push_back(column);
    };
    if (const auto* number = std::get_if<Number>(&feature.how)) need(number->column);
    if (const auto* cycle = std::get_if<Cycle>(&feature.how)) need(cycle->column);
    if (const auto* category = std::get_if<Category>(&feature.how)) {
      const auto& column = columns[index_of(columns, category->column)];
      const bool as_it_comes = column.element() != Element::float64 && category->part == Part::whole;
      if (is_bucketised(*category) || !as_it_comes) need(category->column);
    }
  }
  for (std::size_t at = 0; at < features.size(); ++at) {
    const auto& how = features[at].how;
    if (const auto* number = std::get_if<Number>(&how))
      numbers.push_back({at, value_of(columns, number->column, number->part)});
    if (const auto* cycle = std::get_if<Cycle>(&how))
      cycles.push_back({at, value_of(columns, cycle->column, Part::whole)});
    if (std::holds_alternative<Cross>(how)) crosses.push_back(at);
    const auto* category = std::get_if<Category>(&how);
    if (!category) continue;
    const std::size_t column = index_of(columns, category->column);
    if (is_bucketised(*category))
      by_bucket.push_back({at, value_of(columns, category->column, category->part)});
    else if (columns[column].element() == Element::float64 || category->part != Part::whole)
      by_whole.push_back({at, value_of(columns, category->column, category->part)});
    else
      by_column.push_back({at, column});
  }
  for (const auto* uses : {&by_bucket, &by_whole, &by_column})
    for (const auto& use : *uses) feature_of_id.push_back(use.feature);
  feature_of_id.insert(feature_of_id.end(), crosses.begin(), crosses.end());
  for (std::size_t id = 0; id < feature_of_id.size(); ++id) id_of[features[feature_of_id[id]].name] = id;
}

std::size_t Layout::value_of(const std::vector<Column>& columns, const std::string& column, Part part) {
  const auto at = std::find(wide.begin(), wide.end(), index_of(columns, column));
  const auto place = static_cast<std::size_t>(at - wide.begin());
  if (part == Part::whole) return place;
  for (std::size_t k = 0; k < parts.size(); ++k)
    if (parts[k].wide == place && parts[k].part == part) return wide.size() + k;
  parts.push_back({place, part});
  return wide.size() + parts.size() - 1;
}

void encode(ByteWriter& out, const Fitted& fitted) {
  FittedWriter write(out);
  out.u8(kFittedVersion);
  out.u64(fitted.columns.size());
  for (const auto& column : fitted.columns) members(write, column);
  out.u64(fitted.features.size());
  for (std::size_t at = 0; at < fitted.features.size(); ++at) {
    const auto& feature = fitted.features[at];
    out.u8(static_cast<std::uint8_t>(feature.how.index()));
    write(feature.name);
    std::visit([&](const auto& how) { members(write, how); }, feature.how);
    std::visit([&](const auto& fit) { members(write, fit); }, fitted.fits[at]);
  }
}

Fitted decode_fitted(BytesView bytes) {
  ByteReader in(bytes);
  FittedReader read(in);
  if (in.u8() != kFittedVersion) throw Error(Code::corrupt, "a transform is of a version that is not known here");
  Fitted out;
  out.columns.resize(read.size());
  for (auto& column : out.columns) members(read, column);
  const std::size_t features = read.size();
  for (std::size_t at = 0; at < features; ++at) {
    switch (in.u8()) {
      case 0:
        read_feature<Number, FittedNumber>(read, out);
        break;
      case 1:
        read_feature<Cycle, FittedCycle>(read, out);
        break;
      case 2:
        read_feature<Category, FittedCategory>(read, out);
        break;
      case 3:
        read_feature<Cross, FittedCross>(read, out);
        break;
      default:
        throw Error(Code::corrupt, "a transform is not what was written: an unknown feature");
    }
  }
  in.expect_end();
  try {
    check_features(out.columns, out.features);
  } catch (const Error& error) {
    throw Error(Code::corrupt, error.what(), error.faults());
  }
  check_fits(out);
  return out;
}

}  // namespace falaj::graph
