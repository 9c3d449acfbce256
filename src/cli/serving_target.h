// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/session.h"

namespace falaj::cli {

// Where an endpoint answers: which server, and what it calls the endpoint.
struct ServingTarget {
  client::Target server;
  std::string model;  // TENANT.PROJECT.NAME, as an element of a path
  std::string path(std::string_view more = "") const;
};

// `url` "": the first server that says it serves the endpoint. Throws unavailable when none does.
ServingTarget serving_target(Session& session, const std::string& endpoint, const std::string& url);

}  // namespace falaj::cli
