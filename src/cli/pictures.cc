// SPDX-License-Identifier: Apache-2.0
#include "cli/pictures.h"

#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdint>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "cli/made_text.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSideMax = 16'384, kPixelBytesMax = 1 << 28;

struct Pixels {
  std::size_t height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> bytes;
};

[[noreturn]] void damaged(const std::string& path, std::string_view why) {
  throw Error(Code::corrupt, fmt::format("{}: {}", path, why));
}

void make_room(Pixels& out, const std::string& path) {
  if (out.height == 0 || out.width == 0 || out.height > kSideMax || out.width > kSideMax ||
      out.height * out.width * out.channels > kPixelBytesMax)
    damaged(path, fmt::format("{} by {} pixels are too many", out.height, out.width));
  out.bytes.resize(out.height * out.width * out.channels);
}

// `channels`: 1 or 3; 0: as the file has it.
Pixels read_png(const std::string& path, std::size_t channels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> freed(&image, png_image_free);
  if (png_image_begin_read_from_file(&image, path.c_str()) == 0) damaged(path, image.message);
  Pixels out{image.height, image.width, channels, {}};
  if (channels == 0) out.channels = (image.format & PNG_FORMAT_FLAG_COLOR) != 0 ? 3 : 1;
  image.format = out.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  make_room(out, path);
  const png_color black{0, 0, 0};  // where it is transparent
  if (png_image_finish_read(&image, &black, out.bytes.data(), 0, nullptr) == 0) damaged(path, image.message);
  return out;
}

struct JpegFailure {
  jpeg_error_mgr manager;
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

// Nothing in these two has a destructor that a jump could pass over. They return false when they failed.
bool begin_jpeg(jpeg_decompress_struct& jpeg, JpegFailure& failure, std::FILE* file, std::size_t channels) {
  if (setjmp(failure.back) != 0) return false;
  jpeg_create_decompress(&jpeg);
  jpeg_stdio_src(&jpeg, file);
  jpeg_read_header(&jpeg, TRUE);
  const bool gray = channels == 1 || (channels == 0 && jpeg.num_components == 1);
  jpeg.out_color_space = gray ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_start_decompress(&jpeg);
  return true;
}
bool read_lines(jpeg_decompress_struct& jpeg, JpegFailure& failure, std::uint8_t* out) {
  if (setjmp(failure.back) != 0) return false;
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW line =
        out + std::size_t{jpeg.output_scanline} * jpeg.output_width * static_cast<unsigned>(jpeg.output_components);
    jpeg_read_scanlines(&jpeg, &line, 1);
  }
  jpeg_finish_decompress(&jpeg);
  return true;
}

Pixels read_jpeg(const std::string& path, std::size_t channels) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (!file) throw Error(Code::not_found, fmt::format("cannot read {}", path));
  jpeg_decompress_struct jpeg{};
  JpegFailure failure{};
  jpeg.err = jpeg_std_error(&failure.manager);
  failure.manager.error_exit = [](j_common_ptr common) {
    auto* failed = reinterpret_cast<JpegFailure*>(common->err);
    common->err->format_message(common, failed->message);
    std::longjmp(failed->back, 1);
  };
  failure.manager.output_message = [](j_common_ptr) {};
  Pixels out;
  bool well = begin_jpeg(jpeg, failure, file.get(), channels);
  const std::unique_ptr<jpeg_decompress_struct, void (*)(j_decompress_ptr)> freed(&jpeg, jpeg_destroy_decompress);
  if (well) {
    out = {jpeg.output_height, jpeg.output_width, static_cast<std::size_t>(jpeg.output_components), {}};
    make_room(out, path);
    well = read_lines(jpeg, failure, out.bytes.data());
  }
  if (!well) damaged(path, failure.message);
  if (failure.manager.num_warnings > 0) damaged(path, "is damaged");
  return out;
}

bool is_png(const fs::path& path) { return lower(path.extension().string()) == ".png"; }
bool is_jpeg(const fs::path& path) {
  const auto extension = lower(path.extension().string());
  return extension == ".jpg" || extension == ".jpeg";
}

