// SPDX-License-Identifier: Apache-2.0
// falaj-keeper: the keeper of this node's tasks, as a program of its own. Small, because every attempt begins as a copy
// of it.
#include <cstdio>
#include <string_view>

#include "lifecycle/execute/local/keeper.h"

int main(int argc, char** argv) {
  const bool stays = argc == 4 && std::string_view(argv[3]) == "--stay";
  if ((argc != 3 && !stays) || std::string_view(argv[1]) != "--dir") {
    std::fprintf(stderr, "usage: falaj-keeper --dir DIRECTORY [--stay]\n");
    return 2;
  }
  falaj::execute::local::KeeperOptions options;
  options.directory = argv[2];
  options.stays = stays;
  return falaj::execute::local::run_keeper(options);
}
