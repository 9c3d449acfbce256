// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/curl.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "foundation/net/http.h"

namespace falaj::net::curl {
namespace {

// Trusts one certificate by its digest instead of by who signed it.
int verify_pinned(X509_STORE_CTX* chain, void* wanted) {
  const X509* shown = X509_STORE_CTX_get0_cert(chain);
  Digest digest;
  unsigned length = 0;
  const bool same = shown && X509_digest(shown, EVP_sha256(), raw(std::span(digest.bytes)), &length) == 1 &&
                    digest == *static_cast<const Digest*>(wanted);
  X509_STORE_CTX_set_error(chain, same ? X509_V_OK : X509_V_ERR_CERT_UNTRUSTED);
  return same ? 1 : 0;
}
CURLcode install_pin(CURL*, void* context, void* wanted) {
  SSL_CTX_set_cert_verify_callback(static_cast<SSL_CTX*>(context), verify_pinned, wanted);
  return CURLE_OK;
}

curl_socket_t open_socket(void* only, curlsocktype, curl_sockaddr* to) {
  const auto& wanted = static_cast<const OnlyAddress*>(only)->address;
  sys::Address address;
  if (to->family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &to->addr, sizeof v4);
    address.bytes[10] = address.bytes[11] = 0xFF;
    std::memcpy(address.bytes.data() + 12, &v4.sin_addr, 4);
  } else if (to->family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &to->addr, sizeof v6);
    std::memcpy(address.bytes.data(), &v6.sin6_addr, 16);
  }
  if (wanted && address != *wanted) return CURL_SOCKET_BAD;
  return ::socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

}  // namespace

void append(List& list, const std::string& line) {
  auto* longer = curl_slist_append(list.get(), line.c_str());
  CHECK(longer, "out of memory");
  (void)list.release();
  list.reset(longer);
}

void start() {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  CHECK(ready == CURLE_OK, "libcurl does not start");
}

void set_waits(CURL* h, const ClientOptions& o) {
  curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(h, CURLOPT_PROXY, "");  // not even from the environment
  curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(std::max<std::int64_t>(1, o.connect_wait_us / 1000)));
  curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, static_cast<long>((o.total_wait_us + 999) / 1000));
  curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(o.bytes_per_second_min));
  curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, static_cast<long>(std::max<std::int64_t>(1, o.slow_wait_us / 1'000'000)));
}

void set_trust(CURL* h, const ClientOptions& o) {
  curl_easy_setopt(h, CURLOPT_SSLVERSION,
                   static_cast<long>(o.tls_1_2 ? CURL_SSLVERSION_TLSv1_2 : CURL_SSLVERSION_TLSv1_3));
  if (!o.ca_file.empty()) curl_easy_setopt(h, CURLOPT_CAINFO, o.ca_file.c_str());
  if (!o.certificate_file.empty()) {
    curl_easy_setopt(h, CURLOPT_SSLCERT, o.certificate_file.c_str());
    curl_easy_setopt(h, CURLOPT_SSLKEY, o.key_file.c_str());
  }
  if (o.pinned_certificate) {
    curl_easy_setopt(h, CURLOPT_SSL_CTX_FUNCTION, &install_pin);
    curl_easy_setopt(h, CURLOPT_SSL_CTX_DATA, const_cast<Digest*>(&*o.pinned_certificate));
    curl_easy_setopt(h, CURLOPT_SSL_VERIFYHOST, 0L);  // the pin says who it is, more exactly than a name
  }
}

void set_only(CURL* h, const OnlyAddress& only) {
  curl_easy_setopt(h, CURLOPT_OPENSOCKETFUNCTION, &open_socket);
  curl_easy_setopt(h, CURLOPT_OPENSOCKETDATA, const_cast<OnlyAddress*>(&only));
}

Error translate(CURLcode code, const std::string& origin) {
  const auto message = fmt::format("request to {}: {}", origin, curl_easy_strerror(code));
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return {Code::deadline, message};
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_ISSUER_ERROR:
      return {Code::denied, message};
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
      return {Code::invalid, message};
    default:
      return {Code::unavailable, message};
  }
}

}  // namespace falaj::net::curl
