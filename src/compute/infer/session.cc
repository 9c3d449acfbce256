// SPDX-License-Identifier: Apache-2.0
#include "compute/infer/session.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "compute/infer/ort.h"
#include "foundation/base/error.h"

namespace falaj::infer {

using graph::Element;
using graph::Port;
using graph::Tensor;

struct Session::Rep {
  std::shared_ptr<Runtime::Rep> runtime;  // outlives the session
  Api api;
  Owned<OrtSession> session;
  std::vector<Port> inputs, outputs;

  explicit Rep(std::shared_ptr<Runtime::Rep> given)
      : runtime(std::move(given)), api(runtime->api), session(api->ReleaseSession) {}

  // A view of the tensor's own memory, except for texts, which ONNX Runtime keeps itself.
  Owned<OrtValue> value_of(const NamedTensor& input) const {
    const Tensor& tensor = input.tensor;
    const auto doing = [&] { return fmt::format("giving input '{}' to a model", input.name); };
    Owned<OrtValue> out(api->ReleaseValue);
    if (tensor.element != Element::text) {
      auto* data = const_cast<std::byte*>(tensor.bytes.data());  // inputs are only read
      api.must(
          api->CreateTensorWithDataAsOrtValue(runtime->memory.get(), data, tensor.bytes.size(), tensor.sizes.data(),
                                              tensor.sizes.size(), ort_type(tensor.element), out.put()),
          doing());
      return out;
    }
    api.must(api->CreateTensorAsOrtValue(runtime->allocator, tensor.sizes.data(), tensor.sizes.size(),
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
      std::string all;
      const auto starts = read_texts(api, value, out.count(), all);
      for (std::size_t at = 0; at < starts.size(); ++at) {
        const std::size_t end = at + 1 < starts.size() ? starts[at + 1] : all.size();
        out.texts.push_back(all.substr(starts[at], end - starts[at]));
      }
      return out;
    }
    const std::byte* data = nullptr;
    api.must(api->GetTensorMutableData(const_cast<OrtValue*>(value),
                                       reinterpret_cast<void**>(const_cast<std::byte**>(&data))),
             doing());
    out.bytes.assign(data, data + out.count() * bytes_of(out.element));
    return out;
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
  auto rep = std::make_unique<Rep>(runtime.rep());
  const Api& api = rep->api;
  Owned<OrtSessionOptions> with(api->ReleaseSessionOptions);
  api.must(api->CreateSessionOptions(with.put()), "opening a model");
  api.must(api->SetIntraOpNumThreads(with.get(), options.threads), "opening a model");
  api.must(api->SetInterOpNumThreads(with.get(), 1), "opening a model");
  api.must(api->SetSessionGraphOptimizationLevel(with.get(), options.optimise ? ORT_ENABLE_ALL : ORT_DISABLE_ALL),
           "opening a model");
  if (!options.arena) api.must(api->DisableCpuMemArena(with.get()), "opening a model");
  api.must(
      api->CreateSessionFromArray(runtime.rep()->env.get(), model.data(), model.size(), with.get(), rep->session.put()),
      "opening a model");
  auto ports = ports_of(*runtime.rep(), rep->session.get());
  rep->inputs = std::move(ports.inputs);
  rep->outputs = std::move(ports.outputs);
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
