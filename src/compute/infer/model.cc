// SPDX-License-Identifier: Apache-2.0
#include "compute/infer/model.h"

#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "compute/infer/ort.h"
#include "compute/infer/repair.h"
#include "compute/infer/rows.h"
#include "compute/infer/tree_kernel.h"
#include "compute/infer/tree_operator.h"
#include "foundation/base/error.h"

namespace falaj::infer {

using graph::Element;
using graph::Port;

namespace {

std::string shape_text(const std::vector<graph::Dimension>& shape) {
  std::string out = "[";
  for (const auto& dimension : shape) {
    if (out.size() > 1) out += ", ";
    if (const auto* size = std::get_if<std::int64_t>(&dimension))
      out += std::to_string(*size);
    else
      out += "any";
  }
  return out + "]";
}

[[noreturn]] void refuse_input(const Port& port, std::string_view why) {
  throw Error(Code::invalid, fmt::format("input '{}' {}", port.name, why));
}

void check_input(const Port& port, const TensorView& given) {
  if (given.element != port.element)
    refuse_input(port, fmt::format("holds {}, the model wants {}", graph::name(given.element), name(port.element)));
  // A shape of nothing is a single number, or one the model does not say: ONNX Runtime knows which.
  bool fits = port.shape.empty() || port.shape.size() == given.shape.rank();
  for (std::size_t at = 0; fits && at < port.shape.size(); ++at) {
    const auto* size = std::get_if<std::int64_t>(&port.shape[at]);
    fits = !size || *size == given.shape[at];
  }
  if (!fits)
    refuse_input(port, fmt::format("has the shape {}, the model wants {}", graph::text_of(given.shape.sizes()),
                                   shape_text(port.shape)));
  const std::size_t count = graph::count_of(given.shape.sizes());
  const bool text = given.element == Element::text;
  const std::size_t have = text ? given.texts.size() : given.bytes.size();
  const std::size_t wanted = text ? count : count * graph::bytes_of(given.element);
  if (have != wanted)
    refuse_input(port, fmt::format("holds {} {}, its shape {} says {}", have, text ? "texts" : "bytes",
                                   graph::text_of(given.shape.sizes()), wanted));
  if (given.element == Element::boolean &&
      std::any_of(given.bytes.begin(), given.bytes.end(), [](std::byte b) { return b > std::byte{1}; }))
    refuse_input(port, "holds a boolean that is neither 0 nor 1");
}

// About what a session takes by itself, and for each of its nodes.
constexpr std::size_t kSessionBytes = 60'000, kNodeBytes = 4'000;

// What one call hands over, kept by its thread for the next.
struct Call {
  std::vector<OrtValue*> given;
  std::vector<const char*> output_names;
  std::vector<std::vector<std::uint64_t>> copies = std::vector<std::vector<std::uint64_t>>(1);  // see aligned()
};

constexpr std::size_t kCopyKept = (8 << 20) / sizeof(std::uint64_t);

// The bytes of an input where an engine can read them: what lies at odd addresses is copied.
BytesView aligned(const TensorView& input, std::vector<std::uint64_t>& copy) {
  const auto at = reinterpret_cast<std::uintptr_t>(input.bytes.data());
  if (at % graph::bytes_of(input.element) == 0) return input.bytes;
  if (copy.size() > kCopyKept) copy = {};  // one huge request is not paid for ever after
  copy.resize(input.bytes.size() / sizeof(std::uint64_t) + 1);
  std::memcpy(copy.data(), input.bytes.data(), input.bytes.size());
  return {reinterpret_cast<const std::byte*>(copy.data()), input.bytes.size()};
}

// Releases what was given when the call is over, however it ends.
class Given {
 public:
  Given(const Api& api, std::vector<OrtValue*>& values) : api_(api), values_(values) { values_.clear(); }
  ~Given() {
    for (OrtValue* value : values_)
      if (value) api_->ReleaseValue(value);
  }
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;

 private:
  const Api& api_;
  std::vector<OrtValue*>& values_;
};

}  // namespace

// ---- Outputs.
struct Outputs::Held {
  struct Texts {
    std::string all;
    std::vector<std::string_view> each;
  };
  const OrtApi* api = nullptr;
  std::vector<OrtValue*> values;
  std::vector<std::unique_ptr<Texts>> texts;
  TreePlan::Made made;

  ~Held() {
    for (OrtValue* value : values)
      if (value) api->ReleaseValue(value);
  }
};

Outputs::Outputs() = default;
Outputs::~Outputs() = default;
Outputs::Outputs(Outputs&&) noexcept = default;
Outputs& Outputs::operator=(Outputs&&) noexcept = default;

// ---- The engines.
struct Model::Rep {
  std::shared_ptr<Runtime::Rep> runtime;  // outlives the session
  std::optional<TreePlan> trees;          // all of the model; without a session then
  TreeKernels kernels;                    // of the session
  Owned<OrtSession> session;
  std::vector<const char*> input_names, output_names;
  Provider provider = Provider::cpu;
  std::size_t resident_bytes = 0;

