// SPDX-License-Identifier: Apache-2.0
#include "compute/train/parity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "compute/train/export.h"
#include "foundation/base/error.h"

namespace falaj::train {
namespace {

constexpr std::string_view kNeverSeen = "\x7f never seen";

// Raw rows with another value in each: where a number stood there is none, where a text stood none or one that nobody
// has. The first of two copies takes away, the second makes up; which column it is differs from row to row.
class MadeRows {
 public:
  MadeRows(const Rows::Raw& from, std::size_t copy) {
    batch_.rows = from.rows;
    const auto columns = from.columns.size();
    for (std::size_t c = 0; c < columns; ++c)
      std::visit(
          [&](const auto& values) {
            using T = std::remove_const_t<typename std::decay_t<decltype(values)>::element_type>;
            if constexpr (std::is_same_v<T, double> || std::is_same_v<T, float> ||
                          std::is_same_v<T, std::string_view>) {
              auto& all = std::get<std::vector<std::vector<T>>>(stores_);
              auto& out = all.emplace_back(values.begin(), values.end());
              for (std::size_t i = 0; i < out.size(); ++i) {
                if ((i + copy / 2) % columns != c) continue;
                if constexpr (std::is_same_v<T, std::string_view>)
                  out[i] = copy % 2 == 0 ? std::string_view() : kNeverSeen;
                else
                  out[i] = std::numeric_limits<T>::quiet_NaN();
              }
              batch_.columns.emplace_back(std::span<const T>(out));
            } else {
              batch_.columns.emplace_back(values);
            }
          },
          from.columns[c]);
  }
  const Rows::Raw& batch() const { return batch_; }

 private:
  // A vector that moves keeps what it holds where it is.
  std::tuple<std::vector<std::vector<double>>, std::vector<std::vector<float>>,
             std::vector<std::vector<std::string_view>>>
      stores_;
  Rows::Raw batch_;
};

}  // namespace

std::string Parity::sentence() const {
  return fmt::format("on {} held-out rows{} at most {:.2g} from the trained model", rows,
                     made > 0 ? fmt::format(", in {} of which a value was taken away or made up,", made) : "", largest);
}

void ParityCheck::add(Part part, std::span<const float> predictions) {
  const auto outputs = rows_.problem().outputs();
  std::size_t first = 0;
  rows_.each_batch(part, [&](const Rows::Raw& batch) {
    const auto exported = answer_of(session_, rows_.problem(), batch);
    compare(exported, predictions.subspan(first * outputs, exported.size()),
            part == Part::test ? "test row" : "row to stop by", first);
    first += batch.rows;
    return wants_more();
  });
}

void ParityCheck::add_made(const graph::Transform& transform, Model& model, sys::Files& scratch) {
  const auto& problem = rows_.problem();
  if (problem.image) return;  // nothing of an image can be missing
  const auto test = problem.rows[static_cast<std::size_t>(Part::test)];
  const auto wanted = rows_max_ - parity_.rows;
  const auto copies = std::min(2 * problem.columns.size(), (wanted + test - 1) / test);
  const loader::Layout layout{transform.float_names().size(), transform.ids().size()};
  Packed packed(scratch, layout);
  RowBlock block;
  std::vector<std::int64_t> ids;
  std::vector<float> exported;
  rows_.each_batch(Part::test, [&](const Rows::Raw& batch) {
    for (std::size_t copy = 0; copy < copies; ++copy) {
      const MadeRows made(batch, copy);
      block.resize(layout, batch.rows);
      ids.resize(batch.rows * layout.ids);
      transform.apply(made.batch(), block.numbers, ids);
      std::copy(ids.begin(), ids.end(), block.ids.begin());
      packed.append(block);
      const auto answer = answer_of(session_, problem, made.batch());
      exported.insert(exported.end(), answer.begin(), answer.end());
    }
    return packed.rows() < wanted;
  });
  compare(exported, model.predict(packed), "row with a value missing or made up,", 0);
  parity_.made += packed.rows();
}

Parity ParityCheck::result() const {
  auto out = parity_;
  out.mean = sum_ / static_cast<double>(std::max<std::size_t>(1, out.rows * rows_.problem().outputs()));
  return out;
}

void ParityCheck::compare(std::span<const float> exported, std::span<const float> trained, const char* rows,
                          std::size_t first) {
  CHECK(exported.size() == trained.size(), "both answer all rows");
  const auto outputs = rows_.problem().outputs();
  for (std::size_t i = 0; i < exported.size(); ++i) {
    const double wanted = trained[i], off = std::abs(exported[i] - wanted) / std::max(1.0, std::abs(wanted));
    if (!(off <= tolerance_))
      throw Error(Code::invalid,
                  fmt::format("the exported model says {} for {} {} and the trained one {}: further apart than "
                              "register.tolerance, {}; nothing was registered",
                              exported[i], rows, first + i / outputs, wanted, tolerance_));
    parity_.largest = std::max(parity_.largest, off);
    sum_ += off;
  }
  parity_.rows += exported.size() / outputs;
}

}  // namespace falaj::train
