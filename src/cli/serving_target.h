// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/session.h"

namespace falaj::cli {

// Of whoever reads many rows of a dataset and asks a server about them.
inline constexpr std::size_t kUnderWay = 4;  // requests at once
inline constexpr int kAskTries = 8;          // a server that is started again is waited for
inline constexpr std::int64_t kReadTimeUs = 600'000'000;

// Where an endpoint answers: which server, and what it calls the endpoint.
struct ServingTarget {
  client::Target server;
  std::string model;  // TENANT.PROJECT.NAME, as an element of a path
  std::string path(std::string_view more = "") const;
};

// `url` "": the first server that says it serves the endpoint. Throws unavailable when none does.
ServingTarget serving_target(Session& session, const std::string& endpoint, const std::string& url);

}  // namespace falaj::cli
