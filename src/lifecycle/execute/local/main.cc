// SPDX-License-Identifier: Apache-2.0
// falaj-keeper: the keeper of this node's tasks, as a program of its own. Small, because every attempt begins as a copy
// of it.
#include <cstdio>
#include <string_view>

#include "lifecycle/execute/local/keeper.h"

int main(int argc, char** argv) {
  if (argc != 3 || std::string_view(argv[1]) != "--dir") {
    std::fprintf(stderr, "usage: falaj-keeper --dir DIRECTORY\n");
    return 2;
  }
  return falaj::execute::local::run_keeper({.directory = argv[2]});
}
