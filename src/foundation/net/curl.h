// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the clients over libcurl have in common: handles that free themselves, waits, trust, and connecting to the one
// address that was checked. Private to this directory.

#include <memory>
#include <optional>
#include <string>

#include <curl/curl.h>

#include "foundation/base/error.h"
#include "foundation/net/client.h"
#include "foundation/sys/net.h"

namespace falaj::net::curl {

struct EasyDelete {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
using Easy = std::unique_ptr<CURL, EasyDelete>;
struct ListDelete {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using List = std::unique_ptr<curl_slist, ListDelete>;

void append(List& list, const std::string& line);
void start();  // before the first handle; as often as you like

void set_waits(CURL* handle, const ClientOptions& options);
void set_trust(CURL* handle, const ClientOptions& options);  // `options` outlive the transfer
// Refuses to connect anywhere else, whatever libcurl resolves.
struct OnlyAddress {
  std::optional<sys::Address> address;  // nothing = anywhere
};
void set_only(CURL* handle, const OnlyAddress& only);  // which outlives the transfer

Error translate(CURLcode code, const std::string& origin);

}  // namespace falaj::net::curl
