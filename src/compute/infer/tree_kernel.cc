// SPDX-License-Identifier: Apache-2.0
#include "compute/infer/tree_kernel.h"

#include <array>
#include <exception>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::infer {

// What ONNX Runtime calls. Lives as long as the session; has no state of its own per call.
class TreeKernel : public OrtCustomOp {
 public:
  TreeKernel(const Api& api, std::string name, TreeOperator what)
      : OrtCustomOp{}, api_(api), name_(std::move(name)), operator_(std::move(what)) {
    version = kApiVersion;
    GetName = [](const OrtCustomOp* op) { return self(op).name_.c_str(); };
    GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
    GetInputType = [](const OrtCustomOp*, std::size_t) { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; };
    GetInputTypeCount = [](const OrtCustomOp*) -> std::size_t { return 1; };
    GetOutputType = [](const OrtCustomOp* op, std::size_t at) { return self(op).output_type(at); };
    GetOutputTypeCount = [](const OrtCustomOp* op) -> std::size_t { return self(op).operator_.classifies() ? 2 : 1; };
    GetInputCharacteristic = [](const OrtCustomOp*, std::size_t) { return INPUT_OUTPUT_REQUIRED; };
    GetOutputCharacteristic = [](const OrtCustomOp*, std::size_t) { return INPUT_OUTPUT_REQUIRED; };
    GetInputMemoryType = [](const OrtCustomOp*, std::size_t) { return OrtMemTypeDefault; };
    GetVariadicInputMinArity = GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 0; };
    GetVariadicInputHomogeneity = GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 0; };
    CreateKernelV2 = [](const OrtCustomOp* op, const OrtApi*, const OrtKernelInfo*, void** kernel) -> OrtStatusPtr {
      *kernel = const_cast<OrtCustomOp*>(op);
      return nullptr;
    };
    KernelComputeV2 = [](void* kernel, OrtKernelContext* context) {
      return self(static_cast<const OrtCustomOp*>(kernel)).compute(context);
    };
    KernelDestroy = [](void*) {};
    GetStartVersion = [](const OrtCustomOp*) { return 1; };
    GetEndVersion = [](const OrtCustomOp*) { return std::numeric_limits<int>::max(); };
  }

  const std::string& name() const { return name_; }
  std::size_t resident_bytes() const { return operator_.resident_bytes(); }

 private:
  static const TreeKernel& self(const OrtCustomOp* op) { return static_cast<const TreeKernel&>(*op); }

  ONNXTensorElementDataType output_type(std::size_t at) const {
    if (!operator_.classifies() || at == 1) return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
    return operator_.text_labels() ? ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING : ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
  }

  OrtStatus* compute(OrtKernelContext* context) const noexcept {
    try {
      run(context);
      return nullptr;
    } catch (const std::exception& error) {
      return api_->CreateStatus(ORT_INVALID_ARGUMENT, error.what());
    }
  }

  void must(OrtStatus* status) const { api_.must(status, "running trees"); }

  void run(OrtKernelContext* context) const {
    const OrtValue* input = nullptr;
    must(api_->KernelContext_GetInput(context, 0, &input));
    Owned<OrtTensorTypeAndShapeInfo> info(api_->ReleaseTensorTypeAndShapeInfo);
    must(api_->GetTensorTypeAndShape(input, info.put()));
    std::size_t rank = 0;
    must(api_->GetDimensionsCount(info.get(), &rank));
    std::array<std::int64_t, 2> sizes{};
    if (rank < 1 || rank > 2) throw Error(Code::invalid, fmt::format("an ensemble of trees is given {} sizes", rank));
    must(api_->GetDimensions(info.get(), sizes.data(), rank));
    if (rank == 1) sizes = {1, sizes[0]};
    const auto rows = static_cast<std::size_t>(sizes[0]), width = static_cast<std::size_t>(sizes[1]);
    if (width < operator_.features())
      throw Error(Code::invalid,
                  fmt::format("an ensemble of trees that wants {} columns is given {}", operator_.features(), width));
    void* data = nullptr;
    must(api_->GetTensorMutableData(const_cast<OrtValue*>(input), &data));
    const std::array<std::int64_t, 2> shape = {sizes[0], static_cast<std::int64_t>(operator_.scores())};
    void* scores = nullptr;
    must(api_->GetTensorMutableData(output(context, operator_.classifies() ? 1 : 0, shape.data(), 2), &scores));
    std::vector<std::uint32_t> classes(operator_.classifies() ? rows : 0);
    operator_.run(static_cast<const float*>(data), rows, width, static_cast<float*>(scores),
                  operator_.classifies() ? classes.data() : nullptr);
    if (operator_.classifies()) write_labels(output(context, 0, sizes.data(), 1), classes);
  }

  OrtValue* output(OrtKernelContext* context, std::size_t at, const std::int64_t* sizes, std::size_t rank) const {
    OrtValue* value = nullptr;
    must(api_->KernelContext_GetOutput(context, at, sizes, rank, &value));
    if (!value) throw Error(Code::internal, "an output of trees is not there");
    return value;
  }

  void write_labels(OrtValue* value, const std::vector<std::uint32_t>& classes) const {
    if (!operator_.text_labels()) {
      void* labels = nullptr;
      must(api_->GetTensorMutableData(value, &labels));
      for (std::size_t row = 0; row < classes.size(); ++row)
        static_cast<std::int64_t*>(labels)[row] = operator_.labels()[classes[row]];
      return;
    }
    for (std::size_t row = 0; row < classes.size(); ++row) {
      const auto& text = (*operator_.text_labels())[classes[row]];
      char* buffer = nullptr;
      must(api_->GetResizedStringTensorElementBuffer(value, row, text.size(), &buffer));
      std::copy(text.begin(), text.end(), buffer);
    }
  }

  const Api& api_;
  std::string name_;
  TreeOperator operator_;
};

TreeKernels::TreeKernels(const Runtime::Rep& runtime)
    : runtime_(runtime), domain_(runtime.api->ReleaseCustomOpDomain) {}
TreeKernels::~TreeKernels() = default;

bool TreeKernels::take_over(graph::Graph& graph) {
  for (auto& node : graph.nodes) {
    auto found = TreeOperator::of(node);
    if (!found) continue;
    kernels_.push_back(
        std::make_unique<TreeKernel>(runtime_.api, fmt::format("Trees{}", kernels_.size()), std::move(*found)));
    node.op = kernels_.back()->name();
    node.domain = kDomain;
    node.attributes.clear();
  }
  if (!kernels_.empty()) graph.opsets[std::string(kDomain)] = 1;
  return !kernels_.empty();
}

void TreeKernels::add_to(OrtSessionOptions* options) {
  if (kernels_.empty()) return;
  const Api& api = runtime_.api;
  if (!domain_.get()) {
    api.must(api->CreateCustomOpDomain(std::string(kDomain).c_str(), domain_.put()), "opening a model of trees");
    for (const auto& kernel : kernels_)
      api.must(api->CustomOpDomain_Add(domain_.get(), kernel.get()), "opening a model of trees");
  }
  api.must(api->AddCustomOpDomain(options, domain_.get()), "opening a model of trees");
}

void TreeKernels::clear() {
  domain_.reset();
  kernels_.clear();
}

std::size_t TreeKernels::resident_bytes() const {
  std::size_t out = 0;
  for (const auto& kernel : kernels_) out += kernel->resident_bytes();
  return out;
}

}  // namespace falaj::infer
