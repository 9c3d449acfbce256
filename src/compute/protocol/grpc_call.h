// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to the gRPC server.

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "compute/protocol/grpc_library.h"
#include "compute/protocol/grpc_loop.h"
#include "compute/protocol/grpc_methods.h"
#include "compute/protocol/grpc_server.h"
#include "compute/protocol/tensors.h"
#include "foundation/base/mutex.h"

namespace falaj::protocol {

// What all calls of a server share.
struct GrpcShared {
  GrpcShared(const GrpcLimits& limits, Inference& inference, const sys::Clock& clock, sys::Ids& ids, Metrics& metrics);
  void count(const GrpcMethod& method, const grpc::Status& status, std::int64_t micros);

  const GrpcLimits limits;
  Inference& inference;
  const sys::Clock& clock;
  sys::Ids& ids;
  grpc::AsyncGenericService service;

  // Objects, those that wait for a call among them: all are gone before the queues may end.
  Mutex mu;
  std::condition_variable none_left;
  std::size_t objects GUARDED_BY(mu) = 0;
  std::atomic<bool> accepting{true};
  std::atomic<std::size_t> under_way{0};

 private:
  struct Probe {
    Histogram* seconds;
    std::array<Counter*, 17> by_code;
  };
  std::vector<Probe> probes_;  // as grpc_methods()
};

// One call, unary or a stream, from waiting for it to its end. Lives on its loop's thread and deletes itself.
class GrpcCall {
 public:
  // Waits for the next call. Requires: the loop runs, or is about to.
  static void await(GrpcShared& shared, GrpcLoop& loop);

 private:
  // Which operation has ended.
  struct Step final : GrpcEvent {
    Step(GrpcCall& of, void (GrpcCall::*next)(bool)) : call(of), then(next) {}
    void happened(bool ok) override { (call.*then)(ok); }
    GrpcCall& call;
    void (GrpcCall::*then)(bool);
  };
  struct Question {  // one request of it to a model
    grpc::Slice message;
    Asked asked;
    std::string model, version;
  };

  GrpcCall(GrpcShared& shared, GrpcLoop& loop);
  ~GrpcCall();
  void accepted(bool ok);
  void received(bool ok);
  void written(bool ok);
  void finished(bool ok);

  void begin();
  Caller caller() const;
  void infer();
  void answer(const Question& question, Outcome&& outcome);
  void fail(const Question& question, const Error& error);
  void send(grpc::Slice message);
  void finish(const grpc::Status& status);
  void go_on();  // of a stream: read, write or finish, whichever may be
  bool is_stream() const { return method_ && method_->kind == GrpcMethod::Kind::stream_infer; }

  GrpcShared& shared_;
  GrpcLoop& loop_;
  const GrpcMethod* method_ = nullptr;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  grpc::ByteBuffer incoming_;
  net::Headers headers_;
  net::Peer peer_;
  std::string request_id_;
  std::int64_t begun_us_ = 0;
  grpc::Status status_;
  bool counted_ = false;  // among those under way

  // Of a stream.
  std::deque<grpc::Slice> outgoing_;
  std::size_t asking_ = 0;  // requests that are not answered yet
  bool reading_ = false, writing_ = false, all_read_ = false, gone_ = false, finishing_ = false, ended_ = false;

  Step accepted_{*this, &GrpcCall::accepted}, received_{*this, &GrpcCall::received};
  Step written_{*this, &GrpcCall::written}, finished_{*this, &GrpcCall::finished};
};

}  // namespace falaj::protocol
