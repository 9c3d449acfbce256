// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the Open Inference Protocol asks of the program behind it, without a word of HTTP, JSON or gRPC.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compute/graph/graph.h"
#include "compute/graph/tensor.h"
#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/net/http.h"

namespace falaj::protocol {

using Parameter = std::variant<bool, std::int64_t, double, std::string>;
using Parameters = std::map<std::string, Parameter, std::less<>>;

// Who asks, and with what: enough to authenticate, to authorise and to choose a variant.
struct Caller {
  const net::Headers* headers = nullptr;  // gRPC: its metadata
  const net::Peer* peer = nullptr;
  std::string_view request_id;
};

struct Input {
  std::string name;
  graph::Element element = graph::Element::float32;
  graph::Sizes sizes;
  BytesView bytes;  // numbers, little-endian, row-major, at any address; in the request until it is answered
  std::vector<std::string> texts;  // BYTES
};

// One question to a model. What has a meaning to us is taken out of the parameters.
struct Ask {
  std::string model, version;  // version "": whichever is served
  std::vector<Input> inputs;
  std::vector<std::string> outputs;  // empty: all
  Parameters parameters;             // those of the request that have no meaning to the protocol
  std::uint32_t priority = 0;        // 0: the model's own; 1 is the highest
  std::int64_t timeout_us = 0;       // 0: the model's own
};

struct Output {
  std::string name;
  graph::Tensor tensor;
};

struct Answer {
  std::string model, version;
  std::vector<Output> outputs;
  Parameters parameters;
  std::string prediction_id{};  // how the prediction is called; "": it has no name
};

// How a prediction is called: a field of rows' answers, a header or metadata of all; a parameter in streams.
inline constexpr const char* kPredictionId = "prediction_id";
inline constexpr const char* kPredictionHeader = "x-falaj-prediction-id";

using Outcome = std::variant<Answer, Error>;
using Done = std::function<void(Outcome&&)>;

// Named fields instead of tensors: each row an object. Where features are looked up, rows name entities by their keys.
struct Predict {
  std::string model, version;
  json::array rows;
  std::int64_t timeout_us = 0;
  bool explain = false;                                 // the answer says which features were looked up
  std::optional<std::int64_t> as_of_us = std::nullopt;  // of the features; now when absent
  std::vector<graph::Tensor> columns = {};       // of the model's inputs, where they are known: else without sizes
  std::vector<std::int64_t> feature_times = {};  // of the newest row of each view for each row; 0: there is none
};
struct Predicted {
  std::string model, version;
  json::array rows;     // one object per row: output name -> value
  json::object served;  // prediction ids, variant, versions and freshness of features
};

struct Duration {
  std::uint64_t count = 0, ns = 0;
};
struct BatchStatistics {
  std::uint64_t rows = 0;
  Duration input, infer, output;
};
struct Statistics {
  std::string model, version;
  std::uint64_t last_inference_ms = 0, inference_count = 0, execution_count = 0;
  Duration success, fail, queue, input, infer, output, cache_hit, cache_miss;
  std::vector<BatchStatistics> batches;
  std::uint64_t memory_bytes = 0;
};

// A field of rows that is no input of the model: of an entity's key, or of what features are computed of.
struct RowField {
  std::string name, type;  // as feature views call it: "text", "int64", "timestamp"
  bool is_key = false;
};
struct Description {
  std::string model;
  std::vector<std::string> versions;
  std::string platform;                      // "onnxruntime_onnx", "falaj_trees"
  std::vector<graph::Port> inputs, outputs;  // as the model has them: with the rows where it has rows
  bool rows_first = false;                   // the first dimension is the batch
  std::uint32_t rows_max = 0;                // of one call of the model; 0 when it cannot be batched
  std::int64_t wait_us_max = 0;
  std::uint32_t instances = 1;
  std::map<std::string, std::string> properties;
  // Where features are looked up by the keys that rows name:
  std::vector<RowField> row_fields{};
  std::set<std::string, std::less<>> looked_up{};  // inputs that rows must not name
};

struct IndexEntry {
  std::string model, version, state, reason;  // READY, UNAVAILABLE, LOADING, UNLOADING
};

// The program behind the protocol. Every call may throw unauthenticated, denied, not_found and unavailable. Called on
// the threads of the servers; must not block.
class Inference {
 public:
  virtual ~Inference() = default;

  // From the head alone, before a byte of the body is read. Throws unauthenticated, and exhausted for who asks too
  // often: a body is not read for those. The other calls look again.
  virtual void admit(const Caller&) const {}

  // `done` is called once, on the thread of `loop`, perhaps before this returns. `ask` refers to bytes that stay until
  // then. Throws instead only what is decided before anything is queued.
  virtual void infer(const Caller& caller, Ask ask, net::Loop& loop, Done done) = 0;
  virtual void predict(const Caller& caller, Predict ask, net::Loop& loop,
                       std::function<void(std::variant<Predicted, Error>)> done) = 0;

  virtual bool live() const = 0;
  virtual bool ready() const = 0;
  virtual bool ready(const Caller& caller, const std::string& model, const std::string& version) const = 0;
  virtual Description describe(const Caller& caller, const std::string& model, const std::string& version) const = 0;
  // Of one model, or of all that the caller may see when `model` is empty.
  virtual std::vector<Statistics> statistics(const Caller& caller, const std::string& model,
                                             const std::string& version) const = 0;
  virtual std::vector<IndexEntry> index(const Caller& caller, bool only_ready) const = 0;
  virtual void load(const Caller& caller, const std::string& model) = 0;
  virtual void unload(const Caller& caller, const std::string& model) = 0;
};

}  // namespace falaj::protocol
