// SPDX-License-Identifier: Apache-2.0
#include "compute/graph/transform.h"

#include <algorithm>

#include <fmt/format.h>

#include "compute/graph/emit.h"
#include "compute/graph/evaluate.h"
#include "compute/graph/transform_rep.h"
#include "foundation/base/error.h"

namespace falaj::graph {
namespace {

constexpr std::string_view kKindNames[] = {"float64", "float32", "int64", "boolean", "text", "timestamp"};

// To rows from columns; a cache line of each column at a time, so that the rows written to stay in the cache too.
template <class T>
void transpose(const Evaluator::Value& from, std::size_t rows, T* out) {
  constexpr std::size_t kLine = 64 / sizeof(T);
  const std::size_t width = from.columns.size();
  for (std::size_t first = 0; first < rows; first += kLine) {
    const std::size_t end = std::min(rows, first + kLine);
    for (std::size_t c = 0; c < width; ++c) {
      const T* in = from.at<T>(c);
      for (std::size_t r = first; r < end; ++r) out[r * width + c] = in[r];
    }
  }
}

}  // namespace

std::string_view name(Kind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }

Element Column::element() const {
  switch (kind) {
    case Kind::float64:
      return Element::float64;
    case Kind::float32:
      return Element::float32;
    case Kind::boolean:
      return nullable ? Element::float64 : Element::boolean;
    case Kind::text:
      return Element::text;
    case Kind::int64:
    case Kind::timestamp:
      break;
  }
  return nullable ? Element::float64 : Element::int64;
}

std::vector<Feature> automatic(std::span<const Column> columns, For what) {
  std::vector<Feature> out;
  const bool trees = what == For::trees;
  for (const auto& column : columns) {
    const auto add = [&](const std::string& suffix, auto how) {
      how.column = column.name;
      out.push_back({column.name + suffix, std::move(how)});
    };
    if (column.kind == Kind::text) {
      Category category;
      category.encode = trees ? Encode::code : Encode::embedding;
      add("", category);
    } else if (column.kind == Kind::timestamp && trees) {
      Number number;
      number.fill = Fill::keep;
      number.part = Part::hour;
      add(" hour", number);
      number.part = Part::weekday;
      add(" weekday", number);
    } else if (column.kind == Kind::timestamp) {
      Cycle cycle;
      add(" day", cycle);
      cycle.period = Cycle::Period::week;
      add(" week", cycle);
    } else {
      Number number;
      number.fill = trees ? Fill::keep : Fill::median;
      number.indicator = !trees && column.nullable;
      number.standardise = !trees;
      add("", number);
    }
  }
  return out;
}

// ---- The fitted one.
Transform::Rep::Rep(Fitted given)
    : fitted(std::move(given)), layout(fitted.columns, fitted.features), tables(tables_of(fitted)) {
  const auto add = [&](std::string name, std::size_t categories = 0) {
    float_names.push_back(std::move(name));
    float_categories.push_back(categories);
  };
  const auto& features = fitted.features;
  for (const auto& use : layout.numbers) add(features[use.feature].name);
  for (const auto& use : layout.numbers)
    if (std::get<Number>(features[use.feature].how).indicator) add(features[use.feature].name + " missing");
  for (const auto& use : layout.cycles)
    add(features[use.feature].name + " sin"), add(features[use.feature].name + " cos");
  for (const std::size_t feature : layout.feature_of_id) {
    const auto encoding = encoding_of(fitted, feature);
    if (encoding.how == Encode::code) add(features[feature].name, encoding.cardinality);
    if (encoding.how == Encode::embedding) ids.push_back({features[feature].name, encoding.cardinality});
  }
  for (const std::size_t feature : layout.feature_of_id) {
    const auto encoding = encoding_of(fitted, feature);
    if (encoding.how != Encode::one_hot) continue;
    if (encoding.other) add(features[feature].name + "=other");
    const auto* category = std::get_if<FittedCategory>(&fitted.fits[feature]);
    for (std::size_t id = 1; id < encoding.cardinality; ++id)
      add(fmt::format("{}={}", features[feature].name, category ? category->labels[id - 1] : std::to_string(id)));
  }
}

const std::vector<Column>& Transform::columns() const { return rep_->fitted.columns; }
const std::vector<Feature>& Transform::features() const { return rep_->fitted.features; }
const std::vector<std::string>& Transform::float_names() const { return rep_->float_names; }
const std::vector<std::size_t>& Transform::float_categories() const { return rep_->float_categories; }
const std::vector<Transform::Ids>& Transform::ids() const { return rep_->ids; }

void Transform::apply(const Batch& batch, std::span<float> floats, std::span<std::int64_t> ids) const {
  check_batch(batch, columns());
  const std::size_t floats_wide = float_names().size(), ids_wide = rep_->ids.size();
  CHECK(floats.size() == batch.rows * floats_wide, "room for every float");
  CHECK(ids.size() == batch.rows * ids_wide, "room for every id");
  Slabs slabs(batch.rows);
  for (std::size_t first = 0; first < batch.rows; first += Slabs::kRowsMax) {
    const std::size_t rows = std::min(Slabs::kRowsMax, batch.rows - first);
    Evaluator machine(batch, columns(), rep_->tables, slabs, first, rows);
    const auto result = Lowering(rep_->fitted, rep_->layout, machine).run();
    if (floats_wide > 0) transpose(result.floats, rows, floats.data() + first * floats_wide);
    if (ids_wide > 0) transpose(result.ids, rows, ids.data() + first * ids_wide);
  }
}

Transform::Emitted Transform::emit(Graph& graph) const {
  Emitter machine(graph, columns());
  auto result = Lowering(rep_->fitted, rep_->layout, machine).run();
  return {std::move(result.floats), std::move(result.ids)};
}

Bytes Transform::encode() const {
  ByteWriter out;
  graph::encode(out, rep_->fitted);
  return out.take();
}

Transform Transform::decode(BytesView bytes) { return Transform(std::make_shared<const Rep>(decode_fitted(bytes))); }

}  // namespace falaj::graph
