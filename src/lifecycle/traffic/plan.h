// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a serving program is told: which models to hold, how requests are shared among them, and who may ask. Values
// only, so that the control plane, which makes plans, and the programs that follow them need nothing of each other.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/shape.h"
#include "lifecycle/traffic/features.h"
#include "lifecycle/traffic/prediction.h"
#include "lifecycle/traffic/watched.h"

namespace falaj::traffic {

// Which bytes a version of a model is. Its text is signed by the control plane.
struct Statement {
  std::string tenant, project, model;
  std::int64_t version = 0;
  std::string sha256;  // hex, of the ONNX file
  std::int64_t bytes = 0;
};

struct SignedStatement {
  std::string text;       // canonical JSON of a Statement: what is signed, passed on as it is
  std::string signature;  // Ed25519, base64
};

// How requests to one model are put together.
struct Batching {
  std::int64_t rows_max = 64;            // in one call of the model
  std::int64_t wait_us_max = 0;          // for company; 0: only what is there already
  std::int64_t queue_rows_max = 4096;    // waiting; more are refused at once
  std::int64_t timeout_us = 30'000'000;  // of a request that names none
  std::int64_t target_p99_us = 0;        // 0: none; else rows_max and wait are found by the server
  std::int64_t cache_bytes = 0;          // of answers that are given again to equal requests; 0: none
  std::int64_t instances_max = 0;        // calls at the same time that take long; 0: as the server has threads
};

struct Variant {
  std::string name;
  std::string model;          // of the same project
  std::int64_t version = 0;   // in a plan; aliases are resolved
  std::string sha256;         // of the version's statement
  double weight = 1;          // share of what no rule took
  bool shadow = false;        // gets a copy of every request; its answers are dropped
  std::string header, value;  // requests with this header and value go here, whatever the weights
};

struct Endpoint {
  std::string tenant, project, name;
  std::int64_t revision = 0;
  std::optional<Features> features;  // looked up by the keys that rows name
  std::vector<Variant> variants;
  std::string sticky;  // "", "header:NAME" or "input:NAME": equal values get the same variant
  Batching batching;
  bool stopped = false;
  bool names = false;               // answers say how the prediction is called
  std::optional<Logging> log;       // absent: nothing is written down
  std::string salt;                 // of values that are logged as hashes
  std::optional<Watching> watch{};  // absent: nobody watches
  bool compares = false;            // servers report sketches of what each variant predicts
  std::int64_t sleep_after_us = 0;  // without a request, models leave memory until the next; 0: they stay
};

// A credential that may ask some of the endpoints.
struct Caller {
  std::string credential;   // id of the token
  std::string secret_hash;  // hex
  std::int64_t expires_us = 0;
  std::vector<std::int64_t> endpoints;      // places in Plan::endpoints, ascending
  std::vector<std::int64_t> explains = {};  // of those, where it may also see the features that were looked up
};

struct Plan {
  std::vector<Endpoint> endpoints;  // in order of tenant, project and name
  std::vector<SignedStatement> models;
  std::vector<Caller> callers;
};

// Where a value falls in [0, 1): the same for equal texts, and independent between endpoints.
double place_of(std::string_view endpoint, std::string_view key);

// Which variant gets a request that falls at `place`; shadows and variants without weight get none. -1: no variant
// takes any. A small shift of weights moves only that share of the places.
int choose(const std::vector<Variant>& variants, double place);

// What a credential may no longer do.
struct Revoked {
  std::string credential;  // id of the token
  std::string endpoint;    // "tenant.project.name"; "": all of them
  friend bool operator==(const Revoked&, const Revoked&) = default;
};

// What callers of `before` may do that those of `after` may not. A token with another secret, or one that ends sooner,
// has all of it taken away.
std::vector<Revoked> revoked_between(const Plan& before, const Plan& after);

std::string full_name(const Endpoint& endpoint);  // "tenant.project.name"

// Whether serving programs would do the same by both.
std::string fingerprint(const Plan& plan);

}  // namespace falaj::traffic

