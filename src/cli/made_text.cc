// SPDX-License-Identifier: Apache-2.0
#include "cli/made_text.h"

#include <array>
#include <streambuf>
#include <utility>

namespace falaj::cli {
namespace {

class MadeBuffer final : public std::streambuf {
 public:
  explicit MadeBuffer(std::function<bool(std::string&)> more) : more_(std::move(more)) {}

 protected:
  int_type underflow() override {
    constexpr std::size_t kAtOnce = 1 << 20;
    text_.clear();
    while (text_.size() < kAtOnce && more_(text_)) {
    }
    setg(text_.data(), text_.data(), text_.data() + text_.size());
    return text_.empty() ? traits_type::eof() : traits_type::to_int_type(text_[0]);
  }

 private:
  const std::function<bool(std::string&)> more_;
  std::string text_;
};

class MadeStream final : public std::istream {
 public:
  explicit MadeStream(std::function<bool(std::string&)> more) : std::istream(nullptr), buffer_(std::move(more)) {
    rdbuf(&buffer_);
    exceptions(std::ios::badbit);  // else what is wrong would look like the end
  }

 private:
  MadeBuffer buffer_;
};

using Escapes = std::array<std::array<char, 4>, 256>;
constexpr Escapes escapes() {
  constexpr char kDigits[] = "0123456789ABCDEF";
  Escapes out{};
  for (std::size_t byte = 0; byte < 256; ++byte) out[byte] = {'\\', 'x', kDigits[byte / 16], kDigits[byte % 16]};
  return out;
}
constexpr Escapes kEscapes = escapes();

}  // namespace

std::unique_ptr<std::istream> made_text(std::function<bool(std::string&)> more) {
  return std::make_unique<MadeStream>(std::move(more));
}

void append_escaped(std::string& text, std::span<const std::uint8_t> bytes) {
  for (const auto byte : bytes) text.append(kEscapes[byte].data(), kEscapes[byte].size());
}

}  // namespace falaj::cli
