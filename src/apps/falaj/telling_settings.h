// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "foundation/base/shape.h"

namespace falaj::app {

// Where webhooks and channels of alerts may be: whoever may make one makes this server call an address.
struct WebhookSettings {
  std::vector<std::string> hosts;
  bool plain_http = false, local_addresses = false;
  std::string ca_file;
};

// How often alert rules are looked at.
struct AlertSettings {
  std::int64_t every_us = 10'000'000;
};

}  // namespace falaj::app

namespace falaj {

template <>
struct Shape<app::WebhookSettings> {
  using T = app::WebhookSettings;
  static constexpr std::string_view name = "WebhookSettings";
  static Fields fields() {
    return {field("hosts", &T::hosts,
                  "Hosts that webhooks and channels of alerts may call, such as *.example.org; none = nothing is sent.")
                .length(0, 100),
            field("plain_http", &T::plain_http, "Also without TLS."),
            field("local_addresses", &T::local_addresses, "Also to addresses that are not routed on the internet."),
            field("ca_file", &T::ca_file, "Certificates, PEM, that they are trusted by; the system's when absent.")
                .length(0, 4096)};
  }
};
template <>
struct Shape<app::AlertSettings> {
  using T = app::AlertSettings;
  static constexpr std::string_view name = "AlertSettings";
  static Fields fields() {
    return {field("every", &T::every_us, "How often the server looks at alert rules.")
                .duration()
                .range(100'000, 3'600'000'000)};
  }
};

}  // namespace falaj
