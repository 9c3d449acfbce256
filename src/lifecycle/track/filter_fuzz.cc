// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/track/filter.h"

namespace {

using namespace falaj;
using namespace falaj::track;

// Accepted within its bounds, or refused with invalid and a message that is no longer than a person reads.
void read(std::string_view text, const Grammar& grammar) {
  const auto refused_well = [&](const Error& error) {
    CHECK(error.code() == Code::invalid, "refused with another code");
    const std::string_view message = error.what();
    CHECK(message.size() < 512, "a message that repeats too much");
    CHECK(is_utf8(message) || !is_utf8(text), "a message that cuts a character");
  };
  try {
    const auto comparisons = parse_filter(text, grammar);
    CHECK(comparisons.size() <= kFilterComparisonsMax, "more comparisons than allowed");
    for (const Comparison& comparison : comparisons) {
      CHECK(!comparison.key.empty(), "a comparison of nothing");
      CHECK(comparison.list.size() <= kFilterListMax, "a longer list than allowed");
      const bool in_list = comparison.op == Op::in || comparison.op == Op::not_in;
      CHECK(in_list == !comparison.list.empty(), "a list where none belongs, or none where one does");
      like(comparison.text, text, true);
    }
  } catch (const Error& error) {
    refused_well(error);
  }
  try {
    const std::string item(text);
    CHECK(parse_order_by(std::span(&item, 1), grammar).size() == 1, "one item is one order");
  } catch (const Error& error) {
    refused_well(error);
  }
}

}  // namespace

// The first byte chooses the kind of thing that is searched.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Grammar* const kGrammars[] = {&kRunGrammar, &kExperimentGrammar, &kRegisteredModelGrammar,
                                             &kModelVersionGrammar, &kLoggedModelGrammar};
  if (size == 0) return 0;
  read({reinterpret_cast<const char*>(data) + 1, size - 1}, *kGrammars[data[0] % std::size(kGrammars)]);
  return 0;
}
