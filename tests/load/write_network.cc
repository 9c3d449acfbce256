// SPDX-License-Identifier: Apache-2.0
// write_network FILE: the network 64-256-256-10 that benchmarks of serving use, as ONNX.
#include <cstdio>
#include <fstream>

#include "compute/infer/testing.h"
#include "foundation/base/bytes.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_network FILE\n");
    return 2;
  }
  std::ofstream out(argv[1], std::ios::binary);
  out << falaj::as_text(falaj::infer::network_model());
  return out.flush() ? 0 : 1;
}
