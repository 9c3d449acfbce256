// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compute/protocol/inference.h"
#include "foundation/base/metrics.h"
#include "foundation/net/http.h"

namespace falaj::protocol {

struct RestLimits {
  std::uint64_t body_bytes_max = std::uint64_t{64} << 20;  // of an inference, also when unpacked
};

// What a path asks for. `model` may hold slashes: the ending decides where it stops.
enum class Route {
  live,
  ready,
  server,
  models,
  model_ready,
  metadata,
  configuration,
  openapi,
  infer,
  predict,
  statistics,
  all_statistics,
  index,
  load,
  unload,
  v1_models,
  v1_model,
  v1_predict,
};
inline constexpr std::size_t kRoutes = 18;
std::string_view name(Route route);  // for metrics

struct Target {
  Route route = Route::live;
  net::Method method = net::Method::get;  // the one that it takes
  std::string_view model, version;
};
std::optional<Target> parse_target(std::string_view path);

// Every path that is answered, with the method that it takes, as it is for this model and version.
struct Door {
  Route route;
  net::Method method;
  std::string path;
  bool of_model;
};
std::vector<Door> doors(std::string_view model, std::string_view version);

// The Open Inference Protocol over HTTP: version 2 with the extensions of describe.h, version 1's predict, and rows of
// named fields. Thread-safe.
class Rest final : public net::Service {
 public:
  Rest(Inference& inference, RestLimits limits, Metrics& metrics);

  net::Admission admit(const net::Head& head) override;
  void finished(const net::Head& head, int status, std::int64_t micros, std::uint64_t bytes_in,
                std::uint64_t bytes_out) override;

 private:
  struct Exchange;  // one request under way
  struct Probe {
    Histogram* seconds = nullptr;
    Counter* by_class[6] = {};  // [2] = 2xx, ...
  };
  void begin(const net::Head& head, std::string_view body, net::Loop& loop, net::Reply reply);
  net::Response answer(const Caller& caller, const Target& target, std::string_view body) const;
  void infer(std::shared_ptr<Exchange> exchange, const Target& target, std::string_view body, net::Loop& loop);
  void predict(std::shared_ptr<Exchange> exchange, const Target& target, std::string_view body, net::Loop& loop);
  void predict_v1(std::shared_ptr<Exchange> exchange, const Target& target, std::string_view body, net::Loop& loop);

  Inference& inference_;
  const RestLimits limits_;
  Probe probes_[kRoutes];
};

}  // namespace falaj::protocol
