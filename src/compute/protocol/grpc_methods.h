// SPDX-License-Identifier: Apache-2.0
#pragma once

// The calls of the protocol over gRPC. Private to the gRPC server.

#include <span>
#include <string>
#include <string_view>

#include "compute/protocol/inference.h"

namespace falaj::protocol {

struct GrpcMethod {
  enum class Kind { unary, infer, stream_infer };
  std::string_view service, call;
  Kind kind = Kind::unary;
  bool open = false;  // needs no token
  // Of unary ones: a message for a message. Throws what Inference throws, and invalid.
  std::string (*answer)(Inference& inference, const Caller& caller, BytesView message) = nullptr;
};

std::span<const GrpcMethod> grpc_methods();
const GrpcMethod* find_grpc_method(std::string_view path);  // "/inference.GRPCInferenceService/ModelInfer"; or null

}  // namespace falaj::protocol
