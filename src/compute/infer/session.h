// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compute/graph/graph.h"
#include "compute/graph/tensor.h"
#include "foundation/base/bytes.h"

namespace falaj::infer {

// What can run a model. Which there are is decided by the library that was found.
enum class Provider { cpu, cuda, tensorrt, openvino };
inline constexpr Provider kProviders[] = {Provider::cpu, Provider::cuda, Provider::tensorrt, Provider::openvino};
std::string_view name(Provider provider);

// ONNX Runtime, opened at run time, so that any build of it from 1.21 on (one for a GPU too) can stand in. Copying is
// cheap; the library stays in the process until its end.
class Runtime {
 public:
  struct Rep;  // ort.h

  // Throws not_found when there is no such library and unavailable when it is none, or one that is too old.
  static Runtime load(const std::string& path);
  // What comes with the program: ../lib/libonnxruntime.so.1 beside it.
  static std::string path_beside_program();

  const std::string& version() const;              // "1.27.0"
  const std::vector<Provider>& providers() const;  // what the library was built with; it may still lack a device
  const std::shared_ptr<Rep>& rep() const { return rep_; }

 private:
  explicit Runtime(std::shared_ptr<Rep> rep) : rep_(std::move(rep)) {}
  std::shared_ptr<Rep> rep_;
};

struct NamedTensor {
  std::string name;
  graph::Tensor tensor;
};

// One model, ready to run. run() may be called from several threads at once, but they contend for the arena: a session
// per thread is faster.
class Session {
 public:
  struct Options {
    int threads = 1;  // inside one call; 1 is the fastest for small models
    bool optimise = true;
    bool arena = true;
  };
  // Throws invalid when ONNX Runtime refuses the model, or an input or output of it is no tensor. Does not check() it:
  // foreign bytes must have been.
  static Session open(const Runtime& runtime, BytesView model, const Options& options);
  static Session open(const Runtime& runtime, BytesView model) { return open(runtime, model, Options{}); }
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  const std::vector<graph::Port>& inputs() const;
  const std::vector<graph::Port>& outputs() const;

  // Inputs by name in any order; the outputs asked for, or all of them when none is named. Throws invalid when an input
  // is missing, unknown or of another type or shape, and when the model fails on them.
  std::vector<NamedTensor> run(std::span<const NamedTensor> inputs, std::span<const std::string> outputs = {}) const;

 private:
  struct Rep;
  explicit Session(std::unique_ptr<Rep> rep);
  std::unique_ptr<Rep> rep_;
};

}  // namespace falaj::infer
