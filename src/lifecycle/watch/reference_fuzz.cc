// SPDX-License-Identifier: Apache-2.0
// References of models that lie: reading throws corrupt, or gives one that windows can be compared with.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "foundation/base/error.h"
#include "lifecycle/watch/look.h"

using namespace falaj;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto reference = watch::read_reference(std::string_view(reinterpret_cast<const char*>(data), size), "it");
    watch::Window window;
    for (const auto& [name, column] : reference.columns)
      for (int i = 0; i < 60; ++i) {
        if (column.sketch.holds == traffic::ColumnSketch::Holds::texts)
          window.columns[name].add(std::string_view(i % 3 ? "a" : ""));
        else
          window.columns[name].add(i * 1e300);
      }
    const auto looked = watch::look(reference, {}, {}, window);
    (void)decode<std::vector<watch::Finding>>(parse_json(json::serialize(encode(looked.findings))), "findings");
    (void)decode<std::vector<watch::ColumnSeen>>(parse_json(json::serialize(encode(looked.columns))), "columns");
  } catch (const Error& error) {
    if (error.code() != Code::corrupt) std::abort();
  }
  return 0;
}
