// SPDX-License-Identifier: Apache-2.0
#pragma once

// Features that are computed when they are asked for, of fields of the request and of other features of their view: the
// same code for a prediction and for every row of a training set.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/expr/expression.h"
#include "lifecycle/lookup/view.h"

namespace falaj::lookup {

bool is_whole(Aggregate aggregate);  // whether its answers are whole numbers

struct ComputedText {
  std::string name, is;
};

// Immutable.
class Computed {
 public:
  Computed() = default;
  // Throws invalid, naming the feature.
  Computed(std::vector<Column> request, const View& view, const std::vector<ComputedText>& features);

  std::size_t size() const { return features_.size(); }
  const std::string& name(std::size_t feature) const { return features_[feature].name; }
  Type type(std::size_t feature) const;
  const std::vector<Column>& request() const { return request_; }
  // Everything an expression can name: fields of the request, columns of the newest row, windows, in this order.
  const std::vector<Column>& inputs() const { return inputs_; }
  const std::vector<std::size_t>& uses(std::size_t feature) const { return features_[feature].uses; }

  // One value for each input; a text is borrowed.
  using Inputs = std::vector<expr::Value>;
  void load(Inputs& into, std::span<const Value> request, const Found& found) const;
  static expr::Value input(const Value& value, Type type);
  Value compute(std::size_t feature, const Inputs& inputs) const;

 private:
  struct Feature {
    std::string name;
    expr::Expression expression;
    std::vector<std::size_t> uses;
  };
  std::vector<Column> request_, inputs_;
  std::size_t rows_ = 0;  // of the inputs, columns of the newest row
  std::vector<Feature> features_;
};

}  // namespace falaj::lookup
