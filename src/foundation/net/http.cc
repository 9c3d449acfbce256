// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/http.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "foundation/base/json.h"
#include "foundation/base/text.h"
#include "foundation/net/grammar.h"

namespace falaj::net {
namespace {

constexpr std::array<std::string_view, 6> kMethods = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"};

struct Span {
  std::uint64_t first, last;
};

std::optional<std::uint64_t> parse_count(std::string_view text) {
  if (text.empty() || text.size() > 18) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text) {
    if (!is_digit(c)) return std::nullopt;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

// "bytes=2-5", "bytes=2-", "bytes=-5". An empty optional: not a range we know. first > last: one outside the body.
std::optional<Span> parse_range(std::string_view text, std::uint64_t size) {
  if (text.size() < 6 || !equal_without_case(text.substr(0, 6), "bytes=")) return std::nullopt;
  text = trim(text.substr(6));
  const auto dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto low = parse_count(text.substr(0, dash)), high = parse_count(text.substr(dash + 1));
  if (dash == 0) {
    if (!high) return std::nullopt;
    if (*high == 0 || size == 0) return Span{1, 0};
    return Span{size - std::min(size, *high), size - 1};
  }
  if (!low || (!high && dash + 1 != text.size()) || (high && *high < *low)) return std::nullopt;
  if (*low >= size) return Span{1, 0};
  return Span{*low, high ? std::min(*high, size - 1) : size - 1};
}

}  // namespace

std::string_view name(Method method) { return kMethods[static_cast<std::size_t>(method)]; }

std::optional<Method> parse_method(std::string_view text) {
  const auto found = std::find(kMethods.begin(), kMethods.end(), text);
  if (found == kMethods.end()) return std::nullopt;
  return static_cast<Method>(found - kMethods.begin());
}

void Headers::add(std::string_view name, std::string_view value) {
  if (!is_token(name)) throw Error(Code::invalid, "a header's name is not a token");
  if (!grammar::all(value, grammar::kField))
    throw Error(Code::invalid, fmt::format("control character in the value of header {}", name));
  places_.push_back({static_cast<std::uint32_t>(text_.size()), static_cast<std::uint32_t>(name.size()),
                     static_cast<std::uint32_t>(value.size())});
  text_.append(name).append(value);
}

void Headers::set(std::string_view name, std::string_view value) {
  Headers kept;
  for (const auto& [other, old] : *this)
    if (!equal_without_case(other, name)) kept.add(other, old);
  kept.add(name, value);
  *this = std::move(kept);
}

std::optional<std::string_view> Headers::find(std::string_view name) const {
  for (const auto& [other, value] : *this)
    if (equal_without_case(other, name)) return value;
  return std::nullopt;
}

std::optional<std::string_view> Head::parameter(std::string_view name) const {
  for (const auto& [key, value] : query)
    if (key == name) return value;
  return std::nullopt;
}

std::string BodyReader::read_all() {
  std::string out;
  // The client's word is only a hint: memory is taken as bytes arrive, at most one piece ahead of them.
  const std::size_t first = std::min<std::uint64_t>(size().value_or(4096), kPieceBytes);
  for (std::size_t have = 0;;) {
    if (out.size() == have) out.resize(std::max(have * 2, first + 1));
    const auto n = read(std::as_writable_bytes(std::span(out).subspan(have)));
    if (n == 0) {
      out.resize(have);
      return out;
    }
    have += n;
  }
}

Response error_response(int status, const Error& error, std::string_view request_id) {
  json::array details;
  for (const auto& fault : error.faults()) details.push_back({{"field", fault.where}, {"problem", fault.what}});
  Response response;
  response.status = status;
  response.headers.add("Content-Type", "application/json");
  response.body = json::serialize(json::value{{"error",
                                               {{"code", name(error.code())},
                                                {"message", error.what()},
                                                {"request_id", request_id},
                                                {"details", std::move(details)}}}});
  return response;
}

RangeReply apply_range(const Head& head, std::uint64_t size) {
  RangeReply reply;
  reply.length = size;
  reply.headers.add("Accept-Ranges", "bytes");
  const auto asked = head.headers.find("Range");
  // If-Range needs a validator to compare with, which only the handler has: without one the whole body is right.
  if (!asked || head.headers.find("If-Range")) return reply;
  const auto span = parse_range(*asked, size);
  if (!span) return reply;
  if (span->first > span->last) {
    reply.status = 416;
    reply.length = 0;
    reply.headers.add("Content-Range", fmt::format("bytes */{}", size));
    return reply;
  }
  reply.status = 206;
  reply.offset = span->first;
  reply.length = span->last - span->first + 1;
  reply.headers.add("Content-Range", fmt::format("bytes {}-{}/{}", span->first, span->last, size));
  return reply;
}

}  // namespace falaj::net
