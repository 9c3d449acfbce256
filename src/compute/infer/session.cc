// SPDX-License-Identifier: Apache-2.0
#include "compute/infer/session.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <onnxruntime_c_api.h>

#include "foundation/base/error.h"
#include "foundation/base/mutex.h"

namespace falaj::infer {

using graph::Element;
using graph::Port;
using graph::Tensor;

namespace {

// The oldest ONNX Runtime that will do is the one of this number of its C interface: 1.21. It never changes what it
// has.
constexpr std::uint32_t kApiVersion = 21;
static_assert(ORT_API_VERSION >= kApiVersion);

constexpr std::array<ONNXTensorElementDataType, std::size(graph::kElements)> kOrtTypes = {
    ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,    ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,   ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,   ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,     ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING};

ONNXTensorElementDataType ort_type(Element element) { return kOrtTypes[static_cast<std::size_t>(element)]; }

Element element_of(ONNXTensorElementDataType type) {
  const auto* at = std::find(kOrtTypes.begin(), kOrtTypes.end(), type);
  if (at == kOrtTypes.end())
    throw Error(Code::invalid, fmt::format("a tensor has elements of type {}, which is not known here", int{type}));
  return graph::kElements[at - kOrtTypes.begin()];
}

// Owns what ONNX Runtime made and gives it back the way it wants.
template <class T>
class Owned {
 public:
  using Release = void(ORT_API_CALL*)(T*);
  explicit Owned(Release release) : release_(release) {}
  Owned(Owned&& other) noexcept : release_(other.release_), it_(std::exchange(other.it_, nullptr)) {}
  Owned& operator=(Owned&&) = delete;
  ~Owned() {
    if (it_) release_(it_);
  }
  T** put() { return &it_; }
  T* get() const { return it_; }

 private:
  Release release_;
  T* it_ = nullptr;
};

class Api {
 public:
  explicit Api(const OrtApi* api) : api_(api) {}
  const OrtApi* operator->() const { return api_; }

  // Throws what the status says, or returns when it says nothing.
  void must(OrtStatus* status, std::string_view doing) const {
    if (!status) return;
    const OrtErrorCode code = api_->GetErrorCode(status);
    const std::string message = std::string(std::string_view(api_->GetErrorMessage(status)).substr(0, 500));
    api_->ReleaseStatus(status);
    throw Error(code == ORT_EP_FAIL ? Code::unavailable : Code::invalid, fmt::format("{}: {}", doing, message));
  }

 private:
  const OrtApi* api_;
};

}  // namespace

struct Runtime::Rep {
  Api api;
  std::string version;
  Owned<OrtEnv> env;

  Rep(const OrtApi* given, std::string called) : api(given), version(std::move(called)), env(given->ReleaseEnv) {
    api.must(api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "falaj", env.put()), "starting ONNX Runtime");
    api.must(api->DisableTelemetryEvents(env.get()), "silencing ONNX Runtime");
  }
};

Runtime Runtime::load(const std::string& path) {
  // Before the library is there: some builds send what they learn home unless told not to.
  ::setenv("ORT_DISABLE_TELEMETRY", "1", 1);
  std::error_code none;
  if (!std::filesystem::exists(path, none))
    throw Error(Code::not_found,
                "loading ONNX Runtime: there is no such library; run ./setup, or install it in ../lib");
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Error(Code::unavailable, "loading ONNX Runtime: the file is not a library of this machine");
  const auto base_of = reinterpret_cast<const OrtApiBase*(ORT_API_CALL*)()>(::dlsym(library, "OrtGetApiBase"));
  if (!base_of) throw Error(Code::unavailable, "loading ONNX Runtime: the library is another one");
  const OrtApiBase* base = base_of();
  const OrtApi* api = base ? base->GetApi(kApiVersion) : nullptr;
  if (!api)
    throw Error(Code::unavailable, fmt::format("loading ONNX Runtime: 1.{} or newer is needed, this is {}", kApiVersion,
                                               base ? base->GetVersionString() : "unknown"));
  return Runtime(std::make_shared<Rep>(api, base->GetVersionString()));
}

std::string Runtime::path_beside_program() {
  std::error_code none;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", none);
  return (self.parent_path().parent_path() / "lib" / "libonnxruntime.so.1").string();
}

const std::string& Runtime::version() const { return rep_->version; }

struct Session::Rep {
  std::shared_ptr<Runtime::Rep> runtime;  // outlives the session
  Api api;
  Owned<OrtSession> session;
  Owned<OrtMemoryInfo> memory;
  OrtAllocator* allocator = nullptr;  // the library's own, never released
  std::vector<Port> inputs, outputs;

