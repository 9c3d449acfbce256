// SPDX-License-Identifier: Apache-2.0
#pragma once

// gRPC, for the files that use it. Private to the gRPC server and its tests.

// Before gRPC: its Abseil defines macros of the same names and meaning, and may do so only as the second.
// clang-format off
#include "foundation/base/mutex.h"
// clang-format on

#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/support/sync_stream.h>
