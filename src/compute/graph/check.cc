// SPDX-License-Identifier: Apache-2.0
#include "compute/graph/check.h"

#include <algorithm>
#include <climits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

#include "compute/graph/proto.h"
#include "compute/graph/shown.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::graph {
namespace {

constexpr std::size_t kFaultsMax = 20;

class ModelCheck {
 public:
  explicit ModelCheck(const Limits& limits) : limits_(limits) {}

  Summary run(const onnx::ModelProto& model) {
    if (!model.has_graph()) throw Error(Code::invalid, "the model has no graph");
    summary_.ir_version = model.ir_version();
    if (model.ir_version() < 3 || model.ir_version() > limits_.ir_version)
      fault("model", fmt::format("IR version {} is not one of 3 to {}", model.ir_version(), limits_.ir_version));
    for (const auto& opset : model.opset_import()) {
      // Exporters name more than they use; what is used is looked at where it is.
      name("model", opset.domain());
      if (opset.version() < 1 || opset.version() > 1000)
        fault("model", fmt::format("uses version {} of domain '{}'", opset.version(), shown(opset.domain())));
      summary_.opsets[opset.domain()] = opset.version();
    }
    if (model.opset_import_size() == 0) fault("model", "does not say which version of the operators it uses");
    if (model.graph().output_size() == 0) fault("graph", "has no output");
    for (const auto& [name, reader] : graph(model.graph(), ""))
      fault(reader, fmt::format("reads '{}', which nothing makes", shown(name)));
    refuse_if_any("reading a model", std::move(faults_));
    return std::move(summary_);
  }

  void run(const onnx::TensorProto& one) {
    name("tensor", one.name());
    tensor("tensor", one);
    refuse_if_any("reading a tensor", std::move(faults_));
  }

 private:
  using Free = std::map<std::string, std::string, std::less<>>;  // a name read but not made, and who reads it

