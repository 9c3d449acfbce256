// SPDX-License-Identifier: Apache-2.0
#include "cli/pictures.h"

#include <jpeglib.h>
#include <png.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/error.h"
#include "foundation/base/testing.h"
#include "foundation/sys/testing.h"

namespace falaj::cli {
namespace {

using ::testing::HasSubstr;

class PicturesTest : public ::testing::Test {
 protected:
  std::string place(const std::string& name) {
    std::filesystem::create_directories(std::filesystem::path(directory_ / name).parent_path());
    return directory_ / name;
  }
  void png(const std::string& name, unsigned height, unsigned width, std::vector<std::uint8_t> pixels, bool grey) {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.height = height;
    image.width = width;
    image.format = grey ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    ASSERT_NE(png_image_write_to_file(&image, place(name).c_str(), 0, pixels.data(), 0, nullptr), 0);
  }
  // All pixels alike: what is lost on the way is little.
  void jpeg(const std::string& name, unsigned height, unsigned width, std::uint8_t value) {
    std::FILE* file = std::fopen(place(name).c_str(), "wb");
    jpeg_compress_struct jpeg{};
    jpeg_error_mgr errors{};
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_height = height;
    jpeg.image_width = width;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    std::vector<std::uint8_t> line(width * 3, value);
    JSAMPROW row = line.data();
    for (unsigned y = 0; y < height; ++y) jpeg_write_scanlines(&jpeg, &row, 1);
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    std::fclose(file);
  }
  std::string text(PictureSize size = {}) {
    const auto in = pictures_as_csv(pictures_in(directory_.path()), size);
    return {std::istreambuf_iterator<char>(*in), {}};
  }

  sys::TempDir directory_;
};

TEST_F(PicturesTest, DirectoriesSayWhatPicturesShow) {
  png("cat/a.png", 1, 2, {1, 255}, true);
  png("big \"dog\"/b.PNG", 1, 2, {16, 17}, true);
  EXPECT_EQ(text(), "image,label\n\\x10\\x11,\"big \"\"dog\"\"\"\n\\x01\\xFF,\"cat\"\n");
}

TEST_F(PicturesTest, PartsAreDirectoriesAbove) {
  png("test/cat/b.png", 1, 1, {1, 2, 3}, false);
  png("train/cat/a.png", 1, 1, {7}, true);  // grey as the colour that it is
  jpeg("test/dog/c.jpg", 1, 1, 200);
  EXPECT_EQ(text(),
            "image,label,part\n\\x01\\x02\\x03,\"cat\",test\n\\xC8\\xC8\\xC8,\"dog\",test\n"
            "\\x07\\x07\\x07,\"cat\",train\n");
}

TEST_F(PicturesTest, AllHaveOneSizeOrAreBroughtToOne) {
  png("a/1.png", 2, 2, {10, 20, 30, 40}, true);
  png("a/2.png", 1, 1, {5}, true);
  try {
    text();
    FAIL() << "pictures of two sizes were taken";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("--image-size 2x2"));
  }
  EXPECT_EQ(text({1, 1}), "image,label\n\\x19,\"a\"\n\\x05,\"a\"\n");
  EXPECT_EQ(text({1, 2}), "image,label\n\\x14\\x1E,\"a\"\n\\x05\\x05,\"a\"\n");
  EXPECT_EQ(parse_picture_size("32x48").width, 48U);
  for (const auto* bad : {"", "32", "x", "0x3", "3x-1", "3x3x3", "99999x1"})
    EXPECT_ERROR(parse_picture_size(bad), Code::invalid);
}

TEST_F(PicturesTest, WhatIsWrongIsSaid) {
  EXPECT_TRUE(pictures_in(directory_.path()).empty());
  jpeg("a/1.jpg", 64, 64, 9);
  std::string bytes;
  {
    std::ifstream in(directory_ / "a/1.jpg", std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  for (const std::size_t cut : {std::size_t{0}, std::size_t{3}, bytes.size() / 2, bytes.size() - 10}) {
    std::ofstream(directory_ / "a/1.jpg", std::ios::binary) << bytes.substr(0, cut);
    EXPECT_ERROR(text(), Code::corrupt);
  }
  std::filesystem::remove(directory_ / "a/1.jpg");
  std::ofstream(directory_ / "a/1.png") << "no such thing";
  EXPECT_ERROR(text(), Code::corrupt);
  png("train/a/2.png", 1, 1, {1}, true);
  EXPECT_ERROR(text(), Code::invalid);  // some in parts, some not
  png("3.png", 1, 1, {1}, true);
  EXPECT_ERROR(text(), Code::invalid);
}

}  // namespace
}  // namespace falaj::cli
