// SPDX-License-Identifier: Apache-2.0
// http_load PORT SECONDS CONNECTIONS FILE...: keeps a request under way on each connection to 127.0.0.1, those that the
// files hold in turn, and says as JSON how many answers came. A client that is faster than the servers it compares.
#include <cstdio>
#include <vector>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/base/text.h"
#include "tests/load/open_load.h"
#include "tests/program.h"

int main(int argc, char** argv) {
  using namespace falaj;
  using namespace falaj::tests;
  if (argc < 5) {
    std::fprintf(stderr, "usage: http_load PORT SECONDS CONNECTIONS FILE...\n");
    return 2;
  }
  try {
    const auto number = [&](int i) { return parse_int(argv[i]).value_or(1); };
    std::vector<std::string> texts;
    for (int i = 4; i < argc; ++i) texts.push_back(read_text(argv[i]));
    const Conversation conversation{[&](std::uint64_t n, std::string& request) { request = texts[n % texts.size()]; },
                                    [](std::uint64_t, std::string_view) { return std::string(); }};
    const auto got =
        offer(static_cast<std::uint16_t>(number(1)),
              {0, static_cast<double>(number(2)), static_cast<std::size_t>(number(3))}, conversation, sys::RealClock());
    std::puts(json::serialize(json::object{{"rate", got.rate()},
                                           {"answers", got.answers},
                                           {"refused", got.refused},
                                           {"p50_ms", got.percentile_us(0.5) / 1e3},
                                           {"p99_ms", got.percentile_us(0.99) / 1e3},
                                           {"trouble", got.first_trouble}})
                  .c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "http_load: %s\n", error.what());
    return 2;
  }
}
