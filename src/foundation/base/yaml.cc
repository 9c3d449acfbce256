// SPDX-License-Identifier: Apache-2.0
#include "foundation/base/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <istream>
#include <optional>
#include <streambuf>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/shape.h"
#include "foundation/base/text.h"

namespace falaj {
namespace {

// Paths repeat the keys above them, so many values below long keys would need far more memory than the text has bytes.
// What lies beyond is reported at the place of what holds it.
constexpr std::size_t kPositionBytesMax = 8 << 20;
constexpr std::size_t kKeyBytesMax = 1024;

[[noreturn]] void refuse(Position at, std::string_view what) {
  throw Error(Code::invalid, fmt::format("yaml: line {}, column {}: {}", at.line, at.column, what));
}

Position position_of(const YAML::Mark& mark) {
  return {static_cast<std::size_t>(mark.line) + 1, static_cast<std::size_t>(mark.column) + 1};
}

bool digits(std::string_view text, std::string_view allowed) {
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

template <class T>
std::optional<T> number(std::string_view text, int base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?
bool is_float(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  const auto skip = [&](std::string_view set, std::size_t most) {
    std::size_t n = 0;
    while (n < most && n < text.size() && set.find(text[n]) != std::string_view::npos) ++n;
    text.remove_prefix(n);
    return n;
  };
  skip("+-", 1);
  const std::size_t whole = skip(kDigits, text.size());
  const std::size_t fraction = skip(".", 1) == 1 ? skip(kDigits, text.size()) : 0;
  if (whole == 0 && fraction == 0) return false;
  if (skip("eE", 1) == 1) {
    skip("+-", 1);
    if (skip(kDigits, text.size()) == 0) return false;
  }
  return text.empty();
}

json::value whole_number(std::string_view text, int base, Position at) {
  if (text.front() == '+') text.remove_prefix(1);
  if (const auto v = number<std::int64_t>(text, base)) return *v;
  if (const auto v = number<std::uint64_t>(text, base)) return *v;
  refuse(at, "a whole number of more than 64 bits; quote it if it is text");
}

// A plain scalar by the core schema (YAML 1.2.2, 10.3.2). Null has an event of its own.
json::value plain_scalar(const std::string& text, Position at) {
  const std::string_view v = text;
  if (v == "true" || v == "True" || v == "TRUE") return true;
  if (v == "false" || v == "False" || v == "FALSE") return false;
  const std::string_view unsigned_part = v.substr(!v.empty() && (v[0] == '-' || v[0] == '+') ? 1 : 0);
  if (digits(unsigned_part, "0123456789")) return whole_number(v, 10, at);
  if (v.substr(0, 2) == "0o" && digits(v.substr(2), "01234567")) return whole_number(v.substr(2), 8, at);
  if (v.substr(0, 2) == "0x" && digits(v.substr(2), "0123456789abcdefABCDEF")) return whole_number(v.substr(2), 16, at);
  const std::string word = lower(unsigned_part);
  if (word == ".inf" || lower(v) == ".nan")
    refuse(at, "infinity and not-a-number are not allowed; quote it if it is text");
  if (!is_float(v)) return json::value(text);
  double value = 0;
  const auto* begin = v.data() + (v[0] == '+' ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, v.data() + v.size(), value);
  if (error != std::errc() || end != v.data() + v.size()) refuse(at, "a number out of range; quote it if it is text");
  return value;
}

class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(const YamlLimits& limits) : limits_(limits) {}
  std::vector<YamlDocument> take() { return std::move(documents_); }

  void OnDocumentStart(const YAML::Mark&) override {
    documents_.emplace_back();
    levels_.clear();
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const Position at = count(mark, "?", anchor);
    if (wants_key()) refuse(at, "a key must be text");
    place(nullptr, at);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(position_of(mark), "aliases are not allowed");
  }
  void OnAnchor(const YAML::Mark& mark, const std::string&) override {
    refuse(position_of(mark), "anchors are not allowed");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    const bool quoted = tag == "!";
    const Position at = count(mark, quoted ? "?" : tag, anchor);
    if (!is_utf8(text)) refuse(at, "an escape gives text that is not UTF-8");
    if (wants_key())
      take_key(text, at);
    else
      place(quoted ? json::value(text) : plain_scalar(text, at), at);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(json::array(), mark, tag, anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(json::object(), mark, tag, anchor);
  }
  void OnMapEnd() override { end(); }

 private:
  struct Level {
    json::value value;  // an object or an array
    std::string path;
    Position at;
    std::optional<std::string> key = std::nullopt;  // of the member whose value comes next
    Position key_at = {};
  };

  Position count(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    const Position at = position_of(mark);
    if (tag != "?" && !tag.empty()) refuse(at, "tags are not allowed");
    if (anchor != YAML::NullAnchor) refuse(at, "anchors are not allowed");
    if (++nodes_ > limits_.nodes) refuse(at, fmt::format("more than {} values", limits_.nodes));
    return at;
  }

  bool wants_key() const { return !levels_.empty() && levels_.back().value.is_object() && !levels_.back().key; }

  void take_key(const std::string& text, Position at) {
    auto& level = levels_.back();
    if (text.size() > kKeyBytesMax) refuse(at, fmt::format("a key of more than {} bytes", kKeyBytesMax));
    if (level.value.get_object().contains(text)) refuse(at, fmt::format("key '{}' is there twice", text));
    level.key = text;
    level.key_at = at;
  }

  std::string path_of_next() const {
    if (levels_.empty()) return {};
    const auto& level = levels_.back();
    return level.key ? shape::below(level.path, *level.key) : shape::below(level.path, level.value.get_array().size());
  }

  void record(const std::string& path, Position at) {
    position_bytes_ += path.size();
    if (position_bytes_ > kPositionBytesMax) return;
    const bool member = !levels_.empty() && levels_.back().key;
    documents_.back().positions.emplace(path, member ? levels_.back().key_at : at);
  }

  void place(json::value value, Position at) {
    record(path_of_next(), at);
    put(std::move(value));
  }
  void put(json::value value) {
    if (levels_.empty()) {
      documents_.back().value = std::move(value);
    } else if (auto& level = levels_.back(); level.key) {
      level.value.get_object().emplace(*level.key, std::move(value));
      level.key.reset();
    } else {
      level.value.get_array().push_back(std::move(value));
    }
  }

  void begin(json::value empty, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    const Position at = count(mark, tag, anchor);
    if (wants_key()) refuse(at, "a key must be text");
    if (levels_.size() >= limits_.depth) refuse(at, fmt::format("nested more than {} deep", limits_.depth));
    std::string path = path_of_next();
    record(path, at);
    levels_.push_back({std::move(empty), std::move(path), at});
  }
  void end() {
    json::value value = std::move(levels_.back().value);
    levels_.pop_back();
    put(std::move(value));
  }

  const YamlLimits& limits_;
  std::vector<YamlDocument> documents_;
  std::vector<Level> levels_;  // the containers being read, outermost first
  std::size_t nodes_ = 0;
  std::size_t position_bytes_ = 0;
};

// Reads a view in place.
class ViewBuffer final : public std::streambuf {
 public:
  explicit ViewBuffer(std::string_view text) {
    char* begin = const_cast<char*>(text.data());
    setg(begin, begin, begin + text.size());
  }
};

// The parser would take some control characters for its own marks (0x04 ends its input).
void refuse_control_characters(std::string_view text) {
  const auto bad = std::find_if(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t';
  });
  if (bad == text.end()) return;
  const auto before = text.substr(0, static_cast<std::size_t>(bad - text.begin()));
  const auto line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  refuse({static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')) + 1, before.size() - line_start + 1},
         "a control character");
}

}  // namespace

Position YamlDocument::position(std::string_view path) const {
  for (;;) {
    if (const auto it = positions.find(path); it != positions.end()) return it->second;
    if (path.empty()) return {};
    const auto cut = path.find_last_of(".[");
    path = path.substr(0, cut == std::string_view::npos ? 0 : cut);
  }
}

std::vector<YamlDocument> parse_yaml(std::string_view text, const YamlLimits& limits) {
  if (text.size() > limits.bytes) throw Error(Code::invalid, fmt::format("yaml: longer than {} bytes", limits.bytes));
  if (!is_utf8(text)) throw Error(Code::invalid, "yaml: not UTF-8");
  refuse_control_characters(text);
  Builder builder(limits);
  try {
    ViewBuffer buffer(text);
    std::istream in(&buffer);
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    refuse(position_of(error.mark), error.msg);
  }
  return builder.take();
}

}  // namespace falaj