namespace falaj {

template <>
struct Shape<traffic::Statement> {
  using T = traffic::Statement;
  static constexpr std::string_view name = "ModelStatement";
  static Fields fields() {
    return {field("tenant", &T::tenant, "Of the model.").required(),
            field("project", &T::project, "Of the model.").required(),
            field("model", &T::model, "Its name.").required(),
            field("version", &T::version, "Its version.").required(),
            field("sha256", &T::sha256, "Of the ONNX file.").required().length(64, 64),
            field("bytes", &T::bytes, "Of the ONNX file.").required()};
  }
};
template <>
struct Shape<traffic::SignedStatement> {
  using T = traffic::SignedStatement;
  static constexpr std::string_view name = "SignedStatement";
  static Fields fields() {
    return {field("text", &T::text, "What is signed.").required(),
            field("signature", &T::signature, "Ed25519, base64.").required()};
  }
};
template <>
struct Shape<traffic::Batching> {
  using T = traffic::Batching;
  static constexpr std::string_view name = "Batching";
  static Fields fields() {
    return {
        field("rowsMax", &T::rows_max, "Most rows in one call of the model.").range(1, 65'536),
        field("waitMax", &T::wait_us_max, "Longest a request waits for company; 0 puts together only what is there.")
            .duration()
            .range(0, 1'000'000),
        field("queueRows", &T::queue_rows_max, "Most rows that wait; more are refused at once, to be tried again.")
            .range(1, 10'000'000),
        field("timeout", &T::timeout_us, "Of a request that names none.").duration().range(1'000, 3'600'000'000),
        field("targetP99", &T::target_p99_us,
              "The latency that 99 of 100 requests must keep; rowsMax and waitMax are then found by the server.")
            .duration()
            .range(0, 60'000'000),
        field("cacheBytes", &T::cache_bytes,
              "Memory for answers that are given again to equal requests, for each variant; 0: every request is run.")
            .bytes()
            .range(0, std::int64_t{1} << 40),
        field("instancesMax", &T::instances_max,
              "Most calls of the model at the same time, where they take long; 0: as many as the server has threads.")
            .range(0, 256)};
  }
};
template <>
struct Shape<traffic::Variant> {
  using T = traffic::Variant;
  static constexpr std::string_view name = "PlannedVariant";
  static Fields fields() {
    return {field("name", &T::name, "Its name.").required(),
            field("model", &T::model, "Its model.").required(),
            field("version", &T::version, "Of the model.").required(),
            field("sha256", &T::sha256, "Of its ONNX file.").required(),
            field("weight", &T::weight, "Its share."),
            field("shadow", &T::shadow, "Whether its answers are dropped."),
            field("header", &T::header, "Rule: a header"),
            field("value", &T::value, "and its value.")};
  }
};
template <>
struct Shape<traffic::Endpoint> {
  using T = traffic::Endpoint;
  static constexpr std::string_view name = "PlannedEndpoint";
  static Fields fields() {
    return {
        field("tenant", &T::tenant, "Where it is.").required(),
        field("project", &T::project, "Where it is.").required(),
        field("name", &T::name, "Its name.").required(),
        field("revision", &T::revision, "Of its declaration."),
        field("features", &T::features, "That are looked up by the keys that rows name."),
        field("variants", &T::variants, "Who answers."),
        field("sticky", &T::sticky, "Whose requests stay together."),
        field("batching", &T::batching, "How requests are put together."),
        field("stopped", &T::stopped, "Whether it rests."),
        field("names", &T::names, "Whether answers say how the prediction is called."),
        field("log", &T::log, "What is written down of predictions."),
        field("salt", &T::salt, "Of values that are logged as hashes."),
        field("watch", &T::watch, "How what it is asked and answers is watched."),
        field("compares", &T::compares, "Whether servers report what each variant predicts."),
        field("sleep_after_us", &T::sleep_after_us, "Without a request, until its models leave memory; 0: they stay.")
            .range(0, std::int64_t{1} << 53)};
  }
};
template <>
struct Shape<traffic::Caller> {
  using T = traffic::Caller;
  static constexpr std::string_view name = "PlannedCaller";
  static Fields fields() {
    return {field("credential", &T::credential, "Id of a token.").required(),
            field("hash", &T::secret_hash, "SHA-256 of its secret.").required(),
            field("expires_us", &T::expires_us, "Microseconds since 1970.").required(),
            field("endpoints", &T::endpoints, "Places in the list of endpoints."),
            field("explains", &T::explains, "Of those, where it may see the features.")};
  }
};
template <>
struct Shape<traffic::Revoked> {
  using T = traffic::Revoked;
  static constexpr std::string_view name = "Revoked";
  static Fields fields() {
    return {field("credential", &T::credential, "Id of a token.").required(),
            field("endpoint", &T::endpoint, "That it may no longer ask; all when empty.")};
  }
};
template <>
struct Shape<traffic::Plan> {
  using T = traffic::Plan;
  static constexpr std::string_view name = "ServingPlan";
  static Fields fields() {
    return {field("endpoints", &T::endpoints, "What is served.").length(0, 10'000),
            field("models", &T::models, "Which bytes the versions are.").length(0, 20'000),
            field("callers", &T::callers, "Who may ask.").length(0, 1'000'000)};
  }
};

}  // namespace falaj
