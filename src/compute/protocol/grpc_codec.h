// SPDX-License-Identifier: Apache-2.0
#pragma once

// ModelInfer's messages, in and out of protocol buffers. Pure.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "compute/protocol/tensors.h"

namespace falaj::protocol {

// A ModelInferRequest. Raw inputs refer to `message`. Throws invalid.
Asked decode_model_infer(BytesView message);

// A ModelInferResponse: the tensors always raw, as clients read them. With `streamed`, the ModelStreamInferResponse
// around it, which says that nothing follows. Tensors are copied once, by `write`.
class EncodedInfer {
 public:
  EncodedInfer(const Asked& asked, Answer answer, bool streamed);
  std::size_t size() const { return size_; }
  void write(std::byte* out) const;

 private:
  std::string head_;
  std::vector<graph::Tensor> tensors_;
  std::size_t size_ = 0;
};

// A ModelStreamInferResponse for a request that failed.
std::string encode_stream_failure(std::string_view model, std::string_view version, std::string_view id,
                                  std::string_view why);

}  // namespace falaj::protocol