  explicit Rep(std::shared_ptr<Runtime::Rep> given)
      : runtime(std::move(given)), api(runtime->api), session(api->ReleaseSession), memory(api->ReleaseMemoryInfo) {
    api.must(api->GetAllocatorWithDefaultOptions(&allocator), "opening a model");
    api.must(api->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, memory.put()), "opening a model");
  }

  Port port(std::string called, const OrtTypeInfo* type) const {
    const OrtTensorTypeAndShapeInfo* info = nullptr;
    api.must(api->CastTypeInfoToTensorInfo(type, &info), "reading a model's inputs");
    if (!info) throw Error(Code::invalid, fmt::format("'{}' of the model is not a tensor", called));
    ONNXTensorElementDataType element{};
    std::size_t rank = 0;
    api.must(api->GetTensorElementType(info, &element), "reading a model's inputs");
    api.must(api->GetDimensionsCount(info, &rank), "reading a model's inputs");
    std::vector<std::int64_t> sizes(rank);
    std::vector<const char*> symbols(rank);
    api.must(api->GetDimensions(info, sizes.data(), rank), "reading a model's inputs");
    api.must(api->GetSymbolicDimensions(info, symbols.data(), rank), "reading a model's inputs");
    Port out{std::move(called), element_of(element), {}};
    for (std::size_t at = 0; at < rank; ++at) {
      if (sizes[at] >= 0)
        out.shape.emplace_back(sizes[at]);
      else
        out.shape.emplace_back(std::string(symbols[at] ? symbols[at] : ""));
    }
    return out;
  }

  using NameOf = decltype(OrtApi::SessionGetInputName);
  using TypeOf = decltype(OrtApi::SessionGetInputTypeInfo);
  std::vector<Port> ports(std::size_t count, NameOf name_of, TypeOf type_of) const {
    std::vector<Port> out;
    for (std::size_t at = 0; at < count; ++at) {
      char* text = nullptr;
      api.must(name_of(session.get(), at, allocator, &text), "reading a model's inputs");
      std::string called(text);
      api.must(api->AllocatorFree(allocator, text), "reading a model's inputs");
      Owned<OrtTypeInfo> type(api->ReleaseTypeInfo);
      api.must(type_of(session.get(), at, type.put()), "reading a model's inputs");
      out.push_back(port(std::move(called), type.get()));
    }
    return out;
  }

  // A view of the tensor's own memory, except for texts, which ONNX Runtime keeps itself.
  Owned<OrtValue> value_of(const NamedTensor& input) const {
    const Tensor& tensor = input.tensor;
    const auto doing = [&] { return fmt::format("giving input '{}' to a model", input.name); };
    Owned<OrtValue> out(api->ReleaseValue);
    if (tensor.element != Element::text) {
      auto* data = const_cast<std::byte*>(tensor.bytes.data());  // inputs are only read
      api.must(api->CreateTensorWithDataAsOrtValue(memory.get(), data, tensor.bytes.size(), tensor.sizes.data(),
                                                   tensor.sizes.size(), ort_type(tensor.element), out.put()),
               doing());
      return out;
    }
    api.must(api->CreateTensorAsOrtValue(allocator, tensor.sizes.data(), tensor.sizes.size(),
                                         ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING, out.put()),
             doing());
    for (std::size_t at = 0; at < tensor.texts.size(); ++at) {
      char* buffer = nullptr;
      const auto& text = tensor.texts[at];  // may hold zero bytes, which FillStringTensor would end at
      api.must(api->GetResizedStringTensorElementBuffer(out.get(), at, text.size(), &buffer), doing());
      std::copy(text.begin(), text.end(), buffer);
    }
    return out;
  }

  Tensor tensor_of(const OrtValue* value, const std::string& called) const {
    const auto doing = [&] { return fmt::format("reading output '{}' of a model", called); };
    Owned<OrtTensorTypeAndShapeInfo> info(api->ReleaseTensorTypeAndShapeInfo);
    api.must(api->GetTensorTypeAndShape(value, info.put()), doing());
    ONNXTensorElementDataType element{};
    std::size_t rank = 0;
    api.must(api->GetTensorElementType(info.get(), &element), doing());
    api.must(api->GetDimensionsCount(info.get(), &rank), doing());
    Tensor out{element_of(element), graph::Sizes(rank), {}, {}};
    api.must(api->GetDimensions(info.get(), out.sizes.data(), rank), doing());
    if (out.element == Element::text) {
      texts_of(value, out, doing());
      return out;
    }
    const std::byte* data = nullptr;
    api.must(api->GetTensorMutableData(const_cast<OrtValue*>(value),
                                       reinterpret_cast<void**>(const_cast<std::byte**>(&data))),
             doing());
    out.bytes.assign(data, data + out.count() * bytes_of(out.element));
    return out;
  }

  void texts_of(const OrtValue* value, Tensor& out, const std::string& doing) const {
    std::size_t bytes = 0;
    api.must(api->GetStringTensorDataLength(value, &bytes), doing);
    std::string all(bytes, '\0');
    std::vector<std::size_t> starts(out.count());
    api.must(api->GetStringTensorContent(value, all.data(), bytes, starts.data(), starts.size()), doing);
    for (std::size_t at = 0; at < starts.size(); ++at) {
      const std::size_t end = at + 1 < starts.size() ? starts[at + 1] : bytes;
      out.texts.push_back(all.substr(starts[at], end - starts[at]));
    }
  }

  // ONNX Runtime checks types and shapes itself; this says which input, and that all of a tensor is there.
  void check_inputs(std::span<const NamedTensor> given) const {
    for (const auto& input : given) {
      const auto same = [&](const auto& port) { return port.name == input.name; };
      if (std::none_of(inputs.begin(), inputs.end(), same))
        throw Error(Code::invalid, fmt::format("the model has no input '{}'", input.name));
      if (std::count_if(given.begin(), given.end(), same) > 1)
        throw Error(Code::invalid, fmt::format("input '{}' is given twice", input.name));
      const Tensor& tensor = input.tensor;
      const bool text = tensor.element == Element::text;
      const std::size_t have = text ? tensor.texts.size() : tensor.bytes.size();
      if (have != tensor.count() * (text ? 1 : bytes_of(tensor.element)))
        throw Error(Code::invalid, fmt::format("input '{}' does not hold what its sizes {} say", input.name,
                                               graph::text_of(tensor.sizes)));
    }
    for (const auto& port : inputs) {
      if (std::none_of(given.begin(), given.end(), [&](const auto& input) { return input.name == port.name; }))
        throw Error(Code::invalid, fmt::format("input '{}' of the model is missing", port.name));
    }
  }
};

