// SPDX-License-Identifier: Apache-2.0
#include "cli/idx.h"

#include <zlib.h>

#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "foundation/base/error.h"
#include "foundation/base/testing.h"
#include "foundation/sys/testing.h"

namespace falaj::cli {
namespace {

class IdxTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) {
    std::ofstream(directory_ / name, std::ios::binary) << bytes;
  }
  static std::string file(std::initializer_list<int> sizes, const std::string& bytes) {
    std::string out{0, 0, 8, static_cast<char>(sizes.size())};
    for (const int size : sizes) out += std::string{0, 0, 0, static_cast<char>(size)};
    return out + bytes;
  }
  std::string text() {
    const auto in = idx_as_csv(idx_pairs(directory_.path()));
    return {std::istreambuf_iterator<char>(*in), {}};
  }

  sys::TempDir directory_;
};

TEST_F(IdxTest, TrainComesFirstAndTenThousandAreTheTest) {
  write("t10k-images-idx3-ubyte", file({1, 1, 2}, "\x01\xff"));
  write("t10k-labels-idx1-ubyte", file({1}, "\x09"));
  write("train-images-idx3-ubyte", file({2, 1, 2}, "abcd"));
  write("train-labels-idx1-ubyte", file({2}, std::string("\x00\x01", 2)));
  EXPECT_EQ(text(), "image,label,part\n\\x61\\x62,0,train\n\\x63\\x64,1,train\n\\x01\\xFF,9,test\n");
}

TEST_F(IdxTest, GzipIsReadAsWell) {
  for (const auto& [name, bytes] :
       {std::pair<std::string, std::string>{"images-idx3", file({1, 1, 1}, "a")}, {"labels-idx1", file({1}, "\x02")}}) {
    const auto path = directory_ / fmt::format("train-{}-ubyte.gz", name);
    const auto out = gzopen(path.c_str(), "wb");
    gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(out);
  }
  EXPECT_EQ(text(), "image,label,part\n\\x61,2,train\n");
}

TEST_F(IdxTest, WhatIsBrokenIsSaid) {
  EXPECT_TRUE(idx_pairs(directory_.path()).empty());
  write("train-images-idx3-ubyte", file({2, 1, 2}, "abc"));
  EXPECT_ERROR(text(), Code::not_found);
  write("train-labels-idx1-ubyte", file({2}, "ab"));
  EXPECT_ERROR(text(), Code::corrupt);
  write("train-labels-idx1-ubyte", file({1}, "a"));
  EXPECT_ERROR(text(), Code::corrupt);
  write("train-labels-idx1-ubyte", "no such thing");
  EXPECT_ERROR(text(), Code::corrupt);
}

}  // namespace
}  // namespace falaj::cli
