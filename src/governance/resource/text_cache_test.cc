// SPDX-License-Identifier: Apache-2.0
#include "governance/resource/text_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include <fmt/format.h>

namespace falaj::resource {
namespace {

const Key kKey{"Zone", "", "", "uae"};
TextCache::Text text(std::string s) { return std::make_shared<const std::string>(std::move(s)); }

TEST(TextCache, KeepsWhatWasPutUntilForgotten) {
  TextCache cache;
  const auto none = cache.find(kKey);
  EXPECT_FALSE(none.text);
  cache.put(kKey, text("a"), none.seen);
  EXPECT_EQ(*cache.find(kKey).text, "a");
  EXPECT_FALSE(cache.find({"Zone", "uae", "", ""}).text);
  cache.forget(kKey);
  EXPECT_FALSE(cache.find(kKey).text);
}

TEST(TextCache, DoesNotKeepWhatWasReadBeforeAChange) {
  TextCache cache;
  const auto before = cache.find(kKey);
  cache.forget(kKey);  // a change, between the read of the old text and its put
  cache.put(kKey, text("old"), before.seen);
  EXPECT_FALSE(cache.find(kKey).text);
}

TEST(TextCache, HoldsNoMoreThanItsBound) {
  TextCache cache;
  const std::string large(TextCache::kTextBytesMax, 'x');
  cache.put(kKey, text(large + "x"), 0);
  EXPECT_FALSE(cache.find(kKey).text) << "too long to keep";
  const std::size_t fit = TextCache::kBytesMax / large.size();
  const auto key = [](std::size_t i) { return Key{"Zone", "", "", fmt::format("z{}", i)}; };
  for (std::size_t i = 0; i < fit; ++i) cache.put(key(i), text(large), 0);
  EXPECT_TRUE(cache.find(key(0)).text);
  cache.put(key(fit), text(large), 0);
  EXPECT_FALSE(cache.find(key(0)).text);
  EXPECT_TRUE(cache.find(key(fit)).text);
}

// One thread changes a value and forgets, others read through the cache: nobody may see a value that is older than the
// last forgotten when it asked.
TEST(TextCache, NeverShowsWhatIsOlderThanTheLastChange) {
  TextCache cache;
  std::atomic<int> stored{0}, published{0};
  std::atomic<bool> ended{false};
  std::vector<std::thread> readers;
  for (int r = 0; r < 3; ++r)
    readers.emplace_back([&] {
      while (!ended) {
        const int least = published;
        auto found = cache.find(kKey);
        if (!found.text) {
          found.text = text(std::to_string(stored.load()));
          cache.put(kKey, found.text, found.seen);
        }
        EXPECT_GE(std::stoi(*found.text), least);
      }
    });
  for (int i = 1; i <= 20'000; ++i) {
    stored = i;
    cache.forget(kKey);
    published = i;
  }
  ended = true;
  for (auto& reader : readers) reader.join();
}

}  // namespace
}  // namespace falaj::resource
