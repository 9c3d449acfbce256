// SPDX-License-Identifier: Apache-2.0
// Stored sketches that lie: decoding throws corrupt, or gives a sketch that works and is written as it was read.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "foundation/base/error.h"
#include "foundation/stats/distance.h"
#include "foundation/stats/distinct.h"
#include "foundation/stats/frequent.h"
#include "foundation/stats/moments.h"
#include "foundation/stats/row_sample.h"

using namespace falaj;
using namespace falaj::stats;

namespace {

template <class Sketch, class Use>
void run(BytesView input, Use use) {
  try {
    ByteReader in(input);
    auto sketch = Sketch::decode(in);
    ByteWriter out;
    sketch.encode(out);
    ByteReader again_in(out.bytes());
    auto again = Sketch::decode(again_in);
    ByteWriter out_again;
    again.encode(out_again);
    if (out.bytes() != out_again.bytes()) std::abort();
    use(sketch);
    sketch.merge(again);
  } catch (const Error& error) {
    if (error.code() != Code::corrupt) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const BytesView input(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      run<Moments>(input, [](Moments& m) { m.add(m.mean()); });
      break;
    case 1:
      run<Distinct>(input, [](Distinct& d) {
        if (!(d.estimate() >= 0)) std::abort();
        d.add("x");
      });
      break;
    case 2:
      run<Quantiles>(input, [](Quantiles& q) {
        (void)ks(q, q);
        (void)edges(q, 10);
        (void)q.quantile(0.5);
        for (int i = 0; i < 2000; ++i) q.add(i);
      });
      break;
    case 3:
      run<Frequent>(input, [](Frequent& f) {
        (void)f.top(3);
        f.add("x");
      });
      break;
    default:
      run<RowSample>(input, [](RowSample& s) {
        if (s.rows().count() != s.count()) std::abort();
        s.set_limit(7);
      });
  }
  return 0;
}
