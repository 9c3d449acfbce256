// SPDX-License-Identifier: Apache-2.0
// A row from a store that lies: it is refused, belongs to another layout, or is read within its bounds.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "foundation/base/error.h"
#include "storage/online/row.h"
#include "storage/online/space.h"

using namespace falaj;
using namespace falaj::online;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const RowLayout layout(3, {Type::text, Type::boolean, Type::int32, Type::float64, Type::bytes, Type::int64,
                                    Type::float32, Type::date, Type::timestamp, Type::text});
  static const Space clear = Space::in_the_clear(as_bytes("fuzz"));
  static const Space sealed = [] {
    std::vector<NumberedKey> keys;
    keys.push_back({1, crypto::Key::random()});
    return Space(as_bytes("fuzz"), crypto::Key::random(), std::move(keys));
  }();
  const BytesView input(reinterpret_cast<const std::byte*>(data), size);
  const Address address = clear.address(as_bytes("a"));
  for (const auto* space : {&clear, &sealed}) try {
      Bytes opened(Space::payload_size(input));
      Space::Opening opening(*space);
      const auto stored = opening.open(address, input, opened.data());
      if (space == &sealed) std::abort();  // nobody guesses a tag
      const auto row = layout.view(stored.payload);
      if (!row) continue;
      std::size_t sum = 0;
      for (const std::size_t i : {0, 4, 9})
        for (const auto b : row->bytes(i)) sum += static_cast<std::size_t>(b);
      if (sum == 1 && row->integer(5) == 1 && row->real(3) == 1 && row->boolean(1)) return 0;
    } catch (const Error& error) {
      if (error.code() != Code::corrupt && error.code() != Code::denied) std::abort();
    }
  return 0;
}
