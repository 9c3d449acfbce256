// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/client.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <list>

#include <curl/curl.h>
#include <fmt/format.h>

#include "foundation/base/mutex.h"
#include "foundation/base/text.h"
#include "foundation/net/curl.h"
#include "foundation/net/outgoing.h"

namespace falaj::net {
namespace {

struct UrlDelete {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, UrlDelete>;

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

// One request under way: what libcurl calls back into. No exception crosses libcurl.
struct Exchange {
  const ClientRequest& request;
  ClientResponse response;
  std::uint64_t received = 0;
  bool sinking = false;
  std::exception_ptr failure;
  Bytes piece;  // of the body being sent
  std::size_t piece_at = 0;
  curl::OnlyAddress only{};  // the address that was checked

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

  bool successful() {
    long status = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    return status >= 200 && status < 300;
  }
  CURL* handle = nullptr;
};

void set_transfer(CURL* h, Exchange& x, const ClientOptions& o) {
  curl::set_waits(h, o);
  curl::set_only(h, x.only);
  curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(h, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(h, CURLOPT_BUFFERSIZE, static_cast<long>(kPieceBytes));
  curl_easy_setopt(h, CURLOPT_UPLOAD_BUFFERSIZE, static_cast<long>(kPieceBytes));
  curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, &Exchange::on_header);
  curl_easy_setopt(h, CURLOPT_HEADERDATA, &x);
  curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, &Exchange::on_body);
  curl_easy_setopt(h, CURLOPT_WRITEDATA, &x);
  if (!o.unix_socket.empty()) curl_easy_setopt(h, CURLOPT_UNIX_SOCKET_PATH, o.unix_socket.c_str());
}

void set_message(CURL* h, Exchange& x, curl::List& headers) {
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
    curl::append(headers, "Expect:");  // already in memory: asking first would only cost a round trip
    if (!request.headers.find("Content-Type")) curl::append(headers, "Content-Type:");  // else libcurl says "form"
  }
  if (request.method == Method::head)
    curl_easy_setopt(h, CURLOPT_NOBODY, 1L);
  else
    curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, method.c_str());
  for (const auto& [field, value] : request.headers)  // libcurl wants "X;" for an empty value
    curl::append(headers, value.empty() ? fmt::format("{};", field) : fmt::format("{}: {}", field, value));
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
    curl::Easy handle;
  };
  Mutex mu;
  std::list<Idle> idle GUARDED_BY(mu);

  curl::Easy take(const std::string& origin) {
    {
      Lock lock(mu);
      const auto same = [&](const Idle& i) { return i.origin == origin; };
      if (const auto found = std::find_if(idle.begin(), idle.end(), same); found != idle.end()) {
        auto handle = std::move(found->handle);
        idle.erase(found);
        return handle;
      }
    }
    curl::Easy fresh(curl_easy_init());
    CHECK(fresh, "libcurl gives no handle");
    return fresh;
  }
  void give_back(std::string origin, curl::Easy handle) {
    std::list<Idle> dropped;  // closed outside the lock
    Lock lock(mu);
    idle.push_front({std::move(origin), std::move(handle)});
    if (idle.size() > options.idle_connections_max) dropped.splice(dropped.begin(), idle, std::prev(idle.end()));
  }
};

Client::Client(ClientOptions options) : rep_(std::make_unique<Rep>()) {
  curl::start();
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
  curl::List headers, connect_to;
  if (rep_->rules) {
    x.only.address = check_outgoing(*rep_->rules, *rep_->resolver, target.scheme == "https", target.host);
    // The address is part of which connection is used again: one to another address is not.
    const auto address = x.only.address->is_v4() ? x.only.address->str() : "[" + x.only.address->str() + "]";
    curl::append(connect_to, fmt::format("{}:{}:{}:{}", target.host, target.port, address, target.port));
  }
  auto handle = rep_->take(origin);
  CURL* h = x.handle = handle.get();
  set_transfer(h, x, rep_->options);
  curl::set_trust(h, rep_->options);
  set_message(h, x, headers);
  curl_easy_setopt(h, CURLOPT_CURLU, target.url.get());
  if (connect_to) curl_easy_setopt(h, CURLOPT_CONNECT_TO, connect_to.get());

  const auto code = curl_easy_perform(h);
  long status = 0;
  curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_reset(h);  // forgets every pointer above, keeps the connection
  rep_->give_back(origin, std::move(handle));
  if (x.failure) std::rethrow_exception(x.failure);
  if (code != CURLE_OK) throw curl::translate(code, origin);
  x.response.status = static_cast<int>(status);
  return std::move(x.response);
}

}  // namespace falaj::net
