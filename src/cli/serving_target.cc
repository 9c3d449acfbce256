// SPDX-License-Identifier: Apache-2.0
#include "cli/serving_target.h"

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::cli {

std::string ServingTarget::path(std::string_view more) const { return fmt::format("/v2/models/{}{}", model, more); }

ServingTarget serving_target(Session& session, const std::string& endpoint, const std::string& url) {
  ServingTarget out;
  out.server = session.api().target();
  out.server.url = url;
  const auto scope = session.project_scope();
  if (out.server.url.empty()) {
    const auto found =
        session.api().get(fmt::format("/v1/serving/endpoints/{}", client::path_element(endpoint)), {{"scope", scope}});
    const auto& urls = found.at("urls").as_array();
    if (urls.empty())
      throw Error(Code::unavailable,
                  fmt::format("no server serves endpoint {}: see falaj endpoint show {}", endpoint, endpoint));
    out.server.url = std::string(urls.front().as_string());
  }
  const auto parts = split(scope, '/');  // "", t, TENANT, p, PROJECT
  out.model = client::path_element(fmt::format("{}.{}.{}", parts.at(2), parts.at(4), endpoint));
  return out;
}

}  // namespace falaj::cli
