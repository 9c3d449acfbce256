// SPDX-License-Identifier: Apache-2.0
// Any bytes are refused as invalid with messages that can be shown, or are a model that can be read, written and read
// again without changing.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "compute/graph/graph.h"
#include "foundation/base/text.h"

using namespace falaj;
using namespace falaj::graph;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Limits limits;
  limits.nodes = limits.tensors = 1'000;
  limits.values = limits.attributes = limits.texts = 10'000;
  limits.tensor_bytes = 1 << 20;
  try {
    const Graph first = parse({reinterpret_cast<const std::byte*>(data), size}, limits);
    limits.bytes = std::size_t{1} << 30;
    limits.values *= 2;                              // a domain left out is written
    const Bytes written = serialise(first, limits);  // compared as bytes: not-a-number differs from itself
    if (serialise(parse(written, limits), limits) != written) std::abort();
  } catch (const Error& error) {
    if (error.code() != Code::invalid || !is_utf8(error.what())) std::abort();
    for (const auto& fault : error.faults())
      if (!is_utf8(fault.where) || !is_utf8(fault.what)) std::abort();
  }
  return 0;
}
