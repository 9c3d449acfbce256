// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/parse.h"

#include <algorithm>
#include <cstring>

#include "foundation/base/text.h"
#include "foundation/net/grammar.h"

namespace falaj::net {
namespace {

constexpr std::size_t kChunkOverheadBytesMax = 4 * 1024;
constexpr unsigned kChunkSizeDigitsMax = 15;  // below 2^60: no sum of ours overflows

std::string_view trim_spaces(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Undoes percent-encoding once; false for a broken or hidden NUL escape. `plus` stands for a space in queries.
bool decode_percent(std::string_view in, bool plus, std::string& out) {
  out.clear();
  out.reserve(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i] == '%') {
      if (i + 2 >= in.size()) return false;
      const int high = hex_value(in[i + 1]), low = hex_value(in[i + 2]);
      if (high < 0 || low < 0 || (high == 0 && low == 0)) return false;
      out.push_back(static_cast<char>(high << 4 | low));
      i += 2;
    } else {
      out.push_back(plus && in[i] == '+' ? ' ' : in[i]);
    }
  }
  return true;
}

bool is_plain_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 127; });
}

// True for paths that mean one thing only: rooted, no "." or ".." or empty elements (but a trailing one).
bool is_canonical_path(std::string_view path) {
  if (path.empty() || path[0] != '/') return false;
  for (std::size_t at = 1; at < path.size();) {
    const auto slash = std::min(path.find('/', at), path.size());
    const auto element = path.substr(at, slash - at);
    if (element.empty() || element == "." || element == "..") return false;
    at = slash + 1;
  }
  return true;
}

bool parse_path(std::string_view raw, std::string& path) {
  if (!grammar::all(raw, grammar::kPath)) return false;
  if (raw.find('%') == raw.npos) {
    path.assign(raw);
    return is_canonical_path(path);
  }
  if (!decode_percent(raw, false, path)) return false;
  // An encoded slash would become a separator: two spellings of one path, of which a check may see only one.
  if (std::count(path.begin(), path.end(), '/') != std::count(raw.begin(), raw.end(), '/')) return false;
  const auto control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; };
  return std::none_of(path.begin(), path.end(), control) && is_utf8(path) && is_canonical_path(path);
}

bool parse_query(std::string_view raw, std::vector<std::pair<std::string, std::string>>& query) {
  while (!raw.empty()) {
    const auto end = std::min(raw.find('&'), raw.size());
    const auto pair = raw.substr(0, end);
    raw.remove_prefix(std::min(end + 1, raw.size()));
    if (pair.empty()) continue;
    const auto equals = std::min(pair.find('='), pair.size());
    auto& [key, value] = query.emplace_back();
    if (!decode_percent(pair.substr(0, equals), true, key)) return false;
    if (!decode_percent(pair.substr(std::min(equals + 1, pair.size())), true, value)) return false;
    if (!is_utf8(key) || !is_utf8(value)) return false;
  }
  return true;
}

// Splits an absolute-form target; the authority must then be the Host header's, word for word.
std::optional<std::string_view> take_authority(std::string_view& target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() < scheme.size() || !equal_without_case(target.substr(0, scheme.size()), scheme)) continue;
    const auto rest = target.substr(scheme.size());
    const auto end = std::min(rest.find_first_of("/?"), rest.size());
    target = rest.substr(end);
    return rest.substr(0, end);
  }
  return std::nullopt;
}

struct RequestLine {
  std::string_view method, target, version;
};

// Exactly two single spaces.
std::optional<RequestLine> split_request_line(std::string_view line) {
  const auto first = line.find(' ');
  if (first == line.npos) return std::nullopt;
  const auto second = line.find(' ', first + 1);
  if (second == line.npos || line.find(' ', second + 1) != line.npos) return std::nullopt;
  return RequestLine{line.substr(0, first), line.substr(first + 1, second - first - 1), line.substr(second + 1)};
}

std::optional<Refused> check_version(std::string_view version, Message& message) {
  if (version == "HTTP/1.1") return std::nullopt;
  if (version == "HTTP/1.0") {
    message.http_1_0 = true;
    message.keep_alive = false;
    return std::nullopt;
  }
  const bool shaped = version.size() == 8 && version.substr(0, 5) == "HTTP/" && is_digit(version[5]) &&
                      version[6] == '.' && is_digit(version[7]);
  if (shaped) return Refused{505, "only HTTP/1.1 is spoken here"};
  return Refused{400, "malformed request line"};
}

// What the fields say about framing, while they are being read.
struct Framing {
  std::string_view length, coding;
  unsigned lengths = 0, codings = 0, hosts = 0;
  bool close = false, keep_alive = false, malformed_options = false, unknown_expectation = false;
};

