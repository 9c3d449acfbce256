// SPDX-License-Identifier: Apache-2.0
#include "compute/loader/prepare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compute/loader/readable.h"
#include "foundation/base/error.h"

namespace falaj::loader {
namespace {

using table::identifier;
using table::literal;
using table::Type;

constexpr std::size_t kClassesMax = 1000;      // of one label
constexpr std::size_t kClassesOfNumbers = 20;  // whole numbers with more values than this are a quantity
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

[[noreturn]] void refuse(const std::string& field, const std::string& what) {
  throw Error(Code::invalid, fmt::format("{}: {}", field, what), {{field, what}});
}

std::string names_of(const table::Schema& schema) {
  std::vector<std::string> names;
  for (const auto& column : schema) names.push_back(column.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

const table::Column& column_named(const table::Schema& schema, const std::string& name, const std::string& field) {
  const auto* column = table::find(schema, name);
  if (!column) refuse(field, fmt::format("there is no column '{}'; there are {}", name, names_of(schema)));
  return *column;
}

bool is_number(Type type) {
  return type == Type::int32 || type == Type::int64 || type == Type::float32 || type == Type::float64;
}

// What a column is to a model; nothing when it cannot be one.
std::optional<graph::Kind> kind_of(Type type) {
  switch (type) {
    case Type::boolean:
      return graph::Kind::boolean;
    case Type::int32:
    case Type::int64:
      return graph::Kind::int64;
    case Type::float32:
      return graph::Kind::float32;
    case Type::float64:
      return graph::Kind::float64;
    case Type::text:
      return graph::Kind::text;
    case Type::date:
    case Type::timestamp:
      return graph::Kind::timestamp;
    case Type::bytes:
      return std::nullopt;
  }
  return std::nullopt;
}

// Rows whose key, seeded, falls below a share: the same rows on every machine and in every version of the engine,
// because a digest and the order of hexadecimal digits are the same everywhere.
std::string below_share(const std::string& key, std::int64_t seed, double share) {
  const auto threshold = static_cast<std::uint64_t>(std::clamp(share, 0.0, 1.0) * 0x1p32);
  if (threshold >> 32) return "true";
  return fmt::format("substr(md5({} || {}), 1, 8) < '{:08x}'", literal(fmt::format("{}:", seed)), key, threshold);
}

}  // namespace

std::string_view name_of(Objective objective) {
  switch (objective) {
    case Objective::binary:
      return "binary";
    case Objective::multiclass:
      return "multiclass";
    case Objective::regression:
      return "regression";
    case Objective::ranking:
      return "ranking";
  }
  return "";
}

Rows::Rows(table::Workspace& room, const recipe::Training& training, Look look) : room_(room), look_(std::move(look)) {
  readable([&] {
    const auto schema = room.describe("SELECT * EXCLUDE (file_row_number, \"%file\") FROM rows");
    look_at_label(training, schema);
    choose_image(training, schema);
    choose_columns(training, schema);
    split(training, schema);
  });
}

void Rows::query(const std::string& sql, const std::function<bool(const table::Chunk&)>& each) const {
  table::Workspace::Watch watch;
  if (look_) watch = [this](double) { look_(); };
  room_.query(sql, {}, each, watch);
}

std::int64_t Rows::count(const std::string& sql) const {
  std::int64_t out = 0;
  query(sql, [&](const table::Chunk& chunk) {
    if (chunk.rows() > 0 && !chunk.is_null(0, 0)) out = chunk.integer(0, 0);
    return true;
  });
  return out;
}

// Rows of a ranking lie side by side by their groups, and within them in the same order whoever asks, and however many
// threads the engine has.
std::string Rows::in_order() const {
  return problem_.objective == Objective::ranking ? " ORDER BY \"%group\", \"%file\", file_row_number" : "";
}

void Rows::look_at_label(const recipe::Training& training, const table::Schema& schema) {
  const auto& column = column_named(schema, training.label, "label");
  const auto sql = identifier(column.name);
  const auto rows = count("SELECT count(*) FROM rows");
  if (rows == 0) refuse("data", "has no rows");
  const bool real = column.type == Type::float32 || column.type == Type::float64;
  const auto missing = count(fmt::format("SELECT count(*) FROM rows WHERE {0} IS NULL{1}", sql,
                                         real ? fmt::format(" OR NOT isfinite({})", sql) : ""));
  if (missing > 0)
    refuse("label",
           fmt::format("{} of {} rows have no finite '{}'; leave them out of the dataset", missing, rows, column.name));
  std::vector<std::string> values;
  query(fmt::format("SELECT DISTINCT CAST({0} AS VARCHAR), {0} AS v FROM rows ORDER BY v LIMIT {1}", sql,
                    kClassesMax + 1),
        [&](const table::Chunk& chunk) {
          for (std::size_t i = 0; i < chunk.rows(); ++i) values.emplace_back(chunk.text(0, i));
          return true;
        });
  if (values.size() == 1)
    refuse("label", fmt::format("'{}' is {} in every row: there is nothing to learn", column.name, values[0]));

  const auto& asked = training.objective;
  if (asked == "regression" || asked == "ranking") {
    if (!is_number(column.type) && column.type != Type::boolean)
      refuse("label", fmt::format("'{}' is {}; {} needs numbers", column.name, table::name(column.type), asked));
    problem_.objective = asked == "ranking" ? Objective::ranking : Objective::regression;
  } else if (asked == "binary" || (asked == "auto" && values.size() == 2)) {
    if (values.size() != 2)
      refuse("objective",
             fmt::format("binary needs a label with two values; '{}' has {}{}", column.name,
                         std::min(values.size(), kClassesMax), values.size() > kClassesMax ? " or more" : ""));
    problem_.objective = Objective::binary;
  } else if (asked == "multiclass" || column.type == Type::text || (!real && values.size() <= kClassesOfNumbers)) {
    if (values.size() > kClassesMax)
      refuse("label", fmt::format("'{}' has more than {} values; that is too many classes", column.name, kClassesMax));
    problem_.objective = Objective::multiclass;
  } else {
    problem_.objective = Objective::regression;
  }

  if (const auto fault = recipe::fault_of_metric(training.metric, name_of(problem_.objective)); !fault.empty())
    refuse("metric", fault);

  label_ = fmt::format("CAST({} AS FLOAT)", sql);
  if (problem_.objective == Objective::binary || problem_.objective == Objective::multiclass) {
    problem_.classes = values;
    std::vector<std::string> quoted;
    for (const auto& value : values) quoted.push_back(literal(value));
    label_ = fmt::format("CAST(list_position([{}], CAST({} AS VARCHAR)) - 1 AS FLOAT)", fmt::join(quoted, ", "), sql);
  }
  weight_ = "CAST(1 AS FLOAT)";
  if (!training.weight.empty()) {
    const auto& weight = column_named(schema, training.weight, "weight");
    if (!is_number(weight.type)) refuse("weight", fmt::format("'{}' is no number", weight.name));
    weight_ = fmt::format("CAST({} AS FLOAT)", identifier(weight.name));
    const auto bad =
        count(fmt::format("SELECT count(*) FROM rows WHERE {0} IS NULL OR NOT isfinite({0}) OR {0} < 0", weight_));
    if (bad > 0) refuse("weight", fmt::format("{} rows have no finite '{}' of at least 0", bad, weight.name));
  }
  if (training.balance && !problem_.classes.empty()) balance(rows);
  group_ = "CAST(0 AS BIGINT)";
  if (problem_.objective == Objective::ranking) {
    if (training.group.empty()) refuse("group", "ranking needs a column whose equal values are ranked together");
    column_named(schema, training.group, "group");
    group_ = fmt::format("dense_rank() OVER (ORDER BY {})", identifier(training.group));
  }
}

// Every class counts as much as every other.
void Rows::balance(std::int64_t rows) {
  std::vector<double> factors(problem_.classes.size(), 1);
  query(fmt::format("SELECT {} AS label, count(*) FROM rows GROUP BY 1", label_), [&](const table::Chunk& chunk) {
    for (std::size_t i = 0; i < chunk.rows(); ++i)
      factors.at(static_cast<std::size_t>(chunk.real(0, i))) =
          static_cast<double>(rows) / (static_cast<double>(factors.size()) * chunk.real(1, i));
    return true;
  });
  weight_ = fmt::format("CAST({} * [{}][CAST({} AS BIGINT) + 1] AS FLOAT)", weight_, fmt::join(factors, ", "), label_);
}

void Rows::choose_image(const recipe::Training& training, const table::Schema& schema) {
  for (const auto& [name, how] : training.columns) {
    if (how.as != "image") continue;
    const auto field = fmt::format("columns.{}", name);
    const auto& column = column_named(schema, name, "columns");
    if (problem_.image) refuse(field, "there is one image a row");
    if (column.type != Type::bytes)
      refuse(field,
             fmt::format("is {}; an image is bytes, one for each channel of each pixel", table::name(column.type)));
    problem_.image = {name, static_cast<std::size_t>(how.height), static_cast<std::size_t>(how.width),
                      static_cast<std::size_t>(how.channels)};
    const auto size = problem_.image->bytes();
    const auto other = count(
        fmt::format("SELECT count(*) FROM rows WHERE {0} IS NULL OR octet_length({0}) <> {1}", identifier(name), size));
    if (other > 0)
      refuse(field, fmt::format("{} rows have no image of {} bytes, {} by {} pixels with {} channels", other, size,
                                how.height, how.width, how.channels));
  }
}

void Rows::choose_columns(const recipe::Training& training, const table::Schema& schema) {
  const auto among = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const auto* list : {&training.features, &training.exclude, &training.slices})
    for (const auto& name : *list)
      column_named(schema, name,
                   list == &training.features  ? "features"
                   : list == &training.exclude ? "exclude"
                                               : "slices");
  for (const auto& [name, how] : training.columns) column_named(schema, name, "columns");
  for (const auto& column : schema) {
    if (column.name == training.label || column.name == training.weight || column.name == training.group) continue;
    if (training.split.by == "part" && column.name == training.split.column) continue;
    if (problem_.image && column.name == problem_.image->column) continue;
    if (among(training.exclude, column.name)) continue;
    if (!training.features.empty() && !among(training.features, column.name)) continue;
    if (const auto how = training.columns.find(column.name);
        how != training.columns.end() && how->second.as == "ignore")
      continue;
    const auto kind = kind_of(column.type);
    if (!kind) {
      if (among(training.features, column.name))
        refuse("features", fmt::format("'{}' is {}, which no model takes", column.name, table::name(column.type)));
      continue;
    }
    problem_.columns.push_back({column.name, *kind, true});
  }
  if (problem_.image && !problem_.columns.empty())
    refuse("features", fmt::format("an image is learned from alone; exclude '{}'", problem_.columns[0].name));
  if (problem_.columns.empty() && !problem_.image) refuse("features", "no column is left to learn from");
}

// As a column says; what it does not call valid is taken from the rows to learn from.
void Rows::split_by_part(const recipe::Training& training, const table::Schema& schema) {
  const auto& split = training.split;
  const auto& column = column_named(schema, split.column, "split.column");
  if (column.type != Type::text)
    refuse("split.column",
           fmt::format("'{}' is {}, not a text: train, valid or test", column.name, table::name(column.type)));
  const auto part = identifier(column.name);
  const auto count_of = [&](const char* where) {
    return count(fmt::format("SELECT count(*) FROM rows WHERE coalesce({}, '') {}", part, where));
  };
  if (const auto others = count_of("NOT IN ('train', 'valid', 'test')"); others > 0)
    refuse("split.column", fmt::format("in {} rows '{}' is none of train, valid and test", others, column.name));
  const bool has_valid = count_of("= 'valid'") > 0;
  const auto drawn = has_valid ? fmt::format("{} = 'valid'", part)
                               : below_share("CAST(file_row_number AS VARCHAR)", training.seed, split.valid);
  part_ = fmt::format("CASE WHEN {} = 'test' THEN 2 WHEN {} THEN 1 ELSE 0 END", part, drawn);
  problem_.split = fmt::format("as {} says", column.name);
  if (!has_valid) problem_.split += fmt::format("; {:.0f} % of the rows to learn from to stop by", split.valid * 100);
}

void Rows::split(const recipe::Training& training, const table::Schema& schema) {
  const auto& split = training.split;
  auto by = split.by;
  auto column = split.column;
  if (by == "auto") {
    const auto time = std::find_if(schema.begin(), schema.end(), [&](const auto& c) {
      return column.empty() ? c.type == Type::timestamp : c.name == column;
    });
    const bool is_time = time != schema.end() && (time->type == Type::timestamp || time->type == Type::date);
    if (is_time && column.empty()) column = time->name;
    by = is_time ? "time" : "random";
    if (by == "random" && !split.test_from.empty()) refuse("split.testFrom", "there is no column of times");
  }
  if (by == "time") {
    if (column.empty()) refuse("split.column", "required when by is time");
    const auto& time = column_named(schema, column, "split.column");
    if (time.type != Type::timestamp && time.type != Type::date)
      refuse("split.column", fmt::format("'{}' is {}, not a time", column, table::name(time.type)));
    const auto at = fmt::format("epoch_us(CAST({} AS TIMESTAMP))", identifier(column));
    if (const auto none = count(fmt::format("SELECT count(*) FROM rows WHERE {} IS NULL", at)); none > 0)
      refuse("split.column", fmt::format("{} rows have no '{}'", none, column));
    const auto test = !split.test_from.empty()
                          ? parse_time(split.test_from).value_or(0)
                          : count(fmt::format("SELECT quantile_disc({}, {}) FROM rows", at, 1 - split.test));
    const auto valid =
        count(fmt::format("SELECT quantile_disc({0}, {1}) FROM rows WHERE {0} < {2}", at, 1 - split.valid, test));
    part_ = fmt::format("CASE WHEN {0} >= {1} THEN 2 WHEN {0} >= {2} THEN 1 ELSE 0 END", at, test, valid);
    problem_.split = fmt::format("by {}: learned from rows before {}, stopped by those before {}, tested on the rest",
                                 column, format_time(valid), format_time(test));
  } else if (by == "part") {
    split_by_part(training, schema);
  } else {
    std::string key = "CAST(file_row_number AS VARCHAR)";
    if (by == "group") {
      column_named(schema, column, "split.column");
      key = fmt::format("coalesce(CAST({} AS VARCHAR), '')", identifier(column));
    }
    const auto test = below_share(key, training.seed, split.test);
    const auto either = below_share(key, training.seed, split.test + split.valid);
    part_ = fmt::format("CASE WHEN {} THEN 2 WHEN {} THEN 1 ELSE 0 END", test, either);
    problem_.split = by == "group" ? fmt::format("by {}: rows with the same one are in the same part", column)
                                   : fmt::format("at random: {:.0f} % tested on, {:.0f} % to stop by", split.test * 100,
                                                 split.valid * 100);
  }
  query(fmt::format("SELECT {} AS \"%part\", count(*) FROM rows GROUP BY 1", part_), [&](const table::Chunk& chunk) {
    for (std::size_t i = 0; i < chunk.rows(); ++i)
      problem_.rows[static_cast<std::size_t>(chunk.integer(0, i))] = static_cast<std::size_t>(chunk.integer(1, i));
    return true;
  });
  constexpr const char* kNames[] = {"to learn from", "to decide when to stop", "to test on"};
  for (std::size_t i = 0; i < 3; ++i)
    if (problem_.rows[i] == 0) refuse("split", fmt::format("leaves no rows {} ({})", kNames[i], problem_.split));
  if (problem_.objective == Objective::regression || problem_.objective == Objective::ranking) return;
  const auto classes = count(fmt::format("SELECT count(DISTINCT {}) FROM rows WHERE {} = 0", label_, part_));
  if (classes < static_cast<std::int64_t>(problem_.classes.size()))
    refuse("split", fmt::format("of {} classes of '{}' only {} are among the rows to learn from ({})",
                                problem_.classes.size(), training.label, classes, problem_.split));
}

// ---- Reading

struct Rows::Reading {
  Reading(Columns columns, const std::optional<Image>& image) : columns_(columns), image_(image) {
    reals_.resize(columns_.size());
    floats_.resize(columns_.size());
    texts_.resize(columns_.size());
  }

