// SPDX-License-Identifier: Apache-2.0
#include "compute/infer/view.h"

namespace falaj::infer {

TensorView TensorView::rows(std::size_t first, std::size_t count) const {
  CHECK(shape.rank() > 0 && first + count <= static_cast<std::size_t>(shape[0]), "rows that are there");
  TensorView out = *this;
  const auto all = static_cast<std::size_t>(shape[0]);
  out.shape[0] = static_cast<std::int64_t>(count);
  if (all == 0) return out;
  const std::size_t bytes_each = bytes.size() / all, texts_each = texts.size() / all;
  out.bytes = bytes.subspan(first * bytes_each, count * bytes_each);
  out.texts = texts.subspan(first * texts_each, count * texts_each);
  return out;
}

graph::Tensor copy_of(const TensorView& view) {
  graph::Tensor out;
  copy_into(out, view);
  return out;
}

void copy_into(graph::Tensor& to, const TensorView& view) {
  const auto sizes = view.shape.sizes();
  to.element = view.element;
  to.sizes.assign(sizes.begin(), sizes.end());
  to.bytes.assign(view.bytes.begin(), view.bytes.end());
  to.texts.assign(view.texts.begin(), view.texts.end());
}

}  // namespace falaj::infer
