// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/s3_request.h"

#include <curl/curl.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "storage/blob/s3_sign.h"

namespace falaj::blob {

namespace {

void ready() {
  static const bool ok = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  CHECK(ok, "libcurl starts");
}

struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using HeaderList = std::unique_ptr<curl_slist, FreeList>;

void add_header(HeaderList& list, const std::string& line) {
  curl_slist* longer = curl_slist_append(list.get(), line.c_str());
  if (!longer) throw Error(Code::exhausted, "ask S3: out of memory");
  (void)list.release();
  list.reset(longer);
}

// What goes through curl's callbacks; none of them may throw through C.
struct Exchange {
  BytesView body;
  std::size_t sent = 0;
  S3Reply reply;
  std::size_t reply_bytes_max = 0;
  bool too_long = false;
};

std::size_t on_read(char* out, std::size_t size, std::size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const std::size_t n = std::min(size * count, exchange.body.size() - exchange.sent);
  if (n > 0) std::memcpy(out, exchange.body.data() + exchange.sent, n);
  exchange.sent += n;
  return n;
}

int on_seek(void* user, curl_off_t offset, int origin) {
  auto& exchange = *static_cast<Exchange*>(user);
  if (origin != SEEK_SET || offset < 0 || static_cast<std::size_t>(offset) > exchange.body.size()) {
    return CURL_SEEKFUNC_FAIL;
  }
  exchange.sent = static_cast<std::size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

std::size_t on_write(char* data, std::size_t size, std::size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const auto bytes = as_bytes({data, size * count});
  if (bytes.size() > exchange.reply_bytes_max - exchange.reply.body.size()) {
    exchange.too_long = true;
    return 0;
  }
  exchange.reply.body.insert(exchange.reply.body.end(), bytes.begin(), bytes.end());
  return bytes.size();
}

std::size_t on_header(char* data, std::size_t size, std::size_t count, void* user) {
  constexpr std::size_t kHeadersMax = 100;
  auto& headers = static_cast<Exchange*>(user)->reply.headers;
  const std::string_view line(data, size * count);
  const std::size_t colon = line.find(':');
  if (colon != std::string_view::npos && headers.size() < kHeadersMax) {
    headers[lower(line.substr(0, colon))] = trim(line.substr(colon + 1));
  }
  return line.size();
}

bool is_passing(long status) { return status == 429 || status >= 500; }

}  // namespace

// A handle of the pool for one request; reset keeps its connections.
class S3Client::Handle {
 public:
  explicit Handle(S3Client& client) : client_(client), curl_(client.take()) { curl_easy_reset(curl_); }
  ~Handle() { client_.give_back(curl_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  template <class Value>
  void set(CURLoption option, Value value) {
    if (curl_easy_setopt(curl_, option, value) != CURLE_OK) throw Error(Code::internal, "ask S3: an option is refused");
  }
  CURL* get() const { return curl_; }

 private:
  S3Client& client_;
  CURL* curl_;
};

S3Client::S3Client(S3Options options, const sys::Clock& clock, sys::Random& random)
    : options_(std::move(options)), clock_(clock), random_(random) {
  ready();
  const bool scheme_ok = options_.endpoint.starts_with("https://") || options_.endpoint.starts_with("http://");
  if (!scheme_ok || options_.bucket.empty() || options_.attempts == 0) {
    throw Error(Code::invalid, "an S3 backend needs an http(s) endpoint, a bucket and at least one attempt");
  }
}

S3Client::~S3Client() {
  Lock lock(mu_);
  for (void* handle : idle_) curl_easy_cleanup(handle);
}

void* S3Client::take() {
  {
    Lock lock(mu_);
    if (!idle_.empty()) {
      void* handle = idle_.back();
      idle_.pop_back();
      return handle;
    }
  }
  CURL* handle = curl_easy_init();
  if (!handle) throw Error(Code::exhausted, "ask S3: out of memory");
  return handle;
}

void S3Client::give_back(void* handle) {
  Lock lock(mu_);
  idle_.push_back(handle);
}

S3Client::Target S3Client::target_of(const S3Request& request) const {
  const std::size_t host = options_.endpoint.find("://") + 3;
  Target target{options_.endpoint.substr(0, host), options_.endpoint.substr(host), "/" + request.key,
                query_string(request.query)};
  if (options_.path_style) {
    target.path = "/" + options_.bucket + target.path;
  } else {
    target.host = options_.bucket + "." + target.host;
  }
  return target;
}

HeaderLines S3Client::headers_of(const S3Request& request, const Target& target) const {
  const std::string payload = crypto::sha256(request.body).hex();
  std::map<std::string, std::string> headers = {
      {"host", target.host}, {"x-amz-content-sha256", payload}, {"x-amz-date", amz_date(clock_.wall().count())}};
  if (!options_.session_token.empty()) headers["x-amz-security-token"] = options_.session_token;
  if (!request.range.empty()) headers["range"] = "bytes=" + request.range;
  headers["authorization"] = sign({request.method, target.path, target.query, headers, payload},
                                  {options_.access_key, options_.secret_key, options_.region});
  HeaderLines lines = {"Expect:", "Content-Type: application/octet-stream"};
  for (const auto& [name, value] : headers) lines.push_back(name + ": " + value);
  return lines;
}

void S3Client::pause_before(unsigned attempt) {
  const auto whole = options_.backoff.count() << std::min(attempt - 1, 10U);
  const auto half = static_cast<std::uint64_t>(std::max<std::int64_t>(whole / 2, 1));
  const sys::Micros wait(static_cast<std::int64_t>(half + random_.below(half)));
  if (options_.pause) {
    options_.pause(wait);
  } else {
    std::this_thread::sleep_for(wait);
  }
}

S3Reply S3Client::send_once(const S3Request& request) {
  Exchange exchange{request.body, 0, {}, request.reply_bytes_max, false};
  const Target target = target_of(request);
  HeaderList headers;
  for (const auto& line : headers_of(request, target)) add_header(headers, line);

  Handle curl(*this);
  const std::string url = target.scheme + target.host + target.path + (target.query.empty() ? "" : "?" + target.query);
  const std::string_view method = request.method;
  curl.set(CURLOPT_URL, url.c_str());
  curl.set(CURLOPT_NOSIGNAL, 1L);
  curl.set(CURLOPT_PROXY, "");
  curl.set(CURLOPT_PROTOCOLS_STR, "http,https");
  curl.set(CURLOPT_FOLLOWLOCATION, 0L);
  curl.set(CURLOPT_PATH_AS_IS, 1L);
  curl.set(CURLOPT_SSLVERSION, long{CURL_SSLVERSION_TLSv1_2});
  if (!options_.ca_file.empty()) curl.set(CURLOPT_CAINFO, options_.ca_file.c_str());
  curl.set(CURLOPT_CONNECTTIMEOUT_MS, 10'000L);
  curl.set(CURLOPT_TIMEOUT_MS, static_cast<long>(options_.timeout.count() / 1000));
  curl.set(CURLOPT_HTTPHEADER, headers.get());
  curl.set(CURLOPT_WRITEFUNCTION, on_write);
  curl.set(CURLOPT_WRITEDATA, &exchange);
  curl.set(CURLOPT_HEADERFUNCTION, on_header);
  curl.set(CURLOPT_HEADERDATA, &exchange);
  if (method == "HEAD") curl.set(CURLOPT_NOBODY, 1L);
  if (method == "PUT" || method == "POST") {
    curl.set(CURLOPT_UPLOAD, 1L);
    curl.set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    curl.set(CURLOPT_READFUNCTION, on_read);
    curl.set(CURLOPT_READDATA, &exchange);
    curl.set(CURLOPT_SEEKFUNCTION, on_seek);
    curl.set(CURLOPT_SEEKDATA, &exchange);
  }
  if (method != "HEAD") curl.set(CURLOPT_CUSTOMREQUEST, request.method);
  const CURLcode result = curl_easy_perform(curl.get());
  if (exchange.too_long) throw Error(Code::exhausted, "ask S3: the answer is longer than was asked for");
  if (result != CURLE_OK) {
    throw Error(Code::unavailable, std::string("ask S3: ") + curl_easy_strerror(result));
  }
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &exchange.reply.status);
  return std::move(exchange.reply);
}

S3Reply S3Client::send(const S3Request& request) {
  std::string why;
  for (unsigned attempt = 0; attempt < options_.attempts; ++attempt) {
    if (attempt > 0) pause_before(attempt);
    try {
      S3Reply reply = send_once(request);
      if (reply.status == 401 || reply.status == 403) {
        throw Error(Code::denied, "S3 refuses the credentials or the access");
      }
      if (!is_passing(reply.status)) return reply;
      why = "ask S3: status " + std::to_string(reply.status);
    } catch (const Error& error) {
      if (error.code() != Code::unavailable) throw;
      why = error.what();
    }
    log::debug("s3_attempt_failed", {{"attempt", attempt + 1}, {"why", why}});
  }
  throw Error(Code::unavailable, why + ", after " + std::to_string(options_.attempts) + " attempts");
}

}  // namespace falaj::blob