  // The feature columns of the rows of `chunk` that are in `rows`, as a transform takes them.
  const Raw& batch(const table::Chunk& chunk, const std::vector<std::uint32_t>& rows) {
    batch_.rows = rows.size();
    batch_.columns.clear();
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (columns_[c].element() == graph::Element::text) {
        auto& out = texts_[c];
        out.clear();
        for (const auto row : rows) out.push_back(chunk.is_null(c, row) ? std::string_view() : chunk.text(c, row));
        batch_.columns.emplace_back(std::span<const std::string_view>(out));
      } else if (columns_[c].element() == graph::Element::float32) {
        auto& out = floats_[c];
        out.clear();
        const auto values = chunk.as<float>(c);
        for (const auto row : rows)
          out.push_back(chunk.is_null(c, row) ? std::numeric_limits<float>::quiet_NaN() : values[row]);
        batch_.columns.emplace_back(std::span<const float>(out));
      } else {
        auto& out = reals_[c];
        out.clear();
        for (const auto row : rows) out.push_back(chunk.is_null(c, row) ? kNan : chunk.real(c, row));
        batch_.columns.emplace_back(std::span<const double>(out));
      }
    }
    if (image_) {
      pixels_.clear();
      for (const auto row : rows) {
        const auto bytes = chunk.text(columns_.size(), row);
        pixels_.insert(pixels_.end(), bytes.begin(), bytes.end());
      }
      CHECK(pixels_.size() == rows.size() * image_->bytes(), "images were looked at before");
      batch_.pixels = pixels_;
    }
    return batch_;
  }

