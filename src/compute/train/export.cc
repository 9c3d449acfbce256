// SPDX-License-Identifier: Apache-2.0
#include "compute/train/export.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/json.h"

namespace falaj::train {
namespace {

using graph::Element;
using graph::Tensor;

bool classifies(const Problem& problem) {
  return problem.objective == Objective::binary || problem.objective == Objective::multiclass;
}

// The name of the likeliest class of each row.
std::string emit_label(graph::Graph& graph, const Problem& problem, const std::string& predictions) {
  std::string index;
  if (problem.objective == Objective::binary) {
    const auto half = graph.add_constant(Tensor::of<float>({}, std::vector<float>{0.5F}));
    const auto yes = graph.add_node("GreaterOrEqual", {predictions, half});
    const auto whole = graph.add_node("Cast", {yes}, {{"to", std::int64_t{7}}});  // int64
    const auto axis = graph.add_constant(Tensor::of<std::int64_t>({1}, std::vector<std::int64_t>{1}));
    index = graph.add_node("Squeeze", {whole, axis});
  } else {
    index = graph.add_node("ArgMax", {predictions}, {{"axis", std::int64_t{1}}, {"keepdims", std::int64_t{0}}});
  }
  const auto names =
      graph.add_constant(Tensor::of_text({static_cast<std::int64_t>(problem.classes.size())}, problem.classes));
  return graph.add_node("Gather", {names, index}, {{"axis", std::int64_t{0}}});
}

std::int64_t whole(std::size_t n) { return static_cast<std::int64_t>(n); }

// Bytes come in as they lie in the dataset, and become numbers from 0 to 1.
graph::Transform::Emitted emit_image(graph::Graph& graph, const loader::Image& image) {
  const auto bytes =
      graph.add_input(image.column, Element::uint8,
                      {std::string(graph::kRows), whole(image.height), whole(image.width), whole(image.channels)});
  const auto numbers = graph.add_node("Cast", {bytes}, {{"to", graph::onnx_type(Element::float32)}});
  const auto most = graph.add_constant(Tensor::of<float>({}, std::vector<float>{255}));
  return {graph.add_node("Div", {numbers, most}), ""};
}

Tensor tensor_of(const graph::Values& values, Element element, std::size_t rows) {
  const graph::Sizes sizes{static_cast<std::int64_t>(rows), 1};
  return std::visit(
      [&](const auto& span) -> Tensor {
        using T = std::remove_const_t<typename std::decay_t<decltype(span)>::element_type>;
        if constexpr (std::is_same_v<T, std::string_view>) {
          return Tensor::of_text(sizes, std::vector<std::string>(span.begin(), span.end()));
        } else if constexpr (std::is_same_v<T, std::uint8_t>) {
          return element == Element::boolean ? Tensor::of_boolean(sizes, span) : Tensor::of<T>(sizes, span);
        } else {
          return Tensor::of<T>(sizes, span);
        }
      },
      values);
}

const char* mlflow_type(Element element) {
  switch (element) {
    case Element::text:
      return "string";
    case Element::float64:
      return "double";
    case Element::float32:
      return "float";
    case Element::int64:
      return "long";
    case Element::boolean:
      return "boolean";
    default:
      return "object";
  }
}

}  // namespace

Bytes export_model(const Problem& problem, const graph::Transform& transform, Model& model) {
  graph::Graph graph;
  const auto inputs = problem.image ? emit_image(graph, *problem.image) : transform.emit(graph);
  const auto predictions = model.emit(graph, inputs);
  graph.add_output("prediction", predictions, Element::float32,
                   {std::string(graph::kRows), static_cast<std::int64_t>(problem.outputs())});
  if (classifies(problem))
    graph.add_output("label", emit_label(graph, problem, predictions), Element::text, {std::string(graph::kRows)});
  graph.metadata["falaj.objective"] = std::string(name_of(problem.objective));
  return graph::serialise(graph);
}

std::vector<float> answer_of(const infer::Session& session, const Problem& problem, const Rows::Raw& batch) {
  static const std::vector<std::string> kWanted = {"prediction"};
  std::vector<infer::NamedTensor> inputs;
  for (const auto& port : session.inputs()) {  // columns that no feature uses are no inputs
    if (problem.image) {
      const auto& image = *problem.image;
      const graph::Sizes sizes{whole(batch.rows), whole(image.height), whole(image.width), whole(image.channels)};
      inputs.push_back({port.name, Tensor::of<std::uint8_t>(sizes, batch.pixels)});
      break;
    }
    const auto column = std::find_if(problem.columns.begin(), problem.columns.end(),
                                     [&](const auto& c) { return c.name == port.name; });
    if (column == problem.columns.end())
      throw Error(Code::invalid, fmt::format("the model wants an input '{}', which the rows do not have", port.name));
    const auto at = static_cast<std::size_t>(column - problem.columns.begin());
    inputs.push_back({port.name, tensor_of(batch.columns[at], port.element, batch.rows)});
  }
  const auto answer = session.run(inputs, kWanted);
  const auto values = answer.at(0).tensor.values<float>();
  if (values.size() != batch.rows * problem.outputs())
    throw Error(Code::invalid, fmt::format("the model says {} numbers of {} rows", values.size(), batch.rows));
  return {values.begin(), values.end()};
}

std::vector<float> predictions_of(const infer::Session& session, Rows& rows) {
  std::vector<float> out;
  rows.each_batch(Part::test, [&](const Rows::Raw& batch) {
    const auto answer = answer_of(session, rows.problem(), batch);
    out.insert(out.end(), answer.begin(), answer.end());
    return true;
  });
  return out;
}

std::string mlmodel_text(const Problem& problem, const graph::Transform& transform, const std::string& run_id) {
  json::array inputs, outputs;
  for (const auto& column : transform.columns())
    inputs.push_back(json::object{{"type", mlflow_type(column.element())}, {"name", column.name}, {"required", true}});
  const auto tensor = [](const char* name, const char* type, json::array shape) {
    return json::object{{"type", "tensor"},
                        {"name", name},
                        {"tensor-spec", json::object{{"dtype", type}, {"shape", std::move(shape)}}}};
  };
  outputs.push_back(tensor("prediction", "float32", {-1, static_cast<std::int64_t>(problem.outputs())}));
  if (classifies(problem)) outputs.push_back(tensor("label", "str", {-1}));
  if (const auto& image = problem.image)
    inputs.push_back(tensor(image->column.c_str(), "uint8",
                            {-1, whole(image->height), whole(image->width), whole(image->channels)}));
  // A text within a text: YAML's single quotes are doubled.
  const auto quoted = [](const json::array& value) {
    std::string out = "'";
    for (const char c : json::serialize(value)) out += c == '\'' ? "''" : std::string(1, c);
    return out + "'";
  };
  return fmt::format(
      "artifact_path: model\n"
      "flavors:\n"
      "  onnx:\n"
      "    data: model.onnx\n"
      "    onnx_version: 1.12.0\n"
      "    providers: [CPUExecutionProvider]\n"
      "  python_function:\n"
      "    data: model.onnx\n"
      "    loader_module: mlflow.onnx\n"
      "run_id: {}\n"
      "signature:\n"
      "  inputs: {}\n"
      "  outputs: {}\n"
      "  params: null\n",
      run_id, quoted(inputs), quoted(outputs));
}

}  // namespace falaj::train
