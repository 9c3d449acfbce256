// SPDX-License-Identifier: Apache-2.0
#include "compute/infer/rows.h"

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "compute/infer/model.h"
#include "foundation/base/error.h"

namespace falaj::infer {

using graph::Element;
using graph::Port;
using graph::Tensor;

namespace {

constexpr std::size_t kValuesMax = 16 << 20;  // of one row of all inputs; more is believed

template <class T>
void fill_with(Tensor& tensor, std::mt19937_64& random) {
  for (T& value : tensor.values<T>()) {
    if constexpr (std::is_floating_point_v<T>)
      value = static_cast<T>(static_cast<double>(random() % 1000) / 500 - 1);
    else
      value = static_cast<T>(random() % 2);  // often an index: small ones are there
  }
}

// A row of made-up values; sizes that each call decides are 1.
Tensor made_up(const Port& port, std::mt19937_64& random) {
  graph::Sizes sizes = {1};
  for (std::size_t at = 1; at < port.shape.size(); ++at) {
    const auto* size = std::get_if<std::int64_t>(&port.shape[at]);
    sizes.push_back(size ? *size : 1);
  }
  Tensor out = Tensor::empty(port.element, std::move(sizes));
  switch (port.element) {
    case Element::float32:
      fill_with<float>(out, random);
      break;
    case Element::float64:
      fill_with<double>(out, random);
      break;
    case Element::int64:
      fill_with<std::int64_t>(out, random);
      break;
    case Element::int32:
      fill_with<std::int32_t>(out, random);
      break;
    case Element::uint8:
    case Element::boolean:
      fill_with<std::uint8_t>(out, random);
      break;
    case Element::text:
      for (auto& text : out.texts) text = std::to_string(random() % 2);
      break;
    default:
      break;  // zeros
  }
  return out;
}

template <class T>
bool near(BytesView a, BytesView b) {
  for (std::size_t at = 0; at + sizeof(T) <= a.size(); at += sizeof(T)) {
    T x, y;
    std::memcpy(&x, a.data() + at, sizeof x);
    std::memcpy(&y, b.data() + at, sizeof y);
    if (std::isnan(x) != std::isnan(y)) return false;
    if (x != y && std::fabs(x - y) > static_cast<T>(1e-3) * std::max(std::fabs(x), T{1})) return false;
  }
  return true;
}

bool same(const TensorView& a, const TensorView& b) {
  if (!(a.shape == b.shape) || a.element != b.element) return false;
  switch (a.element) {
    case Element::float32:
      return near<float>(a.bytes, b.bytes);
    case Element::float64:
      return near<double>(a.bytes, b.bytes);
    case Element::float16:
    case Element::bfloat16:
      return true;  // too coarse to compare
    case Element::text:
      return std::equal(a.texts.begin(), a.texts.end(), b.texts.begin(), b.texts.end());
    default:
      return std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end());
  }
}

std::vector<TensorView> views(const std::vector<Tensor>& tensors, std::vector<std::vector<std::string_view>>& texts) {
  std::vector<TensorView> out;
  texts.assign(tensors.size(), {});
  for (std::size_t at = 0; at < tensors.size(); ++at) {
    texts[at].assign(tensors[at].texts.begin(), tensors[at].texts.end());
    out.push_back(TensorView::of(tensors[at], texts[at]));
  }
  return out;
}

enum class Answer { yes, no, maybe };

// What the sizes say. Some exporters give labels one row, whatever comes in: maybe.
Answer declared(const std::vector<Port>& inputs, const std::vector<Port>& outputs) {
  std::string called;
  Answer out = Answer::yes;
  for (const auto* ports : {&inputs, &outputs}) {
    for (const auto& port : *ports) {
      if (port.shape.empty()) return Answer::no;
      if (ports == &outputs && port.shape[0] == graph::Dimension(std::int64_t{1})) {
        out = Answer::maybe;
        continue;
      }
      const auto* symbol = std::get_if<std::string>(&port.shape[0]);
      if (!symbol || (!symbol->empty() && !called.empty() && *symbol != called)) return Answer::no;
      if (!symbol->empty()) called = *symbol;
    }
  }
  return inputs.empty() || outputs.empty() ? Answer::no : out;
}

Answer tried(const Model& model) {
  std::mt19937_64 random(1);
  std::array<std::vector<Tensor>, 3> rows;  // two of them, and both
  std::size_t values = 0;
  for (const auto& port : model.inputs()) {
    std::size_t each = 1;
    for (std::size_t at = 1; at < port.shape.size(); ++at)
      if (const auto* size = std::get_if<std::int64_t>(&port.shape[at])) each *= static_cast<std::size_t>(*size);
    if (each > kValuesMax || (values += each) > kValuesMax) return Answer::maybe;
    for (std::size_t k = 0; k < 2; ++k) rows[k].push_back(made_up(port, random));
    Tensor both = rows[0].back();
    const Tensor& second = rows[1].back();
    both.sizes[0] = 2;
    both.bytes.insert(both.bytes.end(), second.bytes.begin(), second.bytes.end());
    both.texts.insert(both.texts.end(), second.texts.begin(), second.texts.end());
    rows[2].push_back(std::move(both));
  }
  std::array<Outputs, 3> made;
  try {
    for (std::size_t k = 0; k < rows.size(); ++k) {
      std::vector<std::vector<std::string_view>> texts;
      made[k] = model.run(views(rows[k], texts));
    }
  } catch (const Error&) {
    return Answer::maybe;
  }
  for (std::size_t at = 0; at < model.outputs().size(); ++at) {
    const TensorView& both = made[2].tensors()[at];
    if (both.shape.rank() == 0 || both.shape[0] != 2) return Answer::no;
    for (std::size_t k = 0; k < 2; ++k)
      if (!same(both.rows(k, 1), made[k].tensors()[at])) return Answer::no;
  }
  return Answer::yes;
}

}  // namespace

bool has_rows_first(const Model& model) {
  const Answer said = declared(model.inputs(), model.outputs());
  if (said == Answer::no) return false;
  const Answer seen = tried(model);
  return seen == Answer::yes || (seen == Answer::maybe && said == Answer::yes);
}

}  // namespace falaj::infer
