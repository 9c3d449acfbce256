// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compute/serve/lane.h"
#include "foundation/base/shape.h"
#include "foundation/sys/descriptor.h"

namespace falaj::serve {

// How requests are listened for and run; the same for every worker that one supervisor starts.
struct WorkerSettings {
  std::string listen = "127.0.0.1";  // where the given socket listens
  std::string grpc;                  // HOST:PORT; "": no gRPC
  std::string certificate_file, key_file, client_ca_file;
  std::string models;   // directory of verified model files, by digest, and of the plan
  std::string runtime;  // ONNX Runtime's library
  std::string online;   // directory of the online store; "": there is none on this machine
  bool redis = false;   // the supervisor makes connections to it
  std::int64_t http_threads = 1, grpc_threads = 1;
  std::int64_t slow_threads = 0;  // for calls that take long; 0: as many as there are processors
  std::int64_t memory_bytes = 0;  // most that a worker may take; 0: three quarters of the machine's
  std::int64_t body_bytes_max = std::int64_t{64} << 20;
  std::int64_t connections_max = 10'000;
  std::vector<std::string> host_names;
  bool require_sandbox = true;  // no model is run where files cannot be kept from it
  bool has_plan = false;        // what is served is told at once: connections wait for it rather than be refused
};

inline constexpr std::size_t kPlanBytesMax = std::size_t{256} << 20;
inline constexpr const char* kPlanFile = "plan.json";
// The one before it that was here whole, while models of the plan are not.
inline constexpr const char* kPlanBefore = "plan-before.json";
std::string model_file(const std::string& sha256);  // below WorkerSettings::models

// What a worker may read: what the runtime and libraries look at, and its own files one by one.
std::vector<std::string> readable_for(const WorkerSettings& settings);

// The process that listens and runs models, told what to serve through `link`. Returns when it is told to stop, or the
// link ends. `dial` gives connections to Redis (dial.h). Confines itself before it reads the first model.
int run_worker(sys::Descriptor link, sys::Descriptor listening, sys::Descriptor dial, CrashNote& note);

}  // namespace falaj::serve

template <>
struct falaj::Shape<falaj::serve::WorkerSettings> {
  using T = serve::WorkerSettings;
  static constexpr std::string_view name = "WorkerSettings";
  static Fields fields() {
    return {field("listen", &T::listen, ""),
            field("grpc", &T::grpc, ""),
            field("certificate_file", &T::certificate_file, ""),
            field("key_file", &T::key_file, ""),
            field("client_ca_file", &T::client_ca_file, ""),
            field("models", &T::models, ""),
            field("runtime", &T::runtime, ""),
            field("online", &T::online, ""),
            field("redis", &T::redis, ""),
            field("http_threads", &T::http_threads, ""),
            field("grpc_threads", &T::grpc_threads, ""),
            field("slow_threads", &T::slow_threads, ""),
            field("memory_bytes", &T::memory_bytes, ""),
            field("body_bytes_max", &T::body_bytes_max, ""),
            field("connections_max", &T::connections_max, ""),
            field("host_names", &T::host_names, ""),
            field("require_sandbox", &T::require_sandbox, ""),
            field("has_plan", &T::has_plan, "")};
  }
};