// Each pixel is the mean of those that it stands for; enlarged, the nearest.
Pixels resized(const Pixels& from, std::size_t height, std::size_t width) {
  Pixels out{height, width, from.channels, std::vector<std::uint8_t>(height * width * from.channels)};
  for (std::size_t y = 0; y < height; ++y) {
    const auto top = y * from.height / height, bottom = std::max(top + 1, (y + 1) * from.height / height);
    for (std::size_t x = 0; x < width; ++x) {
      const auto left = x * from.width / width, right = std::max(left + 1, (x + 1) * from.width / width);
      for (std::size_t c = 0; c < from.channels; ++c) {
        std::uint64_t sum = 0;
        for (auto v = top; v < bottom; ++v)
          for (auto u = left; u < right; ++u) sum += from.bytes[(v * from.width + u) * from.channels + c];
        const auto count = (bottom - top) * (right - left);
        out.bytes[(y * width + x) * from.channels + c] = static_cast<std::uint8_t>((sum + count / 2) / count);
      }
    }
  }
  return out;
}

class PictureRows {
 public:
  PictureRows(std::vector<Picture> pictures, PictureSize size)
      : pictures_(std::move(pictures)),
        given_(size.height != 0),
        parts_(!pictures_.empty() && !pictures_[0].part.empty()),
        size_(size) {}

  bool more(std::string& text) {
    if (at_ == 0) text += parts_ ? "image,label,part\n" : "image,label\n";
    if (at_ == pictures_.size()) return false;
    const auto& picture = pictures_[at_++];
    auto pixels = is_png(picture.path) ? read_png(picture.path, channels_) : read_jpeg(picture.path, channels_);
    channels_ = pixels.channels;
    if (size_.height == 0) size_ = {pixels.height, pixels.width};
    if (pixels.height != size_.height || pixels.width != size_.width) {
      if (!given_)
        throw Error(Code::invalid,
                    fmt::format("{} has {} by {} pixels and {} has {} by {}: --image-size {}x{} brings all to one size",
                                pictures_[0].path, size_.height, size_.width, picture.path, pixels.height, pixels.width,
                                size_.height, size_.width));
      pixels = resized(pixels, size_.height, size_.width);
    }
    append_escaped(text, pixels.bytes);
    text += "," + quoted(picture.label);
    if (parts_) text += "," + picture.part;
    text += '\n';
    return true;
  }

 private:
  static std::string quoted(const std::string& label) {
    std::string out = "\"";
    for (const char c : label) out += c == '"' ? "\"\"" : std::string(1, c);
    return out + "\"";
  }

  const std::vector<Picture> pictures_;
  const bool given_;  // the size, so that pictures of others are brought to it
  const bool parts_;
  PictureSize size_;
  std::size_t at_ = 0, channels_ = 0;
};

}  // namespace

std::vector<Picture> pictures_in(const std::string& directory) {
  std::vector<Picture> out;
  std::size_t in_parts = 0;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    const auto& path = entry.path();
    if (!entry.is_regular_file() || !(is_png(path) || is_jpeg(path))) continue;
    const auto below = path.lexically_relative(directory);
    const auto part = below.begin()->string();
    Picture picture{path.string(), path.parent_path().filename().string(), ""};
    if (std::distance(below.begin(), below.end()) == 3 && (part == "train" || part == "valid" || part == "test")) {
      picture.part = part;
      ++in_parts;
    }
    if (below.parent_path().empty())
      throw Error(Code::invalid, fmt::format("{} is in no directory that says what it shows", path.string()));
    out.push_back(std::move(picture));
  }
  if (in_parts != 0 && in_parts != out.size())
    throw Error(Code::invalid, fmt::format("{} of {} pictures in {} are below train, valid or test, the others are not",
                                           in_parts, out.size(), directory));
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return out;
}

PictureSize parse_picture_size(const std::string& text) {
  const auto sides = split(text, 'x');
  const auto side = [&](std::size_t i) { return i < sides.size() ? parse_int(sides[i]).value_or(0) : 0; };
  if (sides.size() != 2 || side(0) < 1 || side(1) < 1 || side(0) > 4096 || side(1) > 4096)
    throw Error(Code::invalid, fmt::format("--image-size: must be HEIGHTxWIDTH such as 32x48, not '{}'", text));
  return {static_cast<std::size_t>(side(0)), static_cast<std::size_t>(side(1))};
}

std::unique_ptr<std::istream> pictures_as_csv(std::vector<Picture> pictures, PictureSize size) {
  const auto rows = std::make_shared<PictureRows>(std::move(pictures), size);
  return made_text([rows](std::string& text) { return rows->more(text); });
}

}  // namespace falaj::cli
