// SPDX-License-Identifier: Apache-2.0
#include "tests/load/open_load.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/net/load.h"

namespace falaj::tests {

double Loaded::percentile_us(double p) const {
  if (latencies_us.empty()) return 0;
  const auto at = static_cast<std::size_t>(p * static_cast<double>(latencies_us.size()));
  return latencies_us[std::min(at, latencies_us.size() - 1)];
}

Loaded offer(std::uint16_t port, const Load& load, const Conversation& conversation, const sys::Clock& clock) {
  Loaded out;
  out.latencies_us.reserve(static_cast<std::size_t>(load.seconds * std::max(load.per_second, 20'000.0)));
  net::Talk talk;
  talk.ask = conversation.asked;
  talk.hear = [&](const net::Heard& heard) {
    if (heard.what == net::Heard::What::broken || heard.what == net::Heard::What::late)
      throw Error(Code::unavailable, std::string(heard.body));
    out.latencies_us.push_back(static_cast<std::uint32_t>(heard.latency_us));
    if (heard.what == net::Heard::What::unsent || heard.status != 200) {
      if (++out.refused; out.first_trouble.empty())
        out.first_trouble = fmt::format("{}: {}", heard.status, heard.body.substr(0, 200));
      return;
    }
    ++out.answers;
    if (const auto wrong = conversation.answered(heard.number, heard.body); !wrong.empty())
      if (++out.wrong; out.first_trouble.empty()) out.first_trouble = wrong;
  };
  out.seconds =
      net::offer_load({"127.0.0.1", port}, {load.per_second, load.seconds, load.connections}, talk, clock).seconds;
  std::sort(out.latencies_us.begin(), out.latencies_us.end());
  return out;
}

}  // namespace falaj::tests