  explicit Rep(std::shared_ptr<Runtime::Rep> given)
      : runtime(std::move(given)), kernels(*runtime), session(runtime->api->ReleaseSession) {}
  ~Rep() {
    session.reset();
    // What a large model leaves behind in the heap would stay with the process.
    if (resident_bytes >= kTrimFrom) ::malloc_trim(0);
  }
  Rep(const Rep&) = delete;
  Rep& operator=(const Rep&) = delete;

  static constexpr std::size_t kTrimFrom = 1 << 20;

  void open_best(BytesView bytes, const LoadOptions& options);
  void open(BytesView bytes, const LoadOptions& options);
  void open_on(Provider where, BytesView bytes, const LoadOptions& options);
  void give(const Port& port, const TensorView& input, std::vector<std::uint64_t>& copy, OrtValue** out) const;
  TensorView view_of(const Port& port, OrtValue* value, Outputs::Held& held) const;
};

namespace {

void append_provider(const Api& api, OrtSessionOptions* with, Provider where, int device) {
  const std::string number = std::to_string(device);
  const char* const keys[] = {"device_id"};
  const char* const values[] = {number.c_str()};
  const std::string doing = fmt::format("starting execution provider '{}'", name(where));
  if (where == Provider::cuda) {
    Owned<OrtCUDAProviderOptionsV2> cuda(api->ReleaseCUDAProviderOptions);
    api.must(api->CreateCUDAProviderOptions(cuda.put()), doing);
    api.must(api->UpdateCUDAProviderOptions(cuda.get(), keys, values, 1), doing);
    api.must(api->SessionOptionsAppendExecutionProvider_CUDA_V2(with, cuda.get()), doing);
  } else if (where == Provider::tensorrt) {
    Owned<OrtTensorRTProviderOptionsV2> tensorrt(api->ReleaseTensorRTProviderOptions);
    api.must(api->CreateTensorRTProviderOptions(tensorrt.put()), doing);
    api.must(api->UpdateTensorRTProviderOptions(tensorrt.get(), keys, values, 1), doing);
    api.must(api->SessionOptionsAppendExecutionProvider_TensorRT_V2(with, tensorrt.get()), doing);
  } else if (where == Provider::openvino) {
    api.must(api->SessionOptionsAppendExecutionProvider_OpenVINO_V2(with, nullptr, nullptr, 0), doing);
  }
}

}  // namespace

void Model::Rep::open_on(Provider where, BytesView bytes, const LoadOptions& options) {
  const Api& api = runtime->api;
  Owned<OrtSessionOptions> with(api->ReleaseSessionOptions);
  api.must(api->CreateSessionOptions(with.put()), "opening a model");
  api.must(api->SetIntraOpNumThreads(with.get(), options.threads), "opening a model");
  api.must(api->SetInterOpNumThreads(with.get(), 1), "opening a model");
  api.must(api->SetSessionGraphOptimizationLevel(with.get(), ORT_ENABLE_ALL), "opening a model");
  // Threads that share a session would wait for each other at the arena's lock, and an arena keeps what it ever took.
  api.must(api->DisableCpuMemArena(with.get()), "opening a model");
  // Threads of a call that wait for each other do not take the processor from other models.
  api.must(api->AddSessionConfigEntry(with.get(), "session.intra_op.allow_spinning", "0"), "opening a model");
  kernels.add_to(with.get());
  append_provider(api, with.get(), where, options.device);
  session.reset();
  api.must(api->CreateSessionFromArray(runtime->env.get(), bytes.data(), bytes.size(), with.get(), session.put()),
           "opening a model");
  provider = where;
}

void Model::Rep::open(BytesView bytes, const LoadOptions& options) {
  std::vector<Provider> places = options.providers;
  if (places.empty() || (options.fall_back && std::find(places.begin(), places.end(), Provider::cpu) == places.end()))
    places.push_back(Provider::cpu);
  for (const Provider where : places) {
    const bool last = !options.fall_back || where == places.back();
    const auto& have = runtime->providers;
    if (where != Provider::cpu && std::find(have.begin(), have.end(), where) == have.end()) {
      if (!last) continue;
      throw Error(Code::unavailable,
                  fmt::format("this ONNX Runtime has no execution provider '{}'; allow falling back, or install one "
                              "that has it",
                              name(where)));
    }
    try {
      return open_on(where, bytes, options);
    } catch (const Error&) {
      if (last) throw;
    }
  }
}

void Model::Rep::give(const Port& port, const TensorView& input, std::vector<std::uint64_t>& copy,
                      OrtValue** out) const {
  const Api& api = runtime->api;
  const auto must = [&](OrtStatus* status) {
    if (status) api.must(status, fmt::format("giving input '{}' to a model", port.name));
  };
  const auto sizes = input.shape.sizes();
  if (input.element != Element::text) {
    const auto bytes = aligned(input, copy);
    auto* data = const_cast<std::byte*>(bytes.data());  // inputs are only read
    return must(api->CreateTensorWithDataAsOrtValue(runtime->memory.get(), data, input.bytes.size(), sizes.data(),
                                                    sizes.size(), ort_type(input.element), out));
  }
  must(api->CreateTensorAsOrtValue(runtime->allocator, sizes.data(), sizes.size(), ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING,
                                   out));
  for (std::size_t at = 0; at < input.texts.size(); ++at) {
    char* buffer = nullptr;
    const auto text = input.texts[at];  // may hold zero bytes, which FillStringTensor would end at
    must(api->GetResizedStringTensorElementBuffer(*out, at, text.size(), &buffer));
    std::copy(text.begin(), text.end(), buffer);
  }
}

TensorView Model::Rep::view_of(const Port& port, OrtValue* value, Outputs::Held& held) const {
  const Api& api = runtime->api;
  const auto must = [&](OrtStatus* status) {
    if (status) api.must(status, fmt::format("reading output '{}' of a model", port.name));
  };
  Owned<OrtTensorTypeAndShapeInfo> info(api->ReleaseTensorTypeAndShapeInfo);
  must(api->GetTensorTypeAndShape(value, info.put()));
  ONNXTensorElementDataType element{};
  std::size_t rank = 0;
  must(api->GetTensorElementType(info.get(), &element));
  must(api->GetDimensionsCount(info.get(), &rank));
  if (rank > Shape::kRankMax) throw Error(Code::invalid, fmt::format("output '{}' has {} sizes", port.name, rank));
  std::array<std::int64_t, Shape::kRankMax> sizes{};
  must(api->GetDimensions(info.get(), sizes.data(), rank));
  TensorView out{element_of(element), Shape(std::span(sizes.data(), rank)), {}, {}};
  const std::size_t count = graph::count_of(out.shape.sizes());
  if (out.element == Element::text) {
    auto& texts = *held.texts.emplace_back(std::make_unique<Outputs::Held::Texts>());
    const auto starts = read_texts(api, value, count, texts.all);
    for (std::size_t at = 0; at < count; ++at) {
      const std::size_t end = at + 1 < count ? starts[at + 1] : texts.all.size();
      texts.each.push_back(std::string_view(texts.all).substr(starts[at], end - starts[at]));
    }
    out.texts = texts.each;
    return out;
  }
  void* data = nullptr;
  must(api->GetTensorMutableData(value, &data));
  out.bytes = {static_cast<const std::byte*>(data), count * graph::bytes_of(out.element)};
  return out;
}

graph::Limits LoadOptions::serving_limits() {
  graph::Limits out;
  out.domains.emplace_back("com.microsoft");
  return out;
}

// ---- Model.
Model::Model(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}
Model::~Model() = default;

namespace {

// Whether an operator may be in it, before everything is read once more to find out.
bool mentions(BytesView bytes, std::string_view op) { return as_text(bytes).find(op) != std::string_view::npos; }

std::optional<graph::Graph> parsed(BytesView bytes, const graph::Limits& limits) {
  try {
    return graph::parse(bytes, limits);
  } catch (const Error&) {
    return {};  // as a value of another kind than tensors among its outputs: ONNX Runtime says what it thinks of that
  }
}

}  // namespace

// By the engine that is the fastest at it.
void Model::Rep::open_best(BytesView bytes, const LoadOptions& options) {
  const bool has_trees = mentions(bytes, "TreeEnsemble");
  auto graph = has_trees || may_need_repair(bytes) ? parsed(bytes, options.limits) : std::nullopt;
  if (!graph) return open(bytes, options);
  if (has_trees && options.native_trees && options.providers.empty()) {
    if ((trees = TreePlan::of(*graph))) return;
    auto changed = *graph;
    if (kernels.take_over(changed)) {
      repair(changed);
      graph::Limits with_ours = options.limits;
      with_ours.domains.emplace_back(TreeKernels::kDomain);
      try {
        return open(graph::serialise(changed, with_ours), options);
      } catch (const Error&) {
        kernels
            .clear();  // as when they are given doubles: then by ONNX Runtime, which says what is wrong if it is that
      }
    }
  }
  if (repair(*graph)) return open(graph::serialise(*graph, options.limits), options);
  open(bytes, options);
}

std::shared_ptr<const Model> Model::load(const Runtime& runtime, BytesView bytes, const LoadOptions& options) {
  std::shared_ptr<Model> out(new Model(std::make_unique<Rep>(runtime.rep())));
  Rep& rep = *out->rep_;
  out->summary_ = graph::check(bytes, options.limits);
  Bytes unzipped;
  if (mentions(bytes, "ZipMap")) {
    if (auto without = graph::without_zip_maps(bytes, options.limits)) bytes = unzipped = std::move(*without);
  }
  rep.open_best(bytes, options);
  if (rep.trees) {
    out->inputs_ = rep.trees->inputs();
    out->outputs_ = rep.trees->outputs();
    out->rows_first_ = true;
    rep.resident_bytes = rep.trees->resident_bytes();
    return out;
  }
  auto ports = ports_of(*runtime.rep(), rep.session.get());
  out->inputs_ = std::move(ports.inputs);
  out->outputs_ = std::move(ports.outputs);
  for (const auto& port : out->inputs_) rep.input_names.push_back(port.name.c_str());
  for (const auto& port : out->outputs_) rep.output_names.push_back(port.name.c_str());
  rep.resident_bytes =
      kSessionBytes + out->summary_.nodes * kNodeBytes + out->summary_.tensor_bytes + rep.kernels.resident_bytes();
  out->rows_first_ = has_rows_first(*out);
  if (out->rows_first_)  // some exporters say that there is one
    for (auto& port : out->outputs_)
      if (std::holds_alternative<std::int64_t>(port.shape[0])) port.shape[0] = std::string();
  return out;
}

std::string_view Model::engine() const {
  if (rep_->trees) return "trees";
  return rep_->kernels.empty() ? "onnxruntime" : "onnxruntime+trees";
}

Provider Model::provider() const { return rep_->provider; }
std::size_t Model::resident_bytes() const { return rep_->resident_bytes; }

std::uint32_t Model::check(std::span<const TensorView> given) const {
  if (given.size() != inputs_.size())
    throw Error(Code::invalid, fmt::format("the model has {} inputs, given are {}", inputs_.size(), given.size()));
  for (std::size_t at = 0; at < given.size(); ++at) check_input(inputs_[at], given[at]);
  if (!rows_first_) return 1;
  const std::int64_t rows = given[0].shape[0];
  for (std::size_t at = 1; at < given.size(); ++at)
    if (given[at].shape[0] != rows)
      refuse_input(inputs_[at],
                   fmt::format("has {} rows, input '{}' has {}", given[at].shape[0], inputs_[0].name, rows));
  if (rows > std::numeric_limits<std::int32_t>::max()) refuse_input(inputs_[0], fmt::format("has {} rows", rows));
  return static_cast<std::uint32_t>(rows);
}

Outputs Model::run(std::span<const TensorView> inputs, std::span<const std::uint16_t> wanted) const {
  check(inputs);
  for (auto at = wanted.begin(); at != wanted.end(); ++at) {
    if (*at >= outputs_.size()) throw Error(Code::invalid, fmt::format("the model has no output {}", *at));
    if (std::find(wanted.begin(), at, *at) != at)
      throw Error(Code::invalid, fmt::format("output '{}' is asked for twice", outputs_[*at].name));
  }
  Outputs out;
  out.held_ = std::make_unique<Outputs::Held>();
  static thread_local Call call;
  if (rep_->trees) {
    TensorView rows = inputs[0];
    rows.bytes = aligned(inputs[0], call.copies[0]);
    rep_->trees->run(rows, wanted, out.held_->made, out.tensors_);
    return out;
  }
  const Api& api = rep_->runtime->api;
  call.copies.resize(std::max(call.copies.size(), inputs.size()));
  call.given.reserve(inputs.size());
  const Given given(api, call.given);
  for (std::size_t at = 0; at < inputs.size(); ++at)
    rep_->give(inputs_[at], inputs[at], call.copies[at], &call.given.emplace_back(nullptr));
  const char* const* names = rep_->output_names.data();
  const std::size_t count = wanted.empty() ? outputs_.size() : wanted.size();
  if (!wanted.empty()) {
    call.output_names.clear();
    for (const auto which : wanted) call.output_names.push_back(rep_->output_names[which]);
    names = call.output_names.data();
  }
  out.held_->api = api.get();
  out.held_->values.resize(count);
  api.must(api->Run(rep_->session.get(), nullptr, rep_->input_names.data(), call.given.data(), inputs.size(), names,
                    count, out.held_->values.data()),
           "running a model");
  for (std::size_t at = 0; at < count; ++at)
    out.tensors_.push_back(
        rep_->view_of(outputs_[wanted.empty() ? at : wanted[at]], out.held_->values[at], *out.held_));
  return out;
}

}  // namespace falaj::infer