 private:
  const Columns columns_;
  const std::optional<Image>& image_;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::vector<double>> reals_;
  std::vector<std::vector<float>> floats_;
  std::vector<std::vector<std::string_view>> texts_;
  Raw batch_;
};

// Names that are made here begin with %: a column may be called part or group.
std::string Rows::select(Columns columns, std::string_view more) const {
  std::string out = "SELECT ";
  for (const auto& column : columns) {
    // Days become moments, so that a transform knows one kind of time.
    out += column.kind == graph::Kind::timestamp ? fmt::format("CAST({} AS TIMESTAMP), ", identifier(column.name))
                                                 : identifier(column.name) + ", ";
  }
  if (problem_.image) out += identifier(problem_.image->column) + ", ";
  return fmt::format("{}{} FROM rows", out, more);
}

namespace {

std::vector<std::uint32_t> rows_where(const table::Chunk& chunk, std::size_t column, std::int64_t value) {
  std::vector<std::uint32_t> out;
  for (std::size_t i = 0; i < chunk.rows(); ++i)
    if (chunk.integer(column, i) == value) out.push_back(static_cast<std::uint32_t>(i));
  return out;
}

}  // namespace

graph::Transform Rows::fit(const std::vector<graph::Feature>& features, const Progress& progress) {
  graph::Fitter fitter(problem_.columns, features);
  if (problem_.columns.empty()) {  // images are taken as they are
    fitter.add({problem_.rows[0], {}});
    return fitter.finish();
  }
  Reading reading(problem_.columns, problem_.image);
  const auto n = selected();
  std::size_t seen = 0;
  const auto add = [&](const table::Chunk& chunk) {
    const auto rows = rows_where(chunk, n, 0);
    if (!rows.empty()) fitter.add(reading.batch(chunk, rows));
    seen += rows.size();
    if (progress) progress(static_cast<double>(seen) / static_cast<double>(problem_.rows[0]));
    return true;
  };
  readable([&] { query(select(problem_.columns, part_ + " AS \"%part\""), add); });
  return fitter.finish();
}

Rows::Parts Rows::pack(const graph::Transform& transform, sys::Files& scratch, const Progress& progress) {
  const Layout layout{transform.float_names().size(), transform.ids().size(),
                      problem_.image ? problem_.image->bytes() : 0};
  Parts parts;
  for (auto* part : {&parts.train, &parts.valid, &parts.test}) *part = std::make_unique<Packed>(scratch, layout);
  Reading reading(problem_.columns, problem_.image);
  const auto n = selected();
  const double all =
      static_cast<double>(std::accumulate(std::begin(problem_.rows), std::end(problem_.rows), std::size_t{0}));
  std::vector<std::int64_t> ids;
  RowBlock block;
  std::size_t seen = 0;
  const auto sql = select(problem_.columns, fmt::format("{} AS label, {} AS weight, {} AS \"%group\", {} AS \"%part\"",
                                                        label_, weight_, group_, part_)) +
                   in_order();
  const auto add = [&](const table::Chunk& chunk) {
    for (std::int64_t p = 0; p < 3; ++p) {
      const auto rows = rows_where(chunk, n + 3, p);
      if (rows.empty()) continue;
      block.resize(layout, rows.size());
      ids.resize(rows.size() * layout.ids);
      const auto& raw = reading.batch(chunk, rows);
      transform.apply(raw, block.numbers, ids);
      std::copy(raw.pixels.begin(), raw.pixels.end(), block.pixels.begin());
      std::copy(ids.begin(), ids.end(), block.ids.begin());
      const auto labels = chunk.as<float>(n), weights = chunk.as<float>(n + 1);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        block.labels[i] = labels[rows[i]];
        block.weights[i] = weights[rows[i]];
        block.groups[i] = group_word(chunk.integer(n + 2, rows[i]));
      }
      (p == 0 ? parts.train : p == 1 ? parts.valid : parts.test)->append(block);
    }
    seen += chunk.rows();
    if (progress) progress(static_cast<double>(seen) / all);
    return true;
  };
  readable([&] { query(sql, add); });
  return parts;
}

void Rows::each_batch(Part part, std::size_t first, std::size_t count, const EachBatch& each) {
  const auto columns = Columns(problem_.columns).subspan(first, count);
  Reading reading(columns, problem_.image);
  const auto n = columns.size() + (problem_.image ? 1 : 0);
  const auto sql = select(columns, fmt::format("{} AS \"%group\", {} AS \"%part\"", group_, part_)) + in_order();
  query(sql, [&](const table::Chunk& chunk) {
    const auto rows = rows_where(chunk, n + 1, static_cast<std::int64_t>(part));
    return rows.empty() || each(reading.batch(chunk, rows));
  });
}

std::vector<std::string> Rows::values(Part part, const std::string& column) {
  std::vector<std::string> out;
  query(fmt::format("SELECT coalesce(CAST({} AS VARCHAR), '') FROM (SELECT *, {} AS \"%group\", {} AS \"%part\" "
                    "FROM rows) WHERE \"%part\" = {}{}",
                    identifier(column), group_, part_, static_cast<int>(part), in_order()),
        [&](const table::Chunk& chunk) {
          for (std::size_t i = 0; i < chunk.rows(); ++i) out.emplace_back(chunk.text(0, i));
          return true;
        });
  return out;
}

}  // namespace falaj::loader