  void fault(std::string where, std::string what) {
    if (faults_.size() < kFaultsMax) faults_.push_back({std::move(where), std::move(what)});
  }
  bool known(const std::string& domain) const {
    return std::find(limits_.domains.begin(), limits_.domains.end(), domain) != limits_.domains.end();
  }
  void name(const std::string& where, std::string_view text) {
    if (text.size() > limits_.name_bytes)
      fault(where, fmt::format("has a name of {} bytes, more than {}", text.size(), limits_.name_bytes));
    else if (!is_utf8(text) ||
             std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
      fault(where, "has a name that is not text");
  }

  void tensor(const std::string& where, const onnx::TensorProto& t) {
    ++summary_.tensors;
    if (t.data_location() == onnx::TensorProto::EXTERNAL || t.external_data_size() > 0)
      return fault(where, "has its data in another file");
    if (t.has_segment()) return fault(where, "is a segment of a tensor");
    const auto element = element_of_type(t.data_type());
    if (!element) return fault(where, fmt::format("has elements of type {}, which is not known here", t.data_type()));
    if (static_cast<std::size_t>(t.dims_size()) > limits_.rank)
      return fault(where, fmt::format("has {} sizes, more than {}", t.dims_size(), limits_.rank));
    const std::size_t width = std::max<std::size_t>(bytes_of(*element), 1);
    std::size_t count = 0;
    try {
      count = count_of({t.dims().data(), static_cast<std::size_t>(t.dims_size())}, limits_.tensor_bytes / width);
    } catch (const Error& error) {
      return fault(where, error.what());
    }
    const bool is_raw = t.has_raw_data() && *element != Element::text;
    const std::size_t given = is_raw ? t.raw_data().size() : typed_values(t, *element);
    const std::size_t wanted = is_raw ? count * width : count;
    if (given != wanted)
      return fault(where, fmt::format("holds {} {}, its sizes say {}", given, is_raw ? "bytes" : "values", wanted));
    summary_.tensor_bytes += count * width;
    if (summary_.tensor_bytes > limits_.tensor_bytes)
      fault("model", fmt::format("has tensors of more than {} bytes in all", limits_.tensor_bytes));
  }

  void ports(std::string_view kind, const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& all, bool typed) {
    std::set<std::string_view> names;
    for (const auto& port : all) {
      const auto where = fmt::format("{} '{}'", kind, shown(port.name()));
      name(where, port.name());
      if (port.name().empty()) fault(where, "has no name");
      if (!names.insert(port.name()).second) fault(where, "is there twice");
      if (!typed) continue;
      if (!port.has_type() || port.type().value_case() == onnx::TypeProto::VALUE_NOT_SET) fault(where, "has no type");
      if (!port.type().has_tensor_type()) continue;
      const auto& type = port.type().tensor_type();
      if (!element_of_type(type.elem_type()))
        fault(where, fmt::format("has elements of type {}, which is not known here", type.elem_type()));
      if (static_cast<std::size_t>(type.shape().dim_size()) > limits_.rank)
        fault(where, fmt::format("has {} sizes, more than {}", type.shape().dim_size(), limits_.rank));
      for (const auto& dim : type.shape().dim())
        if (dim.has_dim_value() && dim.dim_value() < 0) fault(where, "has a negative size");
    }
  }

  // Everything of a graph; what it reads from outside comes back.
  Free graph(const onnx::GraphProto& g, const std::string& path) {
    ports(path + "input", g.input(), path.empty());
    ports(path + "output", g.output(), path.empty());
    std::unordered_map<std::string_view, int> maker;  // node, or -1
    for (const auto& input : g.input()) maker[input.name()] = -1;
    std::set<std::string_view> constants;
    for (const auto& constant : g.initializer()) {
      const auto where = fmt::format("{}tensor '{}'", path, shown(constant.name()));
      name(where, constant.name());
      if (!constants.insert(constant.name()).second) fault(where, "is there twice");
      tensor(where, constant);
      maker[constant.name()] = -1;
    }
    if (g.sparse_initializer_size() > 0) fault(path + "graph", "has sparse tensors");
    std::vector<Free> reads(static_cast<std::size_t>(g.node_size()));
    for (int at = 0; at < g.node_size(); ++at) {
      const auto& n = g.node(at);
      const auto where = place(path, n, at);
      node(where, n, reads[static_cast<std::size_t>(at)]);
      for (const auto& output : n.output()) {
        name(where, output);
        if (!output.empty() && !maker.emplace(output, at).second)
          fault(where, fmt::format("makes '{}', which is made already", shown(output)));
      }
    }
    summary_.nodes += static_cast<std::size_t>(g.node_size());
    Free free;
    for (const auto& output : g.output())
      if (!maker.count(output.name()))
        free.emplace(output.name(), fmt::format("{}output '{}'", path, shown(output.name())));
    order(g, path, maker, reads, free);
    return free;
  }

  static std::string place(const std::string& path, const onnx::NodeProto& n, int at) {
    if (n.name().empty()) return fmt::format("{}node {} ({})", path, at, shown(n.op_type()));
    return fmt::format("{}node '{}' ({})", path, shown(n.name()), shown(n.op_type()));
  }

  void node(const std::string& where, const onnx::NodeProto& n, Free& reads) {
    name(where, n.name());
    name(where, n.op_type());
    if (n.op_type().empty()) fault(where, "does nothing: it names no operator");
    if (!known(n.domain())) fault(where, fmt::format("is an operator of domain '{}'", shown(n.domain())));
    for (const auto& input : n.input())
      if (!input.empty()) reads.emplace(input, where);
    std::set<std::string_view> names;
    for (const auto& a : n.attribute()) {
      const auto inside = fmt::format("{}, attribute '{}'", where, shown(a.name()));
      name(inside, a.name());
      if (!names.insert(a.name()).second) fault(inside, "is there twice");
      attribute(inside, a, reads);
    }
  }

  void attribute(const std::string& where, const onnx::AttributeProto& a, Free& reads) {
    if (!a.ref_attr_name().empty()) fault(where, "refers to a function's attribute");
    if (a.has_sparse_tensor() || a.sparse_tensors_size() > 0) fault(where, "is a sparse tensor");
    if (a.has_t()) tensor(where, a.t());
    for (const auto& t : a.tensors()) tensor(where, t);
    const auto inner = [&](const onnx::GraphProto& g) {
      for (const auto& [name, reader] : graph(g, where + ", ")) reads.emplace(name, reader);
    };
    if (a.has_g()) inner(a.g());
    for (const auto& g : a.graphs()) inner(g);
  }

  // Takes nodes whose inputs are all there until none is left; what is left then waits for itself.
  void order(const onnx::GraphProto& g, const std::string& path, const std::unordered_map<std::string_view, int>& maker,
             const std::vector<Free>& reads, Free& free) {
    std::vector<std::size_t> waits(reads.size());
    std::vector<std::vector<std::size_t>> feeds(reads.size());
    for (std::size_t at = 0; at < reads.size(); ++at) {
      for (const auto& [name, reader] : reads[at]) {
        const auto from = maker.find(name);
        if (from == maker.end()) {
          free.emplace(name, reader);
        } else if (from->second >= 0) {
          feeds[static_cast<std::size_t>(from->second)].push_back(at);
          ++waits[at];
        }
      }
    }
    std::vector<std::size_t> ready;
    for (std::size_t at = 0; at < waits.size(); ++at)
      if (waits[at] == 0) ready.push_back(at);
    for (std::size_t done = 0; done < ready.size(); ++done)
      for (const std::size_t next : feeds[ready[done]])
        if (--waits[next] == 0) ready.push_back(next);
    if (ready.size() == reads.size()) return;
    const auto stuck = std::find_if(waits.begin(), waits.end(), [](std::size_t w) { return w > 0; }) - waits.begin();
    fault(place(path, g.node(static_cast<int>(stuck)), static_cast<int>(stuck)),
          "waits for its own output: the graph has a cycle");
  }

  const Limits& limits_;
  Summary summary_;
  std::vector<Fault> faults_;
};

}  // namespace

std::size_t typed_values(const onnx::TensorProto& tensor, Element element) {
  switch (element) {
    case Element::float32:
      return static_cast<std::size_t>(tensor.float_data_size());
    case Element::float64:
      return static_cast<std::size_t>(tensor.double_data_size());
    case Element::int64:
      return static_cast<std::size_t>(tensor.int64_data_size());
    case Element::uint32:
    case Element::uint64:
      return static_cast<std::size_t>(tensor.uint64_data_size());
    case Element::text:
      return static_cast<std::size_t>(tensor.string_data_size());
    default:
      return static_cast<std::size_t>(tensor.int32_data_size());
  }
}

onnx::ModelProto checked_model(BytesView model, const Limits& limits, Summary& summary) {
  scan_model(model, limits);
  if (model.size() > INT_MAX) throw Error(Code::invalid, "the model is larger than a protobuf can be");
  onnx::ModelProto out;
  if (!out.ParseFromArray(model.data(), static_cast<int>(model.size())))
    throw Error(Code::invalid, "the model is not an ONNX model");
  summary = ModelCheck(limits).run(out);
  return out;
}

onnx::TensorProto checked_tensor(BytesView tensor, const Limits& limits) {
  if (tensor.size() > std::min<std::size_t>(limits.bytes, INT_MAX))
    throw Error(Code::invalid, fmt::format("the tensor has {} bytes, more than {}", tensor.size(), limits.bytes));
  onnx::TensorProto out;
  if (!out.ParseFromArray(tensor.data(), static_cast<int>(tensor.size())))
    throw Error(Code::invalid, "the bytes are not an ONNX tensor");
  ModelCheck(limits).run(out);
  return out;
}

Summary check(BytesView model, const Limits& limits) {
  Summary summary;
  (void)checked_model(model, limits, summary);
  return summary;
}

}  // namespace falaj::graph