Session::Session(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

Session Session::open(const Runtime& runtime, BytesView model, const Options& options) {
  auto rep = std::make_unique<Rep>(runtime.rep_);
  const Api& api = rep->api;
  Owned<OrtSessionOptions> with(api->ReleaseSessionOptions);
  api.must(api->CreateSessionOptions(with.put()), "opening a model");
  api.must(api->SetIntraOpNumThreads(with.get(), options.threads), "opening a model");
  api.must(api->SetInterOpNumThreads(with.get(), 1), "opening a model");
  api.must(api->SetSessionGraphOptimizationLevel(with.get(), options.optimise ? ORT_ENABLE_ALL : ORT_DISABLE_ALL),
           "opening a model");
  if (!options.arena) api.must(api->DisableCpuMemArena(with.get()), "opening a model");
  api.must(
      api->CreateSessionFromArray(runtime.rep_->env.get(), model.data(), model.size(), with.get(), rep->session.put()),
      "opening a model");
  std::size_t inputs = 0, outputs = 0;
  api.must(api->SessionGetInputCount(rep->session.get(), &inputs), "opening a model");
  api.must(api->SessionGetOutputCount(rep->session.get(), &outputs), "opening a model");
  rep->inputs = rep->ports(inputs, api->SessionGetInputName, api->SessionGetInputTypeInfo);
  rep->outputs = rep->ports(outputs, api->SessionGetOutputName, api->SessionGetOutputTypeInfo);
  return Session(std::move(rep));
}

const std::vector<Port>& Session::inputs() const { return rep_->inputs; }
const std::vector<Port>& Session::outputs() const { return rep_->outputs; }

std::vector<NamedTensor> Session::run(std::span<const NamedTensor> inputs, std::span<const std::string> outputs) const {
  const Api& api = rep_->api;
  rep_->check_inputs(inputs);
  std::vector<Owned<OrtValue>> values;
  std::vector<const char*> input_names, output_names;
  std::vector<const OrtValue*> given;
  for (const auto& input : inputs) {
    values.push_back(rep_->value_of(input));
    given.push_back(values.back().get());
    input_names.push_back(input.name.c_str());
  }
  for (const auto& output : outputs) output_names.push_back(output.c_str());
  if (outputs.empty())
    for (const auto& port : rep_->outputs) output_names.push_back(port.name.c_str());
  std::vector<Owned<OrtValue>> made;
  std::vector<OrtValue*> raw(output_names.size());
  OrtStatus* status = api->Run(rep_->session.get(), nullptr, input_names.data(), given.data(), given.size(),
                               output_names.data(), output_names.size(), raw.data());
  for (OrtValue* value : raw) *made.emplace_back(api->ReleaseValue).put() = value;
  api.must(status, "running a model");
  std::vector<NamedTensor> out;
  for (std::size_t at = 0; at < raw.size(); ++at)
    out.push_back({output_names[at], rep_->tensor_of(raw[at], output_names[at])});
  return out;
}

}  // namespace falaj::infer
