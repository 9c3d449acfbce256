// SPDX-License-Identifier: Apache-2.0
// A head that we accept means one thing: the same however it is cut, the same after writing it out and reading it
// again, and the same to a parser that others wrote (Beast's).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>

#include "foundation/base/error.h"
#include "foundation/net/grammar.h"
#include "foundation/net/parse.h"

namespace falaj::net {
namespace {

namespace http = boost::beast::http;

constexpr std::size_t kBytesMax = 4096, kFieldsMax = 20;

struct Parsed {
  bool accepted = false;
  std::size_t end = 0;
  Head head;
  Message message;
};

Parsed parse(std::string_view bytes, std::size_t step) {
  Parsed out;
  HeadScanner scanner(kBytesMax);
  auto state = HeadScanner::State::more;
  for (std::size_t n = 0; n < bytes.size() && state == HeadScanner::State::more;)
    state = scanner.scan(bytes.substr(0, n = std::min(bytes.size(), n + step)));
  if (state != HeadScanner::State::complete) return out;
  out.end = scanner.end();
  out.accepted = !parse_head(bytes.substr(0, out.end), kFieldsMax, out.head, out.message);
  return out;
}

bool same(const Parsed& a, const Parsed& b) {
  if (a.accepted != b.accepted) return false;
  if (!a.accepted) return true;
  if (a.head.method != b.head.method || a.head.path != b.head.path || a.head.query != b.head.query ||
      a.head.headers.size() != b.head.headers.size() || a.message.body != b.message.body ||
      a.message.length != b.message.length || a.message.keep_alive != b.message.keep_alive)
    return false;
  auto other = b.head.headers.begin();
  for (const auto& [name, value] : a.head.headers) {
    if (name != (*other).name || value != (*other).value) return false;
    ++other;
  }
  return true;
}

std::string encoded(std::string_view text, bool path) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (grammar::is(c, grammar::kPath) && c != '%' && (path || (c != '&' && c != '=' && c != '+' && c != '/')))
      out.push_back(c);
    else
      (out += '%') += {kHex[byte >> 4], kHex[byte & 15]};
  }
  return out;
}

std::string written(const Parsed& p) {
  std::string out = std::string(name(p.head.method)) + " " + encoded(p.head.path, true);
  char separator = '?';
  for (const auto& [key, value] : p.head.query) {
    (out += separator) += encoded(key, false) + "=" + encoded(value, false);
    separator = '&';
  }
  out += p.message.http_1_0 ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n";
  for (const auto& [field, value] : p.head.headers) ((out += field) += ": ") += std::string(value) + "\r\n";
  return out + "\r\n";
}

void compare_with_beast(std::string_view head, const Parsed& ours) {
  http::request_parser<http::empty_body> parser;
  parser.eager(false);
  parser.header_limit(1 << 20);
  parser.body_limit(boost::none);
  boost::system::error_code failed;
  parser.put(boost::asio::buffer(head), failed);
  CHECK(!failed && parser.is_header_done(), "Beast refuses a head that we accept");
  const auto& theirs = parser.get();
  CHECK(theirs.method_string() == boost::string_view(name(ours.head.method).data(), name(ours.head.method).size()),
        "another method");
  CHECK(parser.chunked() == (ours.message.body == BodyKind::chunked), "another framing");
  const auto length = parser.content_length();
  CHECK(length.value_or(0) == ours.message.length, "another length");
  CHECK(parser.keep_alive() == ours.message.keep_alive, "another end of the connection");
  std::size_t fields = 0;
  for (const auto& field : theirs) fields += !field.name_string().empty();
  CHECK(fields == ours.head.headers.size(), "another number of fields");
}

}  // namespace
}  // namespace falaj::net

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace falaj::net;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto whole = parse(bytes, bytes.size());
  CHECK(same(whole, parse(bytes, 7)), "cutting changes the meaning");
  if (!whole.accepted) return 0;
  CHECK(!whole.head.path.empty() && whole.head.path[0] == '/' && whole.head.path.find("/../") == std::string::npos,
        "a path that leaves its root");
  const auto text = written(whole);
  // Percent-encoding may make it longer than a head may be; only then may the second reading fail.
  if (text.size() < kBytesMax) CHECK(same(whole, parse(text, text.size())), "writing changes the meaning");
  compare_with_beast(bytes.substr(0, whole.end), whole);
  return 0;
}
