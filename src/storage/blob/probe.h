// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "foundation/base/metrics.h"

namespace falaj::blob {

// Every number this module exports.
struct Probe {
  explicit Probe(Metrics& metrics)
      : bytes_put(metrics.counter("falaj_blob_content_bytes_total", "Bytes of content put and got.", {{"way", "put"}})),
        bytes_got(metrics.counter("falaj_blob_content_bytes_total", "Bytes of content put and got.", {{"way", "get"}})),
        bytes_stored(metrics.counter("falaj_blob_stored_bytes_total", "Bytes written to the backend.")),
        blocks_stored(blocks(metrics, "stored")),
        blocks_known(blocks(metrics, "known")),
        blocks_repaired(blocks(metrics, "repaired")),
        blocks_damaged(blocks(metrics, "damaged")),
        blocks_collected(blocks(metrics, "collected")),
        zone_refusals(
            metrics.counter("falaj_blob_zone_refusals_total", "Reads refused because they would leave the zone.")) {}

  Counter &bytes_put, &bytes_got, &bytes_stored;
  Counter &blocks_stored, &blocks_known, &blocks_repaired, &blocks_damaged, &blocks_collected;
  Counter& zone_refusals;

 private:
  static Counter& blocks(Metrics& metrics, const char* outcome) {
    return metrics.counter("falaj_blob_blocks_total", "Blocks by what became of them.", {{"outcome", outcome}});
  }
};

}  // namespace falaj::blob
