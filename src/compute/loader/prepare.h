// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compute/graph/transform.h"
#include "compute/loader/images.h"
#include "compute/loader/packed.h"
#include "compute/recipe/recipe.h"
#include "foundation/sys/files.h"
#include "storage/table/workspace.h"

namespace falaj::loader {

// What a model is asked to do.
enum class Objective { binary, multiclass, regression, ranking };
std::string_view name_of(Objective objective);

// What the recipe says of the data once the data were looked at. Part of every checkpoint: a run that goes on must not
// depend on being told the same twice.
struct Problem {
  Objective objective = Objective::binary;
  std::vector<std::string> classes;  // in the order of their labels; of binary and multiclass
  std::vector<graph::Column> columns;
  std::optional<Image> image;  // then there are no columns
  std::string split;           // in words, for people: "rows from 2001-04-01T00:00:00Z on are the test"
  std::size_t rows[3] = {0, 0, 0};

  std::size_t outputs() const { return objective == Objective::multiclass ? classes.size() : 1; }
};

enum class Part { train, valid, test };

// The rows that a training is given, as Parquet, and what they are for. One thread at a time.
//   Rows rows(room, training);      looks at them: what is predicted, by which columns, which rows are held out
//   auto transform = rows.fit(...); one pass over the training rows
//   rows.pack(transform, ...);      one pass over all: ready for a model
// Everything wrong with the data is said by the constructor, invalid, with what to do; other errors are the room's.
class Rows {
 public:
  // Called now and then while rows are read, by whatever reads them; what it throws is thrown on.
  using Look = std::function<void()>;
  // Requires: `room` has a view called "rows" that keeps its order and whose rows have their place (open_rows).
  Rows(table::Workspace& room, const recipe::Training& training, Look look = {});

  const Problem& problem() const { return problem_; }

  using Progress = std::function<void(double done)>;
  graph::Transform fit(const std::vector<graph::Feature>& features, const Progress& progress);

  struct Parts {
    std::unique_ptr<Packed> train, valid, test;
    const Packed& part(Part which) const {
      return which == Part::train ? *train : which == Part::valid ? *valid : *test;
    }
  };
  Parts pack(const graph::Transform& transform, sys::Files& scratch, const Progress& progress);

  // The raw rows of a part, in the order of its Packed, some thousand at a time; for checks of an exported model.
  struct Raw : graph::Batch {
    std::span<const std::uint8_t> pixels;  // of all images, one after another
  };
  using EachBatch = std::function<bool(const Raw&)>;
  void each_batch(Part part, const EachBatch& each) { each_batch(part, 0, problem_.columns.size(), each); }
  // With `count` of the columns only, from the `first` on, and no others read: what is made of them may be large.
  void each_batch(Part part, std::size_t first, std::size_t count, const EachBatch& each);
  // What stands in a column of the part's rows, as text.
  std::vector<std::string> values(Part part, const std::string& column);

 private:
  struct Reading;
  void query(const std::string& sql, const std::function<bool(const table::Chunk&)>& each) const;
  std::int64_t count(const std::string& sql) const;
  std::string in_order() const;
  void look_at_label(const recipe::Training& training, const table::Schema& schema);
  void balance(std::int64_t rows);
  void choose_columns(const recipe::Training& training, const table::Schema& schema);
  void choose_image(const recipe::Training& training, const table::Schema& schema);
  void split(const recipe::Training& training, const table::Schema& schema);
  void split_by_part(const recipe::Training& training, const table::Schema& schema);
  using Columns = std::span<const graph::Column>;
  std::string select(Columns columns, std::string_view more) const;
  std::size_t selected() const { return problem_.columns.size() + (problem_.image ? 1 : 0); }  // columns before `more`

  table::Workspace& room_;
  const Look look_;
  Problem problem_;
  std::string label_, weight_, group_;  // SQL
  std::string part_;                    // SQL: 0, 1 or 2
};

// Makes the Parquet files below a directory the room's view "rows". Throws not_found when there is none.
void open_rows(table::Workspace& room, const std::string& directory);

// How each column reaches a model of this kind: as the recipe says, else as its kind suggests.
std::vector<graph::Feature> features_of(const recipe::Training& training, const Problem& problem, graph::For what);

}  // namespace falaj::loader
