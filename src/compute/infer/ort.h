// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to infer: ONNX Runtime's C interface, held so that errors and memory cannot be forgotten.

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <onnxruntime_c_api.h>

#include "compute/graph/graph.h"
#include "compute/infer/session.h"

namespace falaj::infer {

// The oldest ONNX Runtime that will do is the one of this number of its C interface: 1.21. It never changes what it
// has.
inline constexpr std::uint32_t kApiVersion = 21;
static_assert(ORT_API_VERSION >= kApiVersion);

ONNXTensorElementDataType ort_type(graph::Element element);
graph::Element element_of(ONNXTensorElementDataType type);  // throws invalid

// Owns what ONNX Runtime made and gives it back the way it wants.
template <class T>
class Owned {
 public:
  using Release = void(ORT_API_CALL*)(T*);
  explicit Owned(Release release) : release_(release) {}
  Owned(Owned&& other) noexcept : release_(other.release_), it_(std::exchange(other.it_, nullptr)) {}
  Owned& operator=(Owned&&) = delete;
  ~Owned() { reset(); }
  T** put() { return &it_; }
  T* get() const { return it_; }
  void reset() {
    if (it_) release_(std::exchange(it_, nullptr));
  }

 private:
  Release release_;
  T* it_ = nullptr;
};

class Api {
 public:
  explicit Api(const OrtApi* api) : api_(api) {}
  const OrtApi* operator->() const { return api_; }
  const OrtApi* get() const { return api_; }

  // Throws what the status says, or returns when it says nothing.
  void must(OrtStatus* status, std::string_view doing) const {
    if (status) fail(status, doing);
  }

 private:
  [[noreturn]] void fail(OrtStatus* status, std::string_view doing) const;
  const OrtApi* api_;
};

struct Runtime::Rep {
  Api api;
  std::string version;
  std::vector<Provider> providers;
  Owned<OrtEnv> env;
  Owned<OrtMemoryInfo> memory;        // of the processor
  OrtAllocator* allocator = nullptr;  // the library's own, never released

  Rep(const OrtApi* given, std::string called);
};

struct Ports {
  std::vector<graph::Port> inputs, outputs;
};
// Throws invalid when one is no tensor.
Ports ports_of(const Runtime::Rep& runtime, const OrtSession* session);

// The texts of a tensor of them, one after the other in `all`, and where each begins.
std::vector<std::size_t> read_texts(const Api& api, const OrtValue* value, std::size_t count, std::string& all);

}  // namespace falaj::infer
