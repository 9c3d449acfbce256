// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of the protocol and of its clients: models that need no file, and both servers with all that they need.

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compute/protocol/grpc_server.h"
#include "compute/protocol/inference.h"
#include "compute/protocol/rest.h"
#include "foundation/base/mutex.h"
#include "foundation/net/server.h"

namespace falaj::protocol {

// Models of which every answer is known:
//   add_one     x FP32 [rows, 4] -> y = x + 1; batches of up to 32
//   echo        one input and output for each datatype, [any]: what came, under "out_" and the input's name
//   scores      x FP32 [rows, 3] -> scores, the same: to be classified
//   words       BYTES [rows, 1] -> the texts reversed
//   busy, slow, gone, secret, broken: fail with exhausted, deadline, unavailable, denied, internal
// A caller whose header Authorization is "Bearer wrong" is nobody. Answers through the loop, as batches are.
class FakeInference : public Inference {
 public:
  void admit(const Caller& caller) const override;
  void infer(const Caller& caller, Ask ask, net::Loop& loop, Done done) override;
  void predict(const Caller& caller, Predict ask, net::Loop& loop,
               std::function<void(std::variant<Predicted, Error>)> done) override;
  bool live() const override { return true; }
  bool ready() const override { return ready_; }
  bool ready(const Caller& caller, const std::string& model, const std::string& version) const override;
  Description describe(const Caller& caller, const std::string& model, const std::string& version) const override;
  std::vector<Statistics> statistics(const Caller& caller, const std::string& model,
                                     const std::string& version) const override;
  std::vector<IndexEntry> index(const Caller& caller, bool only_ready) const override;
  void load(const Caller& caller, const std::string& model) override;
  void unload(const Caller& caller, const std::string& model) override;

  void set_ready(bool ready) { ready_ = ready; }
  Ask last() const;  // of those with parameters; without its inputs
  std::uint64_t answered() const { return answered_; }

 private:
  Answer run(const Ask& ask) const;

  std::atomic<bool> ready_{true}, unloaded_{false};
  std::atomic<std::uint64_t> answered_{0};
  mutable Mutex mu_;
  Ask last_ GUARDED_BY(mu_);
};

// Both servers on ports of the kernel's choosing.
struct TestServers {
  explicit TestServers(std::optional<net::TlsFiles> tls = std::nullopt, RestLimits rest_limits = {},
                       GrpcLimits grpc_limits = {});
  sys::RealClock clock;
  sys::RealRandom random;
  sys::Ids ids{clock, random};
  Metrics metrics;
  FakeInference inference;
  Rest rest;
  net::Server http;
  GrpcServer grpc;
};

// ---- for benchmarks
// How many calls of ModelInfer a gRPC server of this process answers for each second that its threads work. `messages`
// are sent in turn by another process, which is this program again: its main must begin with drive_if_asked.
double grpc_calls_per_cpu_second(std::uint16_t port, const std::vector<std::string>& messages,
                                 const std::string& token = "");
std::optional<int> drive_if_asked(int argc, char** argv);  // what to end with, when this is the client

}  // namespace falaj::protocol
