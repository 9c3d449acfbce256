// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/sys/files.h"

// What every Files must do, written once. A new implementation adds one INSTANTIATE_TEST_SUITE_P.
namespace falaj::sys {

struct FilesMaker {
  std::string name;
  std::function<std::shared_ptr<Files>()> make;  // of an empty tree; what it needs lives as long as it does
};

class FilesContract : public testing::TestWithParam<FilesMaker> {
 protected:
  using Durable = NewFile::Durable;
  using Existing = NewFile::Existing;

  void put(const std::string& path, std::string_view text, Durable durable = Durable::now,
           Existing existing = Existing::replace) {
    const auto file = files().create();
    file->write(as_bytes(text));
    file->commit(path, durable, existing);
  }
  std::string get(const std::string& path) { return std::string(as_text(files().read_all(path, 1 << 20))); }
  std::vector<std::string> names(const std::string& path) {
    std::vector<std::string> out;
    for (const auto& info : files().list(path)) out.push_back(info.name + (info.directory ? "/" : ""));
    return out;
  }
  Files& files() { return *files_; }

 private:
  std::shared_ptr<Files> files_ = GetParam().make();
};

using Names = std::vector<std::string>;

TEST_P(FilesContract, ReadsWhatWasCommitted) {
  put("a/b/c", "hello");
  put("empty", "");
  EXPECT_EQ(get("a/b/c"), "hello");
  EXPECT_EQ(get("empty"), "");
  put("later", "x", Durable::at_sync);
  files().sync();
  EXPECT_EQ(get("later"), "x");
}

TEST_P(FilesContract, ReadsAtAnyOffsetOfABigFile) {
  constexpr std::size_t kWords = 700'001;
  const auto file = files().create();
  std::vector<std::uint32_t> words(1000);
  for (std::uint32_t at = 0; at < kWords; at += 1000) {
    const std::size_t n = std::min<std::size_t>(1000, kWords - at);
    for (std::uint32_t i = 0; i < n; ++i) words[i] = at + i;
    file->write(std::as_bytes(std::span(words.data(), n)));
  }
  file->commit("big", Durable::at_sync, Existing::keep);
  const auto big = files().open("big");
  ASSERT_EQ(big->size(), kWords * 4);
  for (const std::uint32_t at : {0U, 1U, 1023U, 65'536U, 500'000U, 699'998U}) {
    ASSERT_EQ(big->read(at * 4, std::as_writable_bytes(std::span(words.data(), 3))), 12U);
    EXPECT_EQ(words[0], at);
    EXPECT_EQ(words[2], at + 2);
  }
  EXPECT_EQ(big->read((kWords - 1) * 4, std::as_writable_bytes(std::span(words))), 4U);
  EXPECT_EQ(big->read(kWords * 4, std::as_writable_bytes(std::span(words))), 0U);
  EXPECT_EQ(big->read(std::uint64_t{1} << 40, std::as_writable_bytes(std::span(words))), 0U);
  EXPECT_EQ(big->read(0, {}), 0U);
}

TEST_P(FilesContract, ReplacesOrKeepsAsAsked) {
  for (const auto durable : {Durable::now, Durable::at_sync}) {
    put("f", "one", durable, Existing::replace);
    const auto reader = files().open("f");
    put("f", "two", durable, Existing::keep);
    EXPECT_EQ(get("f"), "one");
    put("f", "three", durable, Existing::replace);
    EXPECT_EQ(get("f"), "three");
    Bytes old(3);
    reader->read(0, old);
    EXPECT_EQ(as_text(old), "one");  // who has it open keeps what it opened
  }
}

TEST_P(FilesContract, AFileDroppedBeforeCommitNeverWas) {
  { files().create()->write(as_bytes("lost")); }
  EXPECT_EQ(names(""), Names{});
}

TEST_P(FilesContract, ListsSortedAndOnlyOneLevel) {
  for (const auto* path : {"b", "a/y", "a/x/deep", "c", "a.b", "ab"}) put(path, "12");
  EXPECT_EQ(names(""), (Names{"a/", "a.b", "ab", "b", "c"}));
  EXPECT_EQ(names("a"), (Names{"x/", "y"}));
  EXPECT_EQ(files().list("a/x")[0].bytes, 2U);
  EXPECT_ERROR(files().list("nowhere"), Code::not_found);
  EXPECT_ERROR(files().list("b"), Code::invalid);
}

TEST_P(FilesContract, RemovesFilesAndEmptyDirectories) {
  put("d/f", "x");
  EXPECT_ERROR(files().remove("d"), Code::exists);
  files().remove("d/f");
  EXPECT_ERROR(files().open("d/f"), Code::not_found);
  EXPECT_ERROR(files().remove("d/f"), Code::not_found);
  files().remove("d");
  EXPECT_EQ(names(""), Names{});
  EXPECT_ERROR(files().remove("no/such"), Code::not_found);
  put("d", "now a file");
  EXPECT_EQ(get("d"), "now a file");
}

TEST_P(FilesContract, TellsAboutFiles) {
  put("d/f", "12345");
  const auto file = files().stat("d/f");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->name, "f");
  EXPECT_EQ(file->bytes, 5U);
  EXPECT_FALSE(file->directory);
  EXPECT_GT(file->modified_us, 900'000'000'000'000);
  EXPECT_TRUE(files().stat("d")->directory);
  EXPECT_FALSE(files().stat("d/g"));
  EXPECT_FALSE(files().stat("no/such"));
  EXPECT_FALSE(files().stat("d/f/g"));
}

TEST_P(FilesContract, MakesDirectoriesOnce) {
  files().make_directories("a/b/c");
  files().make_directories("a/b/c");
  EXPECT_EQ(names("a/b"), Names{"c/"});
  put("f", "x");
  EXPECT_ERROR(files().make_directories("f/g"), Code::invalid);
  EXPECT_ERROR(put("f/g", "x"), Code::invalid);
  EXPECT_ERROR(put("a/b", "x", Durable::now, Existing::replace), Code::exists);
  EXPECT_ERROR(put("a/b", "x", Durable::now, Existing::keep), Code::exists);
  EXPECT_ERROR(files().open("a/b"), Code::invalid);
}

TEST_P(FilesContract, RefusesPathsThatAreNotPlain) {
  const std::string longest(255, 'x'), too_long(256, 'x'), very_long(300, 'x');
  const std::string with_nul("a\0b", 3);
  put(longest, "x");
  EXPECT_EQ(get(longest), "x");
  std::string deep = "x";
  while (deep.size() <= 4000) deep += "/x";
  const std::string bad[] = {"",    "/",     "/etc/passwd", "..", "../x",   "a/../b", "a/..",    ".",
                             "./a", "a/./b", "a//b",        "a/", with_nul, too_long, very_long, "a/" + too_long,
                             deep,  ".new",  ".new/x"};
  for (const auto& path : bad) {
    SCOPED_TRACE(path);
    EXPECT_ERROR(files().open(path), Code::invalid);
    EXPECT_ERROR(files().remove(path), Code::invalid);
    EXPECT_ERROR(files().stat(path), Code::invalid);
    EXPECT_ERROR(files().make_directories(path), Code::invalid);
    EXPECT_ERROR(put(path, "x"), Code::invalid);
    if (!path.empty()) {
      EXPECT_ERROR(files().list(path), Code::invalid);
    }
  }
  EXPECT_EQ(names(""), Names{longest});
}

TEST_P(FilesContract, BoundsReadAll) {
  put("f", "12345");
  EXPECT_EQ(files().read_all("f", 5).size(), 5U);
  EXPECT_ERROR(files().read_all("f", 4), Code::exhausted);
}

TEST_P(FilesContract, ScratchFilesAreReadAndWrittenAnywhereAndHaveNoName) {
  const auto file = files().scratch();
  const auto read = [&](std::uint64_t offset, std::size_t size) {
    std::string out(size, '?');
    out.resize(file->read(offset, std::as_writable_bytes(std::span(out))));
    return out;
  };
  EXPECT_EQ(read(0, 4), "");
  file->write(4, as_bytes("tail"));
  file->write(0, as_bytes("head"));
  file->write(3, as_bytes("--"));
  EXPECT_EQ(read(0, 100), "hea--ail");
  EXPECT_EQ(read(5, 2), "ai");
  EXPECT_EQ(read(8, 1), "");
  EXPECT_EQ(names(""), Names{});
}

TEST_P(FilesContract, OneOfManyCommitsOfAPathWins) {
  for (const auto existing : {Existing::keep, Existing::replace}) {
    const std::string path = existing == Existing::keep ? "new/deep/kept" : "new/deep/replaced";
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 20; ++i)
          put(path, std::string(100, static_cast<char>('a' + t)), Durable::at_sync, existing);
      });
    for (auto& thread : threads) thread.join();
    const std::string text = get(path);
    EXPECT_EQ(text, std::string(100, text.at(0)));
    if (existing == Existing::keep) {
      put(path, "late", Durable::now, existing);
      EXPECT_EQ(get(path), text);
    }
  }
}

}  // namespace falaj::sys
