// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "compute/loader/prepare.h"
#include "compute/loader/readable.h"
#include "foundation/base/error.h"

namespace falaj::loader {
namespace {

using graph::Category;
using graph::Encode;
using graph::Feature;
using graph::Fill;
using graph::For;
using graph::Kind;
using graph::Number;

// A network takes a category with few values as it is, and learns a place for each of many.
constexpr std::size_t kOneHotUpTo = 12;

class FileSource final : public table::Source {
 public:
  explicit FileSource(std::unique_ptr<sys::ReadFile> file) : file_(std::move(file)) {}
  std::uint64_t size() const override { return file_->size(); }
  void read(std::uint64_t offset, std::span<std::byte> out) const override {
    if (file_->read(offset, out) != out.size()) throw Error(Code::corrupt, "the rows end too early");
  }

 private:
  const std::unique_ptr<sys::ReadFile> file_;
};

Number number_of(const std::string& column, const recipe::Column& how, For what) {
  Number out;
  out.column = column;
  const bool network = what == For::network;
  out.fill = how.impute == "mean"     ? Fill::mean
             : how.impute == "median" ? Fill::median
             : how.impute == "zero"   ? Fill::constant
             : network                ? Fill::median
                                      : Fill::keep;
  out.indicator = network && how.impute.empty();
  out.low = how.low;
  out.high = how.high;
  out.log = how.log.value_or(false);
  out.standardise = how.scale == "standard" || (how.scale.empty() && network);
  return out;
}

Category category_of(const std::string& column, const recipe::Column& how, For what) {
  Category out;
  out.column = column;
  const auto size = static_cast<std::size_t>(how.size);
  if (how.encode == "onehot") {
    out.encode = Encode::one_hot;
  } else {
    out.encode = what == For::network ? Encode::embedding : Encode::code;
  }
  if (how.encode == "hash") {
    out.hash_buckets = size > 0 ? size : 1000;
    out.categories_max = graph::kCategoriesMax;
  } else if (size > 0) {
    out.categories_max = std::min(size, graph::kCategoriesMax);
  }
  out.count_min = 2;  // what was seen once teaches what is not seen
  return out;
}

bool is_category(Kind kind, const recipe::Column& how) {
  if (how.as == "category" || !how.encode.empty()) return true;
  return how.as == "auto" && kind == Kind::text;
}

void add_column(const graph::Column& column, const recipe::Column& how, For what, std::vector<Feature>& out) {
  if (is_category(column.kind, how)) {
    out.push_back({column.name, category_of(column.name, how, what)});
  } else if (!how.buckets.empty()) {
    auto category = category_of(column.name, how, what);
    category.encode = what == For::network && how.buckets.size() < kOneHotUpTo ? Encode::one_hot : category.encode;
    category.boundaries = how.buckets;
    out.push_back({column.name, category});
  } else if (column.kind == Kind::text) {
    throw Error(Code::invalid, fmt::format("columns.{}: is text, and no text is a {}", column.name, how.as));
  } else {
    out.push_back({column.name, number_of(column.name, how, what)});
  }
}

}  // namespace

void open_rows(table::Workspace& room, const std::string& directory) {
  auto files = sys::read_files(directory);
  std::string names;
  for (const auto& info : files->list("")) {
    if (info.directory || !info.name.ends_with(".parquet")) continue;
    room.put(info.name, std::make_shared<FileSource>(files->open(info.name)));
    names += (names.empty() ? "" : ", ") + table::literal(info.name);
  }
  if (names.empty()) throw Error(Code::not_found, fmt::format("there is no Parquet file in '{}'", directory));
  readable([&] {
    room.run(fmt::format(
        "CREATE VIEW rows AS SELECT *, filename AS \"%file\" FROM read_parquet([{}], file_row_number = true)", names));
  });
}

std::vector<Feature> features_of(const recipe::Training& training, const Problem& problem, For what) {
  std::vector<Feature> out;
  for (const auto& column : problem.columns) {
    const auto how = training.columns.find(column.name);
    const bool as_its_kind_suggests =
        how == training.columns.end() && column.kind != Kind::text;  // texts: rare ones count as unseen
    if (as_its_kind_suggests || (how != training.columns.end() && how->second.as == "time")) {
      for (auto& feature : graph::automatic(std::span(&column, 1), what)) out.push_back(std::move(feature));
    } else {
      add_column(column, how == training.columns.end() ? recipe::Column{} : how->second, what, out);
    }
  }
  for (const auto& cross : training.crosses) {
    for (const auto& side : cross.of) {
      const auto found = std::find_if(out.begin(), out.end(), [&](const auto& f) { return f.name == side; });
      if (found == out.end() || !std::holds_alternative<Category>(found->how))
        throw Error(Code::invalid, fmt::format("crosses: '{}' is no category among the features", side));
    }
    out.push_back({fmt::format("{} x {}", cross.of[0], cross.of[1]),
                   graph::Cross{cross.of[0], cross.of[1], static_cast<std::size_t>(cross.size),
                                what == For::network ? Encode::embedding : Encode::code}});
  }
  return out;
}

}  // namespace falaj::loader