void note_connection(std::string_view value, Framing& framing) {
  while (!value.empty()) {
    const auto end = std::min(value.find(','), value.size());
    const auto option = trim_spaces(value.substr(0, end));
    if (!option.empty() && !is_token(option)) framing.malformed_options = true;
    if (equal_without_case(option, "close")) framing.close = true;
    if (equal_without_case(option, "keep-alive")) framing.keep_alive = true;
    value.remove_prefix(std::min(end + 1, value.size()));
  }
}

void note_field(std::string_view name, std::string_view value, Framing& framing, Message& message) {
  switch (name.size()) {  // most fields are none of these: their length alone says so
    case 4:
      if (equal_without_case(name, "Host")) ++framing.hosts, message.host = value;
      break;
    case 6:
      if (equal_without_case(name, "Origin")) message.origin = value.empty() ? "null" : value;
      if (equal_without_case(name, "Expect")) {
        message.expects_continue = equal_without_case(value, "100-continue");
        framing.unknown_expectation |= !message.expects_continue;
      }
      break;
    case 10:
      if (equal_without_case(name, "Connection")) note_connection(value, framing);
      break;
    case 14:
      if (equal_without_case(name, "Content-Length")) ++framing.lengths, framing.length = value;
      break;
    case 17:
      if (equal_without_case(name, "Transfer-Encoding")) ++framing.codings, framing.coding = value;
      break;
    default:
      break;
  }
}

std::optional<Refused> parse_fields(std::string_view lines, std::size_t fields_max, Headers& headers) {
  while (!lines.empty()) {
    const auto end = lines.find("\r\n");
    const auto line = lines.substr(0, end);
    lines.remove_prefix(end + 2);
    if (line.empty()) break;
    if (line[0] == ' ' || line[0] == '\t') return Refused{400, "folded header lines are not accepted"};
    const auto colon = line.find(':');
    if (colon == line.npos || !is_token(line.substr(0, colon))) return Refused{400, "malformed header name"};
    const auto value = trim_spaces(line.substr(colon + 1));
    if (!grammar::all(value, grammar::kField)) return Refused{400, "control character in a header"};
    if (headers.size() >= fields_max) return Refused{431, "too many header fields"};
    headers.add(line.substr(0, colon), value);
  }
  return std::nullopt;
}

std::optional<Refused> decide_framing(const Framing& framing, Message& message) {
  if (framing.lengths > 1) return Refused{400, "several content lengths"};
  if (framing.codings > 0 && framing.lengths > 0) return Refused{400, "both content length and transfer coding"};
  if (framing.codings > 1) return Refused{400, "several transfer codings"};
  if (framing.codings == 1) {
    if (message.http_1_0) return Refused{400, "transfer coding in HTTP/1.0"};
    if (!equal_without_case(framing.coding, "chunked"))
      return Refused{501, "the only transfer coding known is chunked"};
    message.body = BodyKind::chunked;
  }
  if (framing.lengths == 1) {
    const auto length = framing.length;
    if (length.empty() || length.size() > 18 || !grammar::all(length, grammar::kDigit))
      return Refused{400, "malformed content length"};
    for (const char c : length) message.length = message.length * 10 + static_cast<std::uint64_t>(c - '0');
    message.body = message.length > 0 ? BodyKind::length : BodyKind::none;
  }
  if (framing.malformed_options) return Refused{400, "malformed Connection"};
  if (framing.unknown_expectation) return Refused{417, "the only expectation known is 100-continue"};
  if (message.http_1_0 || message.body == BodyKind::none) message.expects_continue = false;
  message.keep_alive = !framing.close && (!message.http_1_0 || framing.keep_alive);
  return std::nullopt;
}

}  // namespace

HeadScanner::State HeadScanner::scan(std::string_view bytes) {
  while (at_ < bytes.size()) {
    const void* found = std::memchr(bytes.data() + at_, '\n', bytes.size() - at_);
    const bool in_request_line = line_ == 0;
    const std::size_t reached =
        found ? static_cast<std::size_t>(static_cast<const char*>(found) - bytes.data()) : bytes.size();
    if (in_request_line && reached > kRequestLineBytesMax) return refuse(414, "request line too long");
    if (reached >= bytes_max_) return refuse(431, "header fields too large");
    if (!found) {
      at_ = bytes.size();
      break;
    }
    if (reached == line_ || bytes[reached - 1] != '\r') return refuse(400, "line feed without carriage return");
    at_ = reached + 1;
    const bool empty_line = reached == line_ + 1;
    if (empty_line && in_request_line) return refuse(400, "empty request line");
    line_ = at_;
    if (empty_line) return State::complete;
  }
  return State::more;
}

