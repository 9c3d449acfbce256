// SPDX-License-Identifier: Apache-2.0
#include "cli/idx.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>

#include <fmt/format.h>

#include "cli/made_text.h"
#include "foundation/base/error.h"

namespace falaj::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kImages = "-images-idx3-ubyte", kLabels = "-labels-idx1-ubyte";
constexpr std::uint32_t kPixelsMax = 1 << 24;

// One file: 0, 0, 8 (bytes), the number of dimensions, then the size of each, then the bytes.
class IdxFile {
 public:
  IdxFile(std::string path, std::size_t dimensions) : path_(std::move(path)), file_(gzopen(path_.c_str(), "rb")) {
    if (!file_) throw Error(Code::not_found, fmt::format("cannot read {}", path_));
    const auto magic = number();
    if (magic != 0x800 + dimensions)
      throw Error(Code::corrupt, fmt::format("{} is no IDX file of bytes in {} dimensions", path_, dimensions));
    for (std::size_t i = 0; i < dimensions; ++i) sizes.push_back(number());
  }
  void read(std::uint8_t* out, std::size_t n) {
    const auto got = gzread(file_.get(), out, static_cast<unsigned>(n));
    if (got < 0 || static_cast<std::size_t>(got) != n)
      throw Error(Code::corrupt, fmt::format("{} ends too early or is damaged", path_));
  }

  std::vector<std::uint32_t> sizes;

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };
  std::uint32_t number() {
    std::uint8_t bytes[4];
    read(bytes, sizeof bytes);
    return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
  }

  const std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

// Row after row of all pairs.
class IdxRows {
 public:
  explicit IdxRows(std::vector<IdxPair> pairs) : pairs_(std::move(pairs)) {}

  bool more(std::string& text) {
    if (!headed_) text += "image,label,part\n";
    headed_ = true;
    if (pair_ == pairs_.size()) return false;
    add_row(text);
    return true;
  }

 private:
  void add_row(std::string& text) {
    const auto& pair = pairs_[pair_];
    if (!images_) {
      images_ = std::make_unique<IdxFile>(pair.images, 3);
      labels_ = std::make_unique<IdxFile>(pair.labels, 1);
      if (images_->sizes[0] != labels_->sizes[0])
        throw Error(Code::corrupt, fmt::format("{} has {} images and {} has {} labels", pair.images, images_->sizes[0],
                                               pair.labels, labels_->sizes[0]));
      const auto pixels = std::uint64_t{images_->sizes[1]} * images_->sizes[2];
      if (pixels == 0 || pixels > kPixelsMax)
        throw Error(Code::corrupt, fmt::format("{} has images of {} pixels", pair.images, pixels));
      pixels_.resize(pixels);
      row_ = 0;
    }
    if (row_++ == images_->sizes[0]) {
      images_.reset();
      labels_.reset();
      ++pair_;
      return;
    }
    images_->read(pixels_.data(), pixels_.size());
    std::uint8_t label = 0;
    labels_->read(&label, 1);
    append_escaped(text, pixels_);
    text += fmt::format(",{},{}\n", label, pair.part);
  }

  const std::vector<IdxPair> pairs_;
  std::size_t pair_ = 0, row_ = 0;
  std::unique_ptr<IdxFile> images_, labels_;
  std::vector<std::uint8_t> pixels_;
  bool headed_ = false;
};

std::size_t place_of(const std::string& part) {
  constexpr std::string_view kParts[] = {"train", "valid", "test"};
  return static_cast<std::size_t>(std::find(std::begin(kParts), std::end(kParts), part) - std::begin(kParts));
}

}  // namespace

std::vector<IdxPair> idx_pairs(const std::string& directory) {
  std::vector<IdxPair> out;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const auto name = entry.path().filename().string();
    const auto at = name.find(kImages);
    if (at == std::string::npos) continue;
    const auto prefix = name.substr(0, at);
    const auto labels = fs::path(directory) / fmt::format("{}{}{}", prefix, kLabels, name.substr(at + kImages.size()));
    if (!fs::exists(labels))
      throw Error(Code::not_found, fmt::format("{} has no labels beside it: {}", name, labels.string()));
    out.push_back({entry.path().string(), labels.string(), prefix == "t10k" ? "test" : prefix});
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return std::pair(place_of(a.part), a.part) < std::pair(place_of(b.part), b.part);
  });
  return out;
}

std::unique_ptr<std::istream> idx_as_csv(std::vector<IdxPair> pairs) {
  const auto rows = std::make_shared<IdxRows>(std::move(pairs));
  return made_text([rows](std::string& text) { return rows->more(text); });
}

}  // namespace falaj::cli
