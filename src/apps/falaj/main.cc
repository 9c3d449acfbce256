// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "apps/falaj/commands.h"
#include "cli/session.h"
#include "foundation/sys/clock.h"

int main(int argc, char** argv) {
  falaj::sys::RealClock clock;
  falaj::cli::Session session(clock, stdout);
  return falaj::cli::run(argc, argv, session, [&](CLI::App& app) { falaj::app::add_local_commands(app, session); });
}
