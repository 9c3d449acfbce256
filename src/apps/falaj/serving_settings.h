// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "foundation/base/shape.h"

namespace falaj::app {

// Of the falaj-serve that the control plane starts.
struct ServingSettings {
  bool local = true;
  std::string listen = "127.0.0.1:8480", grpc = "127.0.0.1:8481";
  std::int64_t threads = 1, grpc_threads = 1, slow_threads = 0;
  std::int64_t memory = 0;
  bool require_sandbox = true;
};

}  // namespace falaj::app

namespace falaj {

template <>
struct Shape<app::ServingSettings> {
  using T = app::ServingSettings;
  static constexpr std::string_view name = "ServingSettings";
  static Fields fields() {
    return {
        field("local", &T::local, "Whether falaj-serve is started on this machine once an endpoint is declared."),
        field("listen", &T::listen, "Its HOST:PORT for HTTP; any free port where ours is any free one.").length(1, 256),
        field("grpc", &T::grpc, "Its HOST:PORT for gRPC; empty = none.").length(0, 256),
        field("threads", &T::threads, "Of it that read HTTP and run models.").range(1, 256),
        field("grpc_threads", &T::grpc_threads, "Of it that read gRPC and run models.").range(1, 256),
        field("slow_threads", &T::slow_threads,
              "Of it for calls that take a millisecond or more; 0 = as many as there are processors.")
            .range(0, 256),
        field("memory", &T::memory,
              "Most that its models may take in all: what wants more fails; 0 = three quarters of the machine's.")
            .bytes()
            .range(0, std::int64_t{1} << 50),
        field("require_sandbox", &T::require_sandbox,
              "Whether it refuses to start on a kernel that cannot keep files from models (Landlock: Linux 5.13).")};
  }
};

}  // namespace falaj
