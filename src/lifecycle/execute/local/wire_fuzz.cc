// SPDX-License-Identifier: Apache-2.0
// What comes through the keeper's socket, from either side, in any pieces.
#include "foundation/base/error.h"
#include "lifecycle/execute/local/launch_check.h"
#include "lifecycle/execute/local/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace falaj;
  using namespace falaj::execute::local;
  const BytesView input(reinterpret_cast<const std::byte*>(data), size);
  try {
    const Question question = decode_question(input);
    const Bytes again = encode(question);
    CHECK(encode(decode_question(BytesView(again).subspan(4))) == again, "a question changes on the way");
    check(question.order, "/keeper");
  } catch (const Error&) {
  }
  try {
    const Bytes again = encode(decode_statement(input));
    CHECK(encode(decode_statement(BytesView(again).subspan(4))) == again, "a statement changes on the way");
  } catch (const Error&) {
  }
  try {
    Frames frames;
    frames.add(input);
    while (frames.next()) {
    }
  } catch (const Error&) {
  }
  return 0;
}
