// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <list>

#include <curl/curl.h>
#include <fmt/format.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "foundation/base/mutex.h"
#include "foundation/base/text.h"
#include "foundation/net/outgoing.h"

namespace falaj::net {
namespace {

struct EasyDelete {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
using Easy = std::unique_ptr<CURL, EasyDelete>;
struct UrlDelete {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, UrlDelete>;
struct ListDelete {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using List = std::unique_ptr<curl_slist, ListDelete>;

void append(List& list, const std::string& line) {
  auto* longer = curl_slist_append(list.get(), line.c_str());
  CHECK(longer, "out of memory");
  (void)list.release();
  list.reset(longer);
}

std::string part(CURLU* url, CURLUPart which, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, which, &text, flags) != CURLUE_OK) return {};
  const std::unique_ptr<char, decltype(&curl_free)> owner(text, curl_free);
  return text;
}

// What is being asked, parsed once by the parser that the connection will use too.
struct Target {
  Url url;
  std::string scheme, host, port;
  std::string origin() const { return fmt::format("{}://{}:{}", scheme, host, port); }
};

Target parse_target(const std::string& text) {
  Target target{Url(curl_url()), {}, {}, {}};
  if (curl_url_set(target.url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK)
    throw Error(Code::invalid, "malformed URL");
  target.scheme = part(target.url.get(), CURLUPART_SCHEME);
  target.host = part(target.url.get(), CURLUPART_HOST);
  target.port = part(target.url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
  if (target.scheme != "http" && target.scheme != "https") throw Error(Code::invalid, "URL is neither http nor https");
  if (!part(target.url.get(), CURLUPART_USER).empty() || !part(target.url.get(), CURLUPART_PASSWORD).empty())
    throw Error(Code::invalid, "URL with credentials");
  return target;
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

// One request under way: what libcurl calls back into. No exception crosses libcurl.
struct Exchange {
  const ClientRequest& request;
  ClientResponse response;
  std::uint64_t received = 0;
  bool sinking = false;
  std::exception_ptr failure;
  Bytes piece;  // of the body being sent
  std::size_t piece_at = 0;
  std::optional<sys::Address> only;  // the address that was checked

  template <class F>
  std::size_t guarded(std::size_t on_failure, F&& work) {
    try {
      return work();
    } catch (...) {
      failure = std::current_exception();
      return on_failure;
    }
  }

  static std::size_t on_header(char* data, std::size_t, std::size_t size, void* self) {
    auto& x = *static_cast<Exchange*>(self);
    return x.guarded(0, [&] {
      const std::string_view line(data, size);
      if (line.starts_with("HTTP/")) x.response.headers.clear();  // a final head after "100 Continue"
      const auto colon = line.find(':');
      if (colon != line.npos && !line.starts_with("HTTP/"))
        x.response.headers.add(line.substr(0, colon), trim(line.substr(colon + 1)));
      return size;
    });
  }

  static std::size_t on_body(char* data, std::size_t, std::size_t size, void* self) {
    auto& x = *static_cast<Exchange*>(self);
    return x.guarded(0, [&] {
      x.received += size;
      if (x.received > x.request.response_bytes_max)
        throw Error(Code::exhausted, fmt::format("answer longer than {} bytes", x.request.response_bytes_max));
      if (x.request.sink && x.successful()) {
        if (x.request.before_sink && !std::exchange(x.sinking, true)) x.request.before_sink(x.response.headers);
        x.request.sink(as_bytes({data, size}));
      } else
        x.response.body.append(data, size);
      return size;
    });
  }

  static std::size_t on_send(char* out, std::size_t, std::size_t room, void* self) {
    auto& x = *static_cast<Exchange*>(self);
    return x.guarded(CURL_READFUNC_ABORT, [&] {
      if (x.piece_at == x.piece.size()) {
        x.piece = std::get<StreamBody>(x.request.body).next();
        x.piece_at = 0;
      }
      const auto n = std::min(room, x.piece.size() - x.piece_at);
      if (n > 0) std::memcpy(out, x.piece.data() + x.piece_at, n);
      x.piece_at += n;
      return n;
    });
  }

  static curl_socket_t on_socket(void* self, curlsocktype, curl_sockaddr* to) {
    const auto& x = *static_cast<Exchange*>(self);
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
    if (x.only && address != *x.only) return CURL_SOCKET_BAD;
    return ::socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
  }

  bool successful() {
    long status = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    return status >= 200 && status < 300;
  }
  CURL* handle = nullptr;
};

void set_transfer(CURL* h, Exchange& x, const ClientOptions& o) {
  curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(h, CURLOPT_PROXY, "");  // not even from the environment
  curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(h, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(std::max<std::int64_t>(1, o.connect_wait_us / 1000)));
  curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, static_cast<long>((o.total_wait_us + 999) / 1000));
  curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(o.bytes_per_second_min));
  curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, static_cast<long>(std::max<std::int64_t>(1, o.slow_wait_us / 1'000'000)));
  curl_easy_setopt(h, CURLOPT_BUFFERSIZE, static_cast<long>(kPieceBytes));
  curl_easy_setopt(h, CURLOPT_UPLOAD_BUFFERSIZE, static_cast<long>(kPieceBytes));
  curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, &Exchange::on_header);
  curl_easy_setopt(h, CURLOPT_HEADERDATA, &x);
  curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, &Exchange::on_body);
  curl_easy_setopt(h, CURLOPT_WRITEDATA, &x);
  curl_easy_setopt(h, CURLOPT_OPENSOCKETFUNCTION, &Exchange::on_socket);
  curl_easy_setopt(h, CURLOPT_OPENSOCKETDATA, &x);
  if (!o.unix_socket.empty()) curl_easy_setopt(h, CURLOPT_UNIX_SOCKET_PATH, o.unix_socket.c_str());
}

void set_tls(CURL* h, const ClientOptions& o) {
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

void set_message(CURL* h, Exchange& x, List& headers) {
  const auto& request = x.request;
  const std::string method(name(request.method));
  if (const auto* stream = std::get_if<StreamBody>(&request.body)) {
    curl_easy_setopt(h, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(h, CURLOPT_READFUNCTION, &Exchange::on_send);
    curl_easy_setopt(h, CURLOPT_READDATA, &x);
    curl_easy_setopt(h, CURLOPT_INFILESIZE_LARGE,
                     stream->size ? static_cast<curl_off_t>(*stream->size) : curl_off_t{-1});
  } else if (const auto& text = std::get<std::string>(request.body); !text.empty() || request.method == Method::post ||
                                                                     request.method == Method::put ||
                                                                     request.method == Method::patch) {
    curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(text.size()));
    curl_easy_setopt(h, CURLOPT_POSTFIELDS, text.data());
    append(headers, "Expect:");  // already in memory: asking first would only cost a round trip
    if (!request.headers.find("Content-Type")) append(headers, "Content-Type:");  // else libcurl says "form"
  }
  if (request.method == Method::head)
    curl_easy_setopt(h, CURLOPT_NOBODY, 1L);
  else
    curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, method.c_str());
  for (const auto& [field, value] : request.headers)  // libcurl wants "X;" for an empty value
    append(headers, value.empty() ? fmt::format("{};", field) : fmt::format("{}: {}", field, value));
  curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers.get());
}

}  // namespace

