// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compute/graph/check.h"
#include "compute/graph/graph.h"
#include "compute/infer/session.h"
#include "compute/infer/view.h"
#include "foundation/base/bytes.h"

namespace falaj::infer {

struct LoadOptions {
  // Where to run it, the most wanted first; none is the processor. One that the library does not offer, or that cannot
  // start on this machine, is an error (unavailable), unless `fall_back`: then the next is taken, the processor last.
  std::vector<Provider> providers;
  bool fall_back = false;
  int device = 0;            // of providers that have several
  int threads = 1;           // inside one call; 1 is the fastest for small models
  bool native_trees = true;  // ensembles of trees by our own engine where it knows all of them
  graph::Limits limits = serving_limits();

  // Operators of ONNX Runtime's own too, which its tools for quantising and optimising leave in models.
  static graph::Limits serving_limits();
};

// What a call made. The views of it are there as long as this is.
class Outputs {
 public:
  Outputs();
  ~Outputs();
  Outputs(Outputs&&) noexcept;
  Outputs& operator=(Outputs&&) noexcept;

  std::span<const TensorView> tensors() const { return tensors_; }  // in the order they were asked for

 private:
  friend class Model;
  struct Held;
  std::vector<TensorView> tensors_;
  std::unique_ptr<Held> held_;
};

// One model, ready to run, from several threads at once. Immutable; its memory goes back to the machine with the last
// reference to it.
class Model {
 public:
  // Reads bytes of anybody: invalid, naming what is wrong, when they are no model that can be served. ONNX Runtime is
  // no sandbox, so foreign bytes are loaded only in a process that may do nothing else.
  static std::shared_ptr<const Model> load(const Runtime& runtime, BytesView bytes, const LoadOptions& options = {});
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const std::vector<graph::Port>& inputs() const { return inputs_; }
  const std::vector<graph::Port>& outputs() const { return outputs_; }
  // Whether the first size of every input and output is the number of rows, so that requests may be put together.
  bool rows_first() const { return rows_first_; }
  std::string_view engine() const;     // "onnxruntime", "trees", or "onnxruntime+trees" (one inside the other)
  Provider provider() const;           // where it runs after all
  std::size_t resident_bytes() const;  // about what it takes while nobody calls it
  const graph::Summary& summary() const { return summary_; }

  // Throws invalid unless these are inputs of this model, all of them in the order of inputs(), each holding what its
  // shape says, and all of as many rows. Returns how many rows: 1 unless rows_first().
  std::uint32_t check(std::span<const TensorView> inputs) const;

  // Runs it on what check() takes. `wanted`: which of outputs(), none is all of them in their order. Throws invalid
  // when the model fails on these inputs. The inputs are read where they lie.
  Outputs run(std::span<const TensorView> inputs, std::span<const std::uint16_t> wanted = {}) const;

 private:
  struct Rep;
  explicit Model(std::unique_ptr<Rep> rep);

  std::vector<graph::Port> inputs_, outputs_;
  bool rows_first_ = false;
  graph::Summary summary_;
  std::unique_ptr<Rep> rep_;
};

}  // namespace falaj::infer