std::optional<Refused> parse_head(std::string_view bytes, std::size_t fields_max, Head& head, Message& message) {
  message = {};
  head.headers.clear();
  head.query.clear();
  const auto line_end = bytes.find("\r\n");
  const auto line = split_request_line(bytes.substr(0, line_end));
  if (!line || !is_token(line->method) || line->target.empty() || !is_plain_ascii(line->target) ||
      line->target.find('#') != line->target.npos)
    return Refused{400, "malformed request line"};
  if (auto refused = check_version(line->version, message)) return refused;
  if (auto refused = parse_fields(bytes.substr(line_end + 2), fields_max, head.headers)) return refused;

  // Views into the headers are taken only now that their text no longer moves.
  Framing framing;
  for (const auto& [name, value] : head.headers) note_field(name, value, framing, message);
  if (framing.hosts != 1 || host_of(message.host).empty()) return Refused{400, "exactly one Host is required"};
  if (auto refused = decide_framing(framing, message)) return refused;

  const auto method = parse_method(line->method);
  if (!method) return Refused{501, "unknown method"};
  head.method = *method;
  auto target = line->target;
  const auto authority = take_authority(target);
  if (authority && !equal_without_case(*authority, message.host)) return Refused{400, "target and Host differ"};
  if (authority && (target.empty() || target[0] == '?')) return Refused{400, "target without a path"};
  const auto question = std::min(target.find('?'), target.size());
  if (!parse_path(target.substr(0, question), head.path)) return Refused{400, "malformed path"};
  if (question < target.size() && !parse_query(target.substr(question + 1), head.query))
    return Refused{400, "malformed query"};
  return std::nullopt;
}

std::string_view host_of(std::string_view authority) {
  std::size_t end = 0;
  if (!authority.empty() && authority[0] == '[') {
    const auto bracket = authority.find(']');
    if (bracket == authority.npos) return {};
    for (const char c : authority.substr(1, bracket - 1))
      if (hex_value(c) < 0 && c != ':' && c != '.') return {};
    end = bracket + 1;
  } else {
    while (end < authority.size() &&
           (hex_value(authority[end]) >= 0 || (to_lower(authority[end]) >= 'a' && to_lower(authority[end]) <= 'z') ||
            authority[end] == '-' || authority[end] == '.' || authority[end] == '_'))
      ++end;
  }
  const auto port = authority.substr(end);
  if (!port.empty() && (port[0] != ':' || port.size() > 6 || !grammar::all(port.substr(1), grammar::kDigit))) return {};
  return authority.substr(0, end);
}

bool ChunkDecoder::spend(std::size_t bytes) {
  overhead_ += bytes;
  if (overhead_ > kChunkOverheadBytesMax) state_ = State::malformed;
  return state_ != State::malformed;
}

void ChunkDecoder::end_size_line() { state_ = left_ > 0 ? State::data : State::trailer_first; }

void ChunkDecoder::take_size(char c) {
  const int digit = hex_value(c);
  if (digit >= 0) {
    left_ = left_ << 4 | static_cast<std::uint64_t>(digit);
    state_ = ++digits_ > kChunkSizeDigitsMax ? State::malformed : State::size;
  } else if (digits_ > 0 && c == '\r') {
    state_ = State::size_lf;
  } else if (digits_ > 0 && c == ';') {
    state_ = spend(1) ? State::extension : State::malformed;
  } else {
    state_ = State::malformed;
  }
}

void ChunkDecoder::take(char c) {
  const auto expect = [&](char wanted, State next) { state_ = c == wanted ? next : State::malformed; };
  switch (state_) {
    case State::size_first:
      left_ = digits_ = 0;
      [[fallthrough]];
    case State::size:
      return take_size(c);
    case State::extension:
      if (c == '\r')
        state_ = State::size_lf;
      else if (!is_field_char(c) || !spend(1))
        state_ = State::malformed;
      return;
    case State::size_lf:
      if (c != '\n')
        state_ = State::malformed;
      else
        end_size_line();
      return;
    case State::data_cr:
      return expect('\r', State::data_lf);
    case State::data_lf:
      return expect('\n', State::size_first);
    case State::trailer_first:
      if (c == '\r')
        state_ = State::last_lf;
      else
        state_ = grammar::is(c, grammar::kToken) && spend(1) ? State::trailer : State::malformed;
      return;
    case State::trailer:
      if (c == '\r')
        state_ = State::trailer_lf;
      else if (!is_field_char(c) || !spend(1))
        state_ = State::malformed;
      return;
    case State::trailer_lf:
      return expect('\n', State::trailer_first);
    case State::last_lf:
      return expect('\n', State::ended);
    case State::data:
    case State::ended:
    case State::malformed:
      return;
  }
}

ChunkDecoder::Step ChunkDecoder::next(std::string_view in, std::size_t data_max) {
  std::size_t used = 0;
  while (used < in.size() && state_ != State::ended && state_ != State::malformed) {
    if (state_ != State::data) {
      take(in[used++]);
      continue;
    }
    const auto n = std::min({in.size() - used, static_cast<std::size_t>(left_), data_max});
    left_ -= n;
    if (left_ == 0) state_ = State::data_cr;
    return {used + n, in.substr(used, n)};
  }
  return {used, {}};
}

}  // namespace falaj::net
