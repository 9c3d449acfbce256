// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <string_view>

#include "foundation/base/error.h"
#include "lifecycle/execute/slurm/ending.h"
#include "lifecycle/execute/slurm/wire.h"

// What Slurm, and jobs on its nodes, put before us: srun's words, records, answers in JSON.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace falaj;
  using namespace falaj::execute::slurm;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Evidence evidence;
  evidence.claimed = size % 2 == 0;
  evidence.end = parse_end(text);
  evidence.used = parse_used(text).value_or(execute::Used{});
  evidence.status = evidence.refused = text;
  if (size % 3 != 0) evidence.refused.clear();
  for (const auto stop : {Stop::none, Stop::asked, Stop::time_limit}) {
    evidence.stop = stop;
    const auto ending = judge(evidence);
    CHECK(ending.signal >= 0 && ending.signal <= 64, "a signal there is");
    CHECK(!name_of(ending.reason).empty(), "a reason there is");
  }
  (void)parse_claim(text);
  for (const auto& [type, count] : gpus_of(text)) CHECK(count >= 0 && count <= 1024, "so many GPUs a node may have");
  try {
    const auto answer = parse_json(text);
    (void)refusal_of(answer);
    for (const auto& job : jobs_of(answer)) evidence.job = job;
    (void)judge(evidence);
    (void)nodes_of(answer, "", execute::Isolation::none);
  } catch (const Error& error) {
    CHECK(error.code() == Code::invalid || error.code() == Code::unavailable, "nothing else");
  }
  return 0;
}
