// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "api/platform.h"
#include "api/route.h"
#include "foundation/base/metrics.h"
#include "foundation/base/mutex.h"
#include "foundation/net/http.h"
#include "governance/iam/directory.h"
#include "governance/iam/rate.h"

namespace falaj::api {

// The API behind the HTTP server. The order never changes: find the route, authenticate, authorise, limit the rate
// (all from the head), then read and decode the body, act, answer.
class ApiService final : public net::Service {
 public:
  ApiService(Platform& platform, const Routes& routes, Metrics& metrics);

  net::Admission admit(const net::Head& head) override;
  void finished(const net::Head& head, int status, std::int64_t micros, std::uint64_t bytes_in,
                std::uint64_t bytes_out) override;

 private:
  struct RouteProbe {
    Histogram* seconds;
    Counter* by_class[6];  // [2] = 2xx, ...
  };
  net::Admission deny(const Route& route, const net::Head& head, const Error& error, const std::string& actor,
                      const std::string& resource);
  void begin(const Route& route, const net::Head& head, std::string_view body, net::Loop& loop, net::Reply reply,
             PathParameters parameters, std::optional<iam::Identity> caller);
  net::Response run(const Route& route, net::Request& request, PathParameters parameters,
                    std::optional<iam::Identity> caller);
  net::Response record_denial(const sql::Act& act, const Error& error, const net::Head& head);
  // These throw exhausted.
  void limit_denials(const net::Head& head);
  void limit(const std::string& who, const iam::Rate& rate, const std::string& by = "");
  void limit_by_quotas(const std::string& who, const iam::Scope& where);

  Platform& platform_;
  const Routes& routes_;
  std::unordered_map<const Route*, RouteProbe> probes_;
  Counter& denied_;
  Counter& limited_;

  Mutex mu_;
  std::unordered_map<std::string, iam::Bucket> buckets_ GUARDED_BY(mu_);
};

}  // namespace falaj::api
