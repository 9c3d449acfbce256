// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compute/graph/graph.h"
#include "foundation/base/bytes.h"

// From raw columns to what a model eats. Each transform is written once, as a sequence of tensor operations
// (lowering.h); the trainer runs that sequence here and the exported model holds the same sequence as ONNX nodes, so
// training and serving cannot disagree.
namespace falaj::graph {

// ---- What comes in.
enum class Kind { float64, float32, int64, boolean, text, timestamp };
inline constexpr Kind kKinds[] = {Kind::float64, Kind::float32, Kind::int64,
                                  Kind::boolean, Kind::text,    Kind::timestamp};
std::string_view name(Kind kind);

// A missing value is not-a-number, and an empty text: that is all a tensor can say. So whole numbers, booleans and
// timestamps that may be missing come as float64, which holds integers up to 2^53 and microseconds up to the year 2255
// exactly. Whoever knows that a column is never missing says so and keeps the exact type, which large ids need.
// Infinite numbers, and those too large for a float, count as missing too.
struct Column {
  std::string name;
  Kind kind = Kind::float64;
  bool nullable = true;
  friend bool operator==(const Column&, const Column&) = default;

  // float64 -> float64, float32 -> float32, int64, timestamp (microseconds since 1970) -> int64, or float64 when
  // nullable, boolean -> boolean, or float64 when nullable, text -> text.
  Element element() const;
};

// The values of one column of a batch, of the type its Column::element() says; booleans are bytes of 0 or 1.
using Values = std::variant<std::span<const double>, std::span<const float>, std::span<const std::int64_t>,
                            std::span<const std::uint8_t>, std::span<const std::string_view>>;
struct Batch {
  std::size_t rows = 0;
  std::vector<Values> columns;  // in the order of the columns, `rows` values each
};

// ---- What is asked for.
enum class Part {
  whole,    // the value itself; of a timestamp, its microseconds
  hour,     // 0 to 23, UTC
  weekday,  // Monday 0 to Sunday 6, UTC
};
enum class Fill { keep, mean, median, constant };  // keep: stays not-a-number, for trees

// One float: the value, filled where missing, clipped to low..high, then sign(x) log(1 + |x|), then standardised to
// mean 0 and deviation 1 of what was present in training. Each but the filling is left out unless asked for. A column
// that never changes becomes 0 when standardised.
struct Number {
  std::string column;
  Part part = Part::whole;
  Fill fill = Fill::mean;
  double constant = 0;     // for Fill::constant
  bool indicator = false;  // one float more: 1 where missing, else 0
  std::optional<double> low, high;
  bool log = false;
  bool standardise = false;
};

// Two floats: sine and cosine of a timestamp's place in the period; both 0 where missing.
struct Cycle {
  enum class Period { day, week, year };  // a year of 365.2425 days since 1970
  std::string column;
  Period period = Period::day;
};

// How a category leaves. Its id is 0 when it was not seen in training, else 1, 2, ... with the most frequent first.
enum class Encode {
  none,       // only as a side of a Cross
  one_hot,    // a float per category
  code,       // the id as one float: what trees split by sets of
  embedding,  // the id, in the matrix of ids
};
enum class Unseen { zeros, other };  // one-hot only: all zeros, or one float more that is 1 for what is not known

// One of a set: texts, whole numbers, booleans, parts of timestamps by their value; numbers of any kind by buckets.
// Missing is a category like any other when training had it.
struct Category {
  std::string column;
  Part part = Part::whole;
  Encode encode = Encode::embedding;
  Unseen unseen = Unseen::zeros;
  std::size_t categories_max = 10'000;  // the most frequent; at most kCategoriesMax
  std::size_t count_min = 1;            // rarer ones count as unseen
  // Bucketise: id 1 below the first boundary, 2 from it on, ...; 0 missing. Either given (ascending), or so many
  // buckets of equal counts in training.
  std::vector<double> boundaries;
  std::size_t buckets = 0;
  // Hashing: texts share so many ids, 1 to hash_buckets. ONNX has no hash, so the model holds the table from text to id
  // of the categories_max most frequent ones; others are unseen. It bounds what comes out, not the table.
  std::size_t hash_buckets = 0;
};

// A category of its own for each pair of two others, by names of Category features. Pairs share `buckets` ids by
// arithmetic that ONNX has too; when there are at most so many pairs each has its own. Ids from 1; 0 never occurs.
struct Cross {
  std::string left, right;
  std::size_t buckets = 10'000;
  Encode encode = Encode::embedding;
};

struct Feature {
  std::string name;  // unique
  std::variant<Number, Cycle, Category, Cross> how;
};

inline constexpr std::size_t kCategoriesMax = 65'000;
inline constexpr std::size_t kFeaturesMax = 10'000;
inline constexpr std::size_t kOneHotMax = 100'000;  // floats that one-hot may make in all

// Every column as its kind suggests. For a network: numbers filled by the median, with an indicator where nullable, and
// standardised; texts embedded; timestamps as cycles of day and week. For trees: numbers as they are, missing kept;
// texts as codes; timestamps by hour and weekday.
enum class For { network, trees };
std::vector<Feature> automatic(std::span<const Column> columns, For what);

// ---- Fitting: one pass over batches, in bounded memory.
class Transform;
class Fitter {
 public:
  // Throws invalid with every fault: unknown columns, repeated names, transforms that do not fit a kind, limits.
  Fitter(std::vector<Column> columns, std::vector<Feature> features);
  ~Fitter();
  Fitter(Fitter&&) noexcept;
  Fitter& operator=(Fitter&&) noexcept;

  void add(const Batch& batch);     // throws invalid when the batch is not of these columns
  void merge(const Fitter& other);  // Requires: of the same columns and features
  Transform finish() const;         // throws invalid when nothing was added

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

// ---- Fitted: a value that never changes. Copying is cheap. Thread-safe.
class Transform {
 public:
  const std::vector<Column>& columns() const;
  const std::vector<Feature>& features() const;

  // What apply() gives: a float each ("delay", "delay missing", "origin=JFK", "origin=other", "time day sin"), and a
  // column of ids each.
  const std::vector<std::string>& float_names() const;
  // For each float its Category or Cross when it is a code (so that trees may split it by sets), else 0.
  const std::vector<std::size_t>& float_categories() const;
  struct Ids {
    std::string name;
    std::size_t cardinality = 0;  // ids are 0 to cardinality - 1
    friend bool operator==(const Ids&, const Ids&) = default;
  };
  const std::vector<Ids>& ids() const;

  // Row-major: floats [rows, float_names().size()], ids [rows, ids().size()]. Throws invalid when the batch is not of
  // these columns. Requires: the spans are exactly that large.
  void apply(const Batch& batch, std::span<float> floats, std::span<std::int64_t> ids) const;

  // Adds the inputs, each [rows, 1] under its column's name, and the nodes that make the same as apply().
  struct Emitted {
    std::string floats;  // [rows, float_names().size()] tensor(float); empty when there are none
    std::string ids;     // [rows, ids().size()] tensor(int64); empty when there are none
  };
  Emitted emit(Graph& graph) const;

  Bytes encode() const;
  static Transform decode(BytesView bytes);  // throws corrupt
  friend bool operator==(const Transform& a, const Transform& b) { return a.encode() == b.encode(); }

 private:
  friend class Fitter;
  struct Rep;
  explicit Transform(std::shared_ptr<const Rep> rep) : rep_(std::move(rep)) {}
  std::shared_ptr<const Rep> rep_;
};

}  // namespace falaj::graph
