// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/render.h"

#include <array>
#include <ctime>
#include <memory>

#include <fmt/compile.h>
#include <fmt/format.h>
#include <zlib.h>

#include "foundation/base/text.h"
#include "foundation/net/grammar.h"

namespace falaj::net {
namespace {

constexpr std::size_t kCompressBytesMin = 1024;
constexpr std::size_t kCompressBytesMax = std::size_t{64} << 20;  // longer ones should have been streamed

std::string_view reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 206:
      return "Partial Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 412:
      return "Precondition Failed";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 416:
      return "Range Not Satisfiable";
    case 417:
      return "Expectation Failed";
    case 421:
      return "Misdirected Request";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

bool is_json(std::string_view type) {
  constexpr std::string_view kJson = "application/json";
  return type.size() >= kJson.size() && equal_without_case(type.substr(0, kJson.size()), kJson);
}

// One compressor a thread: setting it up costs more than compressing a small body.
class Gzip {
 public:
  Gzip() { ready_ = deflateInit2(&stream_, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK; }
  ~Gzip() {
    if (ready_) deflateEnd(&stream_);
  }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  std::string compress(std::string& in) {
    if (!ready_ || deflateReset(&stream_) != Z_OK) return {};
    std::string out(deflateBound(&stream_, in.size()), '\0');
    stream_.next_in = reinterpret_cast<Bytef*>(in.data());
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    if (deflate(&stream_, Z_FINISH) != Z_STREAM_END) return {};
    out.resize(out.size() - stream_.avail_out);
    return out;
  }

 private:
  z_stream stream_{};
  bool ready_ = false;
};

}  // namespace

bool has_body(int status) { return status >= 200 && status != 204 && status != 304; }

void render_head(const Response& response, const Envelope& envelope, std::string& out) {
  const auto write = std::back_inserter(out);
  fmt::format_to(write,
                 FMT_COMPILE("HTTP/1.1 {} {}\r\nDate: {}\r\nX-Request-Id: {}\r\nX-Content-Type-Options: nosniff\r\n"),
                 response.status, reason(response.status), envelope.date, envelope.request_id);
  bool json = false, caching = false;
  for (const auto& [name, value] : response.headers) {
    // Framing is ours: a handler that sets it could only contradict us.
    if (equal_without_case(name, "Content-Length") || equal_without_case(name, "Transfer-Encoding") ||
        equal_without_case(name, "Connection"))
      continue;
    json |= equal_without_case(name, "Content-Type") && is_json(value);
    caching |= equal_without_case(name, "Cache-Control");
    out.append(name).append(": ").append(value).append("\r\n");
  }
  if (json && !caching) out.append("Cache-Control: no-store\r\n");
  if (envelope.close) out.append("Connection: close\r\n");
  if (has_body(response.status)) {
    const auto* stream = std::get_if<StreamBody>(&response.body);
    if (!stream)
      fmt::format_to(write, FMT_COMPILE("Content-Length: {}\r\n"), std::get<std::string>(response.body).size());
    else if (stream->size)
      fmt::format_to(write, FMT_COMPILE("Content-Length: {}\r\n"), *stream->size);
    else if (envelope.chunked_allowed)
      out.append("Transfer-Encoding: chunked\r\n");
  }
  out.append("\r\n");
}

bool accepts_gzip(std::string_view accept_encoding) {
  for (const auto item : split(accept_encoding, ',')) {
    const auto parts = split(item, ';');
    const auto coding = trim(parts[0]);
    if (!equal_without_case(coding, "gzip") && coding != "*") continue;
    for (std::size_t i = 1; i < parts.size(); ++i) {
      const auto weight = trim(parts[i]);
      if (weight.size() >= 3 && equal_without_case(weight.substr(0, 2), "q=") &&
          weight.substr(2).find_first_not_of("0.") == weight.npos)
        return false;
    }
    return true;
  }
  return false;
}

void compress(const Head& head, Response& response) {
  auto* body = std::get_if<std::string>(&response.body);
  if (!body || body->size() < kCompressBytesMin || body->size() > kCompressBytesMax ||
      response.headers.find("Content-Encoding"))
    return;
  const auto type = response.headers.find("Content-Type");
  if (!type || !is_json(*type)) return;
  response.headers.add("Vary", "Accept-Encoding");
  const auto accepted = head.headers.find("Accept-Encoding");
  if (!accepted || !accepts_gzip(*accepted)) return;
  thread_local Gzip gzip;
  auto smaller = gzip.compress(*body);
  if (smaller.empty() || smaller.size() >= body->size()) return;
  *body = std::move(smaller);
  response.headers.add("Content-Encoding", "gzip");
}

std::string http_date(std::int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm parts{};
  gmtime_r(&time, &parts);
  std::array<char, 40> text{};
  const auto n = std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return {text.data(), n};
}

}  // namespace falaj::net
