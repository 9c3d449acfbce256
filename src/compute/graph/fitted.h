// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to graph: what fitting found out, as plain data, and where each thing stands in the matrices.

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "compute/graph/transform.h"
#include "foundation/base/bytes.h"

namespace falaj::graph {

// What no fitting is needed for stays as it is: a lowering of these gives the values that statistics are made of.
struct FittedNumber {
  double fill = std::numeric_limits<double>::quiet_NaN();
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  double mean = 0, scale = 1;
};

struct FittedCycle {};

// Stands for a missing whole number in tables. No value is it: those that may be missing are kept within kWholeMost.
inline constexpr std::int64_t kMissingWhole = -9'200'000'000'000'000'000;
inline constexpr double kWholeMost = 9e18;  // beyond 2^63 a cast to a whole number is undefined

// Exactly one of texts, whole and boundaries is used.
struct FittedCategory {
  std::vector<std::string> texts;   // the known ones,
  std::vector<std::int64_t> whole;  // or these,
  std::vector<std::int64_t> ids;    // and the id of each
  std::vector<double> boundaries;   // ascending
  std::vector<std::string> labels;  // of the ids 1, 2, ... when they are shown one by one (one-hot)
  std::size_t cardinality = 1;
};

// id = 1 + ((left * left_times + right * right_times) mod modulus) mod buckets
struct FittedCross {
  std::int64_t left_times = 1, right_times = 1, modulus = 1, buckets = 1;
  std::size_t cardinality = 1;
};

struct Fitted {
  std::vector<Column> columns;
  std::vector<Feature> features;
  std::vector<std::variant<FittedNumber, FittedCycle, FittedCategory, FittedCross>> fits;  // one per feature

  template <class Fit>
  const Fit& fit(std::size_t feature) const {
    return std::get<Fit>(fits[feature]);
  }
};

void encode(ByteWriter& out, const Fitted& fitted);
Fitted decode_fitted(BytesView bytes);  // throws corrupt

// Every fault of columns and features by themselves; throws invalid.
void check_features(const std::vector<Column>& columns, const std::vector<Feature>& features);

// Where things stand; from columns and features alone. Requires: they were checked.
struct Layout {
  Layout(const std::vector<Column>& columns, const std::vector<Feature>& features);

  // The matrix of values, all float64: columns as they are, then parts of timestamps.
  std::vector<std::size_t> wide;  // columns
  struct PartUse {
    std::size_t wide;
    Part part;
  };
  std::vector<PartUse> parts;

  // Features by what they are; `value` is the column of the matrix of values.
  struct Use {
    std::size_t feature;
    std::size_t value;
  };
  std::vector<Use> numbers;
  std::vector<Use> cycles;
  std::vector<Use> by_bucket;                // categories, in the order in which their ids are made:
  std::vector<Use> by_whole;                 //   of whole numbers that may be missing, and of parts
  std::vector<Use> by_column;                //   of columns as they come; `value` is the column here
  std::vector<std::size_t> crosses;          //   features
  std::map<std::string, std::size_t> id_of;  // name of a category or cross -> its column of the matrix of all ids
  std::vector<std::size_t> feature_of_id;    // and back

 private:
  std::size_t value_of(const std::vector<Column>& columns, const std::string& column, Part part);
};

struct Encoding {
  Encode how = Encode::none;
  bool other = false;  // one-hot: the id 0 has a float too
  std::size_t cardinality = 0;
};
Encoding encoding_of(const Fitted& fitted, std::size_t feature);  // Requires: a category or a cross

// Whether a category is found by comparing with boundaries.
inline bool is_bucketised(const Category& category) { return category.buckets > 0 || !category.boundaries.empty(); }
std::size_t index_of(const std::vector<Column>& columns, const std::string& name);  // Requires: there is one

}  // namespace falaj::graph
