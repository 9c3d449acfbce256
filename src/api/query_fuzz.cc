// SPDX-License-Identifier: Apache-2.0
// Any text as a query: read as the server reads a head, made the typed filter of a list, or refused with an Error. What
// is accepted keeps its bounds and means the same when it is written out and read again.
#include <cstddef>
#include <cstdint>
#include <string>

#include "api/call.h"
#include "api/page.h"
#include "api/route.h"
#include "foundation/net/parse.h"

namespace {

// One member of each type that a query can have.
struct Filters {
  std::string selector, cursor, outcome;
  std::int64_t limit = falaj::api::kPageItems;
  std::optional<std::int64_t> to_us;
  std::optional<std::string> principal;
  std::vector<std::string> verbs;
  std::vector<std::int64_t> numbers;
  bool deleted = false;
};
constexpr std::string_view kOutcomes[] = {"ok", "denied"};

}  // namespace

template <>
struct falaj::Shape<Filters> {
  [[maybe_unused]] static constexpr std::string_view name = "Filters";
  static Fields fields() {
    return {field("selector", &Filters::selector, "").length(0, 32),
            field("cursor", &Filters::cursor, ""),
            field("outcome", &Filters::outcome, "").one_of(kOutcomes),
            field("limit", &Filters::limit, "").range(1, api::kPageItemsMax),
            field("to_us", &Filters::to_us, ""),
            field("principal", &Filters::principal, ""),
            field("verbs", &Filters::verbs, "").length(0, 4),
            field("numbers", &Filters::numbers, "").length(0, 4),
            field("deleted", &Filters::deleted, "")};
  }
};

using namespace falaj;
using namespace falaj::api;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text = "GET /v1/things?";
  text.append(reinterpret_cast<const char*>(data), size);
  text += " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  net::Head head;
  net::Message message;
  if (net::parse_head(text, 100, head, message)) return 0;
  try {
    (void)Permission::of("thing.list", "{scope}").needed({}, head, {});
  } catch (const Error& e) {
    CHECK(e.code() == Code::invalid, "a wrong scope is the caller's fault");
  }
  try {
    const auto filters = decode<Filters>(detail::query_object(shape::fields_of<Filters>(), head), "request");
    CHECK(filters.limit >= 1 && filters.limit <= kPageItemsMax, "the limit of a page holds");
    CHECK(filters.selector.size() <= 32 && filters.verbs.size() <= 4 && filters.numbers.size() <= 4, "lengths hold");
    CHECK(filters.outcome.empty() || filters.outcome == "ok" || filters.outcome == "denied", "words hold");
    CHECK(encode(decode<Filters>(encode(filters), "again")) == encode(filters), "a filter is read back the same");
  } catch (const Error& e) {
    CHECK(e.code() == Code::invalid, "a wrong query is the caller's fault");
  }
  return 0;
}
