// SPDX-License-Identifier: Apache-2.0
#include "compute/protocol/grpc_server.h"

#include <algorithm>
#include <climits>
#include <vector>

#include <fmt/format.h>

#include "compute/protocol/grpc_call.h"
#include "compute/protocol/grpc_library.h"
#include "compute/protocol/grpc_loop.h"
#include "compute/protocol/grpc_peer.h"
#include "foundation/base/log.h"

namespace falaj::protocol {
namespace {

constexpr int kAwaitedCalls = 64;  // of a thread: those that come together are all taken at once
constexpr int kMetadataBytesMax = 16 * 1024;
constexpr int kStreamsMax = 1'000;  // calls of one connection
constexpr int kPingSecondsMin = 5;  // clients that ping more often are cut off

// What gRPC has to say goes where our own words go. Its errors are mostly those of clients (a failed handshake), which
// could fill a log.
void log_of_grpc(gpr_log_func_args* said) {
  log::debug("grpc", {{"what", said->message}, {"file", said->file}, {"line", said->line}});
}

std::string place_of(const std::string& host, std::uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace

struct GrpcServer::Rep {
  Rep(const std::string& host, std::uint16_t wanted_port, const std::optional<net::TlsFiles>& tls,
      const GrpcLimits& limits, Inference& inference, const sys::Clock& clock, sys::Ids& ids, Metrics& metrics)
      : shared(limits, inference, clock, ids, metrics) {
    gpr_set_log_function(log_of_grpc);
    grpc::ServerBuilder builder;
    int bound = 0;
    builder.AddListeningPort(place_of(host, wanted_port), credentials_of(tls), &bound);
    builder.RegisterAsyncGenericService(&shared.service);
    builder.SetMaxReceiveMessageSize(static_cast<int>(std::min<std::size_t>(limits.message_bytes_max, INT_MAX)));
    builder.SetMaxSendMessageSize(INT_MAX);
    builder.SetResourceQuota(grpc::ResourceQuota("falaj").Resize(limits.memory_bytes_max));
    // A second server must not share the port unnoticed.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, limits.share_port ? 1 : 0);
    builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);  // GrpcCall does it, within the limit
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsMax);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kPingSecondsMin * 1000);
    for (std::size_t i = 0; i < std::max<std::size_t>(1, limits.threads); ++i)
      loops.push_back(std::make_unique<GrpcLoop>(limits.first_loop + i, builder.AddCompletionQueue(), clock));
    server = builder.BuildAndStart();
    if (!server || bound == 0) {
      close();
      throw Error(Code::unavailable, fmt::format("listen on {} for gRPC failed", place_of(host, wanted_port)));
    }
    port = static_cast<std::uint16_t>(bound);
    for (auto& loop : loops) {
      for (int i = 0; i < kAwaitedCalls; ++i) GrpcCall::await(shared, *loop);
      loop->start();
    }
  }

  void stop(std::int64_t drain_us) {
    if (stopped) return;
    stopped = true;
    shared.accepting = false;
    server->Shutdown(gpr_time_from_micros(drain_us, GPR_TIMESPAN));
    {
      Lock lock(shared.mu);
      while (shared.objects > 0) lock.wait(shared.none_left);
    }
    close();
  }

  void close() {
    for (auto& loop : loops) loop->close();
  }

  GrpcShared shared;
  std::vector<std::unique_ptr<GrpcLoop>> loops;
  std::unique_ptr<grpc::Server> server;
  std::uint16_t port = 0;
  bool stopped = false;
};

GrpcServer::GrpcServer(const std::string& host, std::uint16_t port, const std::optional<net::TlsFiles>& tls,
                       GrpcLimits limits, Inference& inference, const sys::Clock& clock, sys::Ids& ids,
                       Metrics& metrics)
    : rep_(std::make_unique<Rep>(host, port, tls, limits, inference, clock, ids, metrics)) {}

GrpcServer::~GrpcServer() { stop(0); }

std::uint16_t GrpcServer::port() const { return rep_->port; }

void GrpcServer::stop(std::int64_t drain_us) { rep_->stop(drain_us); }

}  // namespace falaj::protocol
