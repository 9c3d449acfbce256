// SPDX-License-Identifier: Apache-2.0
#include "foundation/client/api_client.h"

#include <chrono>
#include <condition_variable>

#include <fmt/format.h>

#include "foundation/base/mutex.h"
#include "foundation/base/text.h"
#include "foundation/net/client.h"
#include "foundation/sys/random.h"

namespace falaj::client {
namespace {

constexpr std::int64_t kSlowWaitUs = 900'000'000;  // a server that verifies a large log says nothing for a while

bool unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

std::string not_ours(int status) {
  return fmt::format("the server answered {} and not as Falaj does: is the address right?", status);
}

Code code_of(int status) {
  switch (status) {
    case 401:
      return Code::unauthenticated;
    case 403:
      return Code::denied;
    case 404:
      return Code::not_found;
    case 429:
      return Code::exhausted;
    default:
      return status >= 500 ? Code::unavailable : Code::invalid;
  }
}

// The Error that the server meant.
Error error_of(const net::ClientResponse& response) {
  try {
    const auto body = parse_json(response.body);
    if (const auto* message = body.as_object().if_contains("message"))  // as MLflow's clients are answered
      return Error(code_of(response.status), std::string(message->as_string()));
    if (const auto& said = body.at("error"); said.is_string())  // as those of inference servers are
      return Error(code_of(response.status), std::string(said.as_string()));
    const auto& error = body.at("error").as_object();
    std::vector<Fault> faults;
    for (const auto& detail : error.at("details").as_array())
      faults.push_back({std::string(detail.at("field").as_string()), std::string(detail.at("problem").as_string())});
    return Error(parse_code(error.at("code").as_string()).value_or(Code::internal),
                 std::string(error.at("message").as_string()), std::move(faults));
  } catch (const std::exception&) {
    const Code code = response.status >= 500   ? Code::unavailable
                      : response.status == 429 ? Code::exhausted
                                               : Code::invalid;
    return Error(code, not_ours(response.status));
  }
}

json::value answer_of(const net::ClientResponse& response) {
  if (response.body.empty()) return nullptr;
  try {
    return parse_json(response.body);
  } catch (const Error&) {
    throw Error(Code::invalid, not_ours(response.status));
  }
}

// Waits without a sleep: nothing ever signals it.
void pause(std::int64_t micros) {
  Mutex mu;
  std::condition_variable never;
  Lock lock(mu);
  lock.wait_for(never, std::chrono::microseconds(micros));
}

}  // namespace

struct ApiClient::Rep {
  Target target;
  net::Client http;
  int tries_max;
  sys::RealRandom random;

  std::string url_of(const std::string& path, const Query& query) const {
    std::string url = target.url;
    while (url.ends_with('/')) url.pop_back();
    url += path;
    char separator = '?';
    for (const auto& [key, value] : query) {
      url += fmt::format("{}{}={}", separator, path_element(key), path_element(value));
      separator = '&';
    }
    return url;
  }
  net::ClientRequest request(net::Method method, const std::string& path, const Query& query) const {
    net::ClientRequest out;
    out.method = method;
    out.url = url_of(path, query);
    out.response_bytes_max = 64 << 20;
    if (!target.token.empty()) out.headers.add("Authorization", "Bearer " + target.token);
    if (!target.session.empty()) out.headers.add("Cookie", "falaj_session=" + target.session);
    return out;
  }
  // Tries again what may be tried again, with growing random pauses.
  json::value send(const net::ClientRequest& request, int tries) {
    for (int attempt = 1;; ++attempt) {
      std::optional<net::ClientResponse> response;
      try {
        response = http.send(request);
      } catch (const Error& e) {  // no answer; one that is too long will be so again
        if (e.code() != Code::unavailable || attempt >= tries) throw;
      }
      if (response) {
        if (response->status < 300) return answer_of(*response);
        const Error error = error_of(*response);
        const bool busy = error.code() == Code::unavailable || error.code() == Code::exhausted;
        if (!busy || attempt >= tries) throw error;
      }
      const std::uint64_t most = std::uint64_t{100'000} << attempt;
      pause(static_cast<std::int64_t>(most / 2 + random.below(most / 2)));
    }
  }
};

ApiClient::ApiClient(Target target, int tries_max) {
  net::ClientOptions options;
  options.ca_file = target.ca_file;
  options.slow_wait_us = kSlowWaitUs;
  rep_.reset(new Rep{std::move(target), net::Client(options), tries_max, {}});
}
ApiClient::~ApiClient() = default;

const Target& ApiClient::target() const { return rep_->target; }

json::value ApiClient::get(const std::string& path, const Query& query) {
  return rep_->send(rep_->request(net::Method::get, path, query), rep_->tries_max);
}

json::value ApiClient::post(const std::string& path, const json::value& body, const Query& query,
                            const std::string& idempotency_key) {
  auto request = rep_->request(net::Method::post, path, query);
  request.headers.add("Content-Type", "application/json");
  request.headers.add("Idempotency-Key", idempotency_key.empty()
                                             ? fmt::format("{:016x}{:016x}", rep_->random.next(), rep_->random.next())
                                             : idempotency_key);
  request.body = json::serialize(body);
  return rep_->send(request, rep_->tries_max);
}

json::value ApiClient::del(const std::string& path, const Query& query) {
  return rep_->send(rep_->request(net::Method::del, path, query), 1);
}

json::value ApiClient::upload(const std::string& path, const Query& query, net::BodySource source,
                              std::optional<std::uint64_t> size, net::Method method) {
  auto request = rep_->request(method, path, query);
  request.headers.add("Content-Type", "application/octet-stream");
  request.body = net::StreamBody{std::move(source), size};
  return rep_->send(request, 1);
}

void ApiClient::download(net::Method method, const std::string& path, const Query& query, const json::value* body,
                         const std::function<void(std::optional<std::uint64_t>)>& begin,
                         const std::function<void(BytesView)>& sink) {
  auto request = rep_->request(method, path, query);
  if (body) {
    request.headers.add("Content-Type", "application/json");
    request.body = json::serialize(*body);
  }
  bool begun = false;
  request.before_sink = [&](const net::Headers& headers) {
    const auto length = parse_int(headers.find("Content-Length").value_or(""));
    begin(length && *length >= 0 ? std::optional(static_cast<std::uint64_t>(*length)) : std::nullopt);
    begun = true;
  };
  request.sink = sink;
  request.response_bytes_max = ~std::uint64_t{0};
  const auto response = rep_->http.send(request);
  if (response.status >= 300) throw error_of(response);
  if (!begun) begin(0);
}

std::string path_element(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (unreserved(c))
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace falaj::client
