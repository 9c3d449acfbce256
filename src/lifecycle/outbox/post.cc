// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/outbox/post.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/bytes.h"
#include "foundation/base/text.h"
#include "foundation/crypto/key.h"

namespace falaj::outbox {
namespace {

constexpr std::uint64_t kAnswerBytesMax = 64 * 1024;
constexpr std::size_t kShownBytesMax = 1024;

}  // namespace

bool is_receiver_url(std::string_view url) {
  if (url.size() > kReceiverUrlMax) return false;
  const auto begin = url.starts_with("https://") ? 8U : url.starts_with("http://") ? 7U : 0U;
  const auto host = begin == 0 ? "" : url.substr(begin, url.find_first_of("/?#", begin) - begin);
  return !host.empty() && host.find('@') == std::string_view::npos && url.find('#') == std::string_view::npos &&
         std::none_of(url.begin(), url.end(), [](unsigned char c) { return c <= 0x20 || c >= 0x7F; });
}

net::Headers signed_headers(std::string_view prefix, const std::string& delivery_id, std::int64_t unix_s,
                            const std::string& body, const std::string& secret) {
  net::Headers headers;
  headers.set("Content-Type", "application/json");
  headers.set(fmt::format("{}-Delivery-Id", prefix), delivery_id);
  headers.set(fmt::format("{}-Timestamp", prefix), std::to_string(unix_s));
  if (!secret.empty()) {
    const auto digest =
        crypto::hmac_sha256(as_bytes(secret), as_bytes(fmt::format("{}.{}.{}", delivery_id, unix_s, body)));
    headers.set(fmt::format("{}-Signature", prefix), "v1," + to_base64(digest.view()));
  }
  return headers;
}

Attempt post(net::Client& client, const std::string& url, const net::Headers& headers, const std::string& body,
             std::string* answer) {
  net::ClientRequest request;
  request.method = net::Method::post;
  request.url = url;
  request.headers = headers;
  request.body = body;
  request.response_bytes_max = kAnswerBytesMax;
  Attempt attempt;
  try {
    const auto response = client.send(request);
    attempt.status = response.status;
    if (response.status < 200 || response.status >= 300) attempt.error = fmt::format("answered {}", response.status);
    if (answer) *answer = response.body.substr(0, kShownBytesMax);
    if (answer && !is_utf8(*answer)) answer->clear();
  } catch (const Error& e) {
    attempt.failed = e.code();
    attempt.error = e.what();
  }
  return attempt;
}

}  // namespace falaj::outbox
