// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/backend_contract.h"

#include <thread>

#include "foundation/base/testing.h"

namespace falaj::blob {

TEST_P(BackendContract, GivesBackWhatWasPut) {
  for (const std::size_t size : {0, 1, 1000, 300'000}) {
    const Bytes bytes = random_bytes(size, size);
    backend().put("s/c/abcd", bytes, Durable::now, Existing::replace);
    EXPECT_EQ(backend().get("s/c/abcd"), bytes);
    ASSERT_TRUE(backend().stat("s/c/abcd"));
    EXPECT_EQ(backend().stat("s/c/abcd")->bytes, size);
  }
  backend().put("s/c/later", as_bytes("x"), Durable::at_sync, Existing::keep);
  backend().sync();
  EXPECT_EQ(text("s/c/later"), "x");
}

TEST_P(BackendContract, GivesRanges) {
  put("s/c/abcd", "0123456789");
  EXPECT_EQ(text("s/c/abcd", 0, 3), "012");
  EXPECT_EQ(text("s/c/abcd", 3, 4), "3456");
  EXPECT_EQ(text("s/c/abcd", 8, 100), "89");
  EXPECT_EQ(text("s/c/abcd", 10, 5), "");
  EXPECT_EQ(text("s/c/abcd", 99), "");
  EXPECT_EQ(text("s/c/abcd", 2, 0), "");
}

TEST_P(BackendContract, SaysWhatIsNotThere) {
  EXPECT_ERROR(backend().get("s/c/nothing"), Code::not_found);
  EXPECT_FALSE(backend().stat("s/c/nothing"));
  EXPECT_NO_THROW(backend().remove("s/c/nothing"));
  EXPECT_TRUE(names("").empty());
  EXPECT_TRUE(names("s/").empty());
  EXPECT_TRUE(names("s/c/").empty());
}

TEST_P(BackendContract, ReplacesOnlyWhenTold) {
  put("s/c/abcd", "first");
  put("s/c/abcd", "second", Existing::keep);
  EXPECT_EQ(text("s/c/abcd"), "first");
  put("s/c/abcd", "third", Existing::replace);
  EXPECT_EQ(text("s/c/abcd"), "third");
}

TEST_P(BackendContract, Removes) {
  put("s/c/abcd", "x");
  put("s/c/abce", "y");
  backend().remove("s/c/abcd");
  EXPECT_FALSE(backend().stat("s/c/abcd"));
  EXPECT_ERROR(backend().get("s/c/abcd"), Code::not_found);
  EXPECT_EQ(names("s/c/"), (std::vector<std::string>{"s/c/abce"}));
}

TEST_P(BackendContract, ListsInOrderBelowAPrefixAfterANameUpToALimit) {
  const std::vector<std::string> all = {"s/c/00ff", "s/c/abcd", "s/c/abce", "s/c/b000",
                                        "s/o/1234", "t/c/abcd", "ta/c/abcd"};
  for (auto it = all.rbegin(); it != all.rend(); ++it) put(*it, "x");
  EXPECT_EQ(names(""), all);
  EXPECT_EQ(names("s/c/"), (std::vector<std::string>{"s/c/00ff", "s/c/abcd", "s/c/abce", "s/c/b000"}));
  EXPECT_EQ(names("s/"), std::vector<std::string>(all.begin(), all.begin() + 5));
  EXPECT_EQ(names("t/"), (std::vector<std::string>{"t/c/abcd"}));
  EXPECT_EQ(names("s/c/", "s/c/abcd"), (std::vector<std::string>{"s/c/abce", "s/c/b000"}));
  EXPECT_EQ(names("s/c/", "s/c/abcc"), (std::vector<std::string>{"s/c/abcd", "s/c/abce", "s/c/b000"}));
  EXPECT_EQ(names("s/c/", "", 2), (std::vector<std::string>{"s/c/00ff", "s/c/abcd"}));
  EXPECT_TRUE(names("s/c/", "s/c/b000").empty());
  std::vector<std::string> paged;
  for (std::string after;;) {
    const auto page = names("", after, 3);
    if (page.empty()) break;
    paged.insert(paged.end(), page.begin(), page.end());
    after = page.back();
  }
  EXPECT_EQ(paged, all);
}

TEST_P(BackendContract, KnowsWhenSomethingWasPut) {
  put("s/c/abcd", "x");
  const auto info = backend().stat("s/c/abcd");
  ASSERT_TRUE(info);
  EXPECT_GT(info->modified_us, 0);
  const auto listed = backend().list("s/c/", "", 10);
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0].bytes, 1U);
  EXPECT_NEAR(static_cast<double>(listed[0].modified_us), static_cast<double>(info->modified_us), 2e6);
}

TEST_P(BackendContract, RefusesBadNames) {
  for (const std::string name : {"", "abcd", "s/abcd", "s/c/abc", "s/c/d/abcd", "../c/abcd", "s/../abcd", "s/c/..",
                                 "/s/c/abcd", "s/c/ABCD", "s/c/ab cd", "s//abcd", "s/c/ab%2f", "s/c/abcd/"}) {
    SCOPED_TRACE(name);
    EXPECT_ERROR(backend().get(name), Code::invalid);
    EXPECT_ERROR(backend().stat(name), Code::invalid);
    EXPECT_ERROR(backend().remove(name), Code::invalid);
    EXPECT_ERROR(backend().put(name, {}, Durable::now, Existing::keep), Code::invalid);
  }
  for (const std::string prefix : {"s", "s/c", "/", "../", "s/c/ab", "s/c/d/"}) {
    SCOPED_TRACE(prefix);
    EXPECT_ERROR(backend().list(prefix, "", 10), Code::invalid);
  }
}

TEST_P(BackendContract, TakesManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        const std::string own = "s/c/own" + std::to_string(t) + std::to_string(i);
        put(own, own);
        put("s/c/shared", "the same");
        EXPECT_EQ(text(own), own);
        EXPECT_EQ(text("s/c/shared"), "the same");
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(names("s/c/").size(), 21U);
}

}  // namespace falaj::blob
