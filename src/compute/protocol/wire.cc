// SPDX-License-Identifier: Apache-2.0
#include "compute/protocol/wire.h"

#include "foundation/base/text.h"

namespace falaj::protocol {

void WireReader::broken() { throw Error(Code::invalid, "the message is not whole protocol buffers"); }

std::string WireReader::text() {
  std::string value(as_text(bytes()));
  if (!is_utf8(value)) throw Error(Code::invalid, "a text of the message is no UTF-8");
  return value;
}

void WireReader::skip() {
  if (is(Wire::varint))
    varint();
  else if (is(Wire::fixed64))
    take(8);
  else if (is(Wire::length))
    bytes();
  else if (is(Wire::fixed32))
    take(4);
  else
    broken();  // groups: no message of the protocol has one
}

}  // namespace falaj::protocol
