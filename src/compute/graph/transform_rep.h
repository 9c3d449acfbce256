// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to graph: what a Transform holds.

#include <string>
#include <vector>

#include "compute/graph/evaluate.h"
#include "compute/graph/fitted.h"
#include "compute/graph/transform.h"

namespace falaj::graph {

struct Transform::Rep {
  explicit Rep(Fitted fitted);

  const Fitted fitted;
  const Layout layout;
  const std::vector<Table> tables;  // views of `fitted`
  std::vector<std::string> float_names;
  std::vector<std::size_t> float_categories;
  std::vector<Ids> ids;
};

}  // namespace falaj::graph
