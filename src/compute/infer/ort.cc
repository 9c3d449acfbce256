// SPDX-License-Identifier: Apache-2.0
#include "compute/infer/ort.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::infer {

using graph::Element;
using graph::Port;

namespace {

constexpr std::array<ONNXTensorElementDataType, std::size(graph::kElements)> kOrtTypes = {
    ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,    ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,   ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,   ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,     ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING};

constexpr std::string_view kProviderNames[] = {"cpu", "cuda", "tensorrt", "openvino"};
constexpr std::string_view kOrtProviders[] = {"CPUExecutionProvider", "CUDAExecutionProvider",
                                              "TensorrtExecutionProvider", "OpenVINOExecutionProvider"};

// Nothing: what goes wrong is returned, and foreign models may not write into our log.
void ORT_API_CALL say_nothing(void*, OrtLoggingLevel, const char*, const char*, const char*, const char*) {}

// Without the place in ONNX Runtime's source and the function that some messages have in front of what they say.
std::string without_source(std::string_view message) {
  const std::size_t path = message.find("/onnxruntime_src/");
  const std::size_t open = message.find('(', path);
  if (path == message.npos || open == message.npos) return std::string(message);
  const auto closed = [&](std::size_t at, char opens, char closes) {
    for (int depth = 0; at < message.size(); ++at) {
      depth += message[at] == opens ? 1 : message[at] == closes ? -1 : 0;
      if (depth == 0) return at + 1;
    }
    return message.size();
  };
  std::size_t end = closed(open, '(', ')');
  if (message.substr(end).starts_with(" const")) end += 6;
  if (message.substr(end).starts_with(" [with")) end = closed(end + 1, '[', ']');
  return std::string(message.substr(0, path)) + std::string(message.substr(std::min(end + 1, message.size())));
}

std::vector<Provider> offered(const Api& api) {
  char** names = nullptr;
  int count = 0;
  api.must(api->GetAvailableProviders(&names, &count), "asking ONNX Runtime what it can run on");
  std::vector<Provider> out;
  for (int at = 0; at < count; ++at)
    for (const auto provider : kProviders)
      if (kOrtProviders[static_cast<std::size_t>(provider)] == names[at]) out.push_back(provider);
  api.must(api->ReleaseAvailableProviders(names, count), "asking ONNX Runtime what it can run on");
  std::sort(out.begin(), out.end());
  return out;
}

Port port_of(const Api& api, std::string called, const OrtTypeInfo* type) {
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

}  // namespace

ONNXTensorElementDataType ort_type(Element element) { return kOrtTypes[static_cast<std::size_t>(element)]; }

Element element_of(ONNXTensorElementDataType type) {
  const auto* at = std::find(kOrtTypes.begin(), kOrtTypes.end(), type);
  if (at == kOrtTypes.end())
    throw Error(Code::invalid, fmt::format("a tensor has elements of type {}, which is not known here", int{type}));
  return graph::kElements[at - kOrtTypes.begin()];
}

std::string_view name(Provider provider) { return kProviderNames[static_cast<std::size_t>(provider)]; }

void Api::fail(OrtStatus* status, std::string_view doing) const {
  const OrtErrorCode code = api_->GetErrorCode(status);
  std::string message = without_source(api_->GetErrorMessage(status));
  api_->ReleaseStatus(status);
  message.resize(std::min<std::size_t>(message.size(), 500));
  if (!is_utf8(message)) message = "(not text)";  // it may quote names of the model, or cut one
  throw Error(code == ORT_EP_FAIL ? Code::unavailable : Code::invalid, fmt::format("{}: {}", doing, message));
}

Runtime::Rep::Rep(const OrtApi* given, std::string called)
    : api(given), version(std::move(called)), env(given->ReleaseEnv), memory(given->ReleaseMemoryInfo) {
  api.must(api->CreateEnvWithCustomLogger(say_nothing, nullptr, ORT_LOGGING_LEVEL_FATAL, "falaj", env.put()),
           "starting ONNX Runtime");
  api.must(api->DisableTelemetryEvents(env.get()), "silencing ONNX Runtime");
  api.must(api->GetAllocatorWithDefaultOptions(&allocator), "starting ONNX Runtime");
  api.must(api->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, memory.put()), "starting ONNX Runtime");
  providers = offered(api);
}

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

const std::vector<Provider>& Runtime::providers() const { return rep_->providers; }

Ports ports_of(const Runtime::Rep& runtime, const OrtSession* session) {
  const Api& api = runtime.api;
  const auto all = [&](std::size_t count, auto name_of, auto type_of) {
    std::vector<Port> out;
    for (std::size_t at = 0; at < count; ++at) {
      char* text = nullptr;
      api.must(name_of(session, at, runtime.allocator, &text), "reading a model's inputs");
      std::string called(text);
      api.must(api->AllocatorFree(runtime.allocator, text), "reading a model's inputs");
      Owned<OrtTypeInfo> type(api->ReleaseTypeInfo);
      api.must(type_of(session, at, type.put()), "reading a model's inputs");
      out.push_back(port_of(api, std::move(called), type.get()));
    }
    return out;
  };
  std::size_t inputs = 0, outputs = 0;
  api.must(api->SessionGetInputCount(session, &inputs), "opening a model");
  api.must(api->SessionGetOutputCount(session, &outputs), "opening a model");
  return {all(inputs, api->SessionGetInputName, api->SessionGetInputTypeInfo),
          all(outputs, api->SessionGetOutputName, api->SessionGetOutputTypeInfo)};
}

std::vector<std::size_t> read_texts(const Api& api, const OrtValue* value, std::size_t count, std::string& all) {
  std::size_t bytes = 0;
  api.must(api->GetStringTensorDataLength(value, &bytes), "reading texts of a model");
  all.resize(bytes);
  std::vector<std::size_t> starts(count);
  api.must(api->GetStringTensorContent(value, all.data(), bytes, starts.data(), count), "reading texts of a model");
  return starts;
}

}  // namespace falaj::infer