struct Client::Rep {
  ClientOptions options;
  std::optional<OutgoingRules> rules;
  sys::Resolver* resolver = nullptr;

  // A handle keeps the connection it used last; the most recently used stand first.
  struct Idle {
    std::string origin;
    Easy handle;
  };
  Mutex mu;
  std::list<Idle> idle GUARDED_BY(mu);

  Easy take(const std::string& origin) {
    {
      Lock lock(mu);
      const auto same = [&](const Idle& i) { return i.origin == origin; };
      if (const auto found = std::find_if(idle.begin(), idle.end(), same); found != idle.end()) {
        auto handle = std::move(found->handle);
        idle.erase(found);
        return handle;
      }
    }
    Easy fresh(curl_easy_init());
    CHECK(fresh, "libcurl gives no handle");
    return fresh;
  }
  void give_back(std::string origin, Easy handle) {
    std::list<Idle> dropped;  // closed outside the lock
    Lock lock(mu);
    idle.push_front({std::move(origin), std::move(handle)});
    if (idle.size() > options.idle_connections_max) dropped.splice(dropped.begin(), idle, std::prev(idle.end()));
  }
};

Client::Client(ClientOptions options) : rep_(std::make_unique<Rep>()) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  CHECK(ready == CURLE_OK, "libcurl does not start");
  rep_->options = std::move(options);
}
Client::Client(ClientOptions options, OutgoingRules rules, sys::Resolver& resolver) : Client(std::move(options)) {
  rep_->rules = std::move(rules);
  rep_->resolver = &resolver;
}
Client::~Client() = default;

ClientResponse Client::send(const ClientRequest& request) {
  const auto target = parse_target(request.url);
  auto origin = target.origin();
  Exchange x{.request = request, .response = {}, .received = 0, .failure = {}, .piece = {}, .piece_at = 0, .only = {}};
  List headers, connect_to;
  if (rep_->rules) {
    x.only = check_outgoing(*rep_->rules, *rep_->resolver, target.scheme == "https", target.host);
    // The address is part of which connection is used again: one to another address is not.
    const auto address = x.only->is_v4() ? x.only->str() : "[" + x.only->str() + "]";
    append(connect_to, fmt::format("{}:{}:{}:{}", target.host, target.port, address, target.port));
  }
  auto handle = rep_->take(origin);
  CURL* h = x.handle = handle.get();
  set_transfer(h, x, rep_->options);
  set_tls(h, rep_->options);
  set_message(h, x, headers);
  curl_easy_setopt(h, CURLOPT_CURLU, target.url.get());
  if (connect_to) curl_easy_setopt(h, CURLOPT_CONNECT_TO, connect_to.get());

  const auto code = curl_easy_perform(h);
  long status = 0;
  curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_reset(h);  // forgets every pointer above, keeps the connection
  rep_->give_back(origin, std::move(handle));
  if (x.failure) std::rethrow_exception(x.failure);
  if (code != CURLE_OK) throw translate(code, origin);
  x.response.status = static_cast<int>(status);
  return std::move(x.response);
}

}  // namespace falaj::net
