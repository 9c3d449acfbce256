// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/together.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

namespace falaj::jobs {
namespace {

using Names = std::vector<std::string>;

class JobsTogether : public testing::Test {
 protected:
  void add(const std::string& name, Names ok, Names any = {}) {
    NewJob job;
    job.name = name;
    job.spec.after = {std::move(ok), std::move(any)};
    ids_.push_back(fmt::format("id{}", jobs_.size()));
    jobs_.push_back(std::move(job));
  }
  Names faults() {
    Faults faults;
    link_by_name(
        jobs_, ids_, [](std::size_t job, const std::string& path) { return fmt::format("{}.{}", job, path); }, faults);
    Names out;
    for (const auto& fault : faults) out.push_back(fault.where + ": " + fault.what);
    return out;
  }
  std::vector<NewJob> jobs_;
  Names ids_;
};

TEST_F(JobsTogether, NamesBecomeIdsWhateverTheOrder) {
  add("train", {"prepare", "01h00000000000000000000000", "unknown"});
  add("prepare", {});
  add("report", {"train"}, {"prepare", "train"});
  EXPECT_EQ(faults(), Names{});
  EXPECT_EQ(jobs_[0].spec.after.ok, (Names{"id1", "01h00000000000000000000000", "unknown"}));
  EXPECT_EQ(jobs_[2].spec.after.ok, Names{"id0"});
  EXPECT_EQ(jobs_[2].spec.after.any, (Names{"id1", "id0"}));
}

TEST_F(JobsTogether, ANameOfSeveralIsNone) {
  add("train", {});
  add("train", {});
  add("report", {}, {"train"});
  EXPECT_EQ(faults(), Names{"2.spec.after.any[0]: 2 of the jobs submitted together are called 'train'"});
}

TEST_F(JobsTogether, CirclesAreRefused) {
  add("last", {"a"});
  add("a", {"b"});
  add("b", {}, {"free", "a"});
  add("free", {});
  EXPECT_EQ(faults(),
            Names{"1.spec.after.ok[0]: none of them could ever begin: 'a' waits for 'b', which waits for 'a'"});
  jobs_.clear();
  ids_.clear();
  add("a", {"a"});
  EXPECT_EQ(faults(), Names{"0.spec.after.ok[0]: none of them could ever begin: 'a' waits for 'a'"});
}

TEST_F(JobsTogether, ALongChainIsNoCircle) {
  constexpr int kMany = 20'000;
  add("j0", {});
  for (int i = 1; i < kMany; ++i) add(fmt::format("j{}", i), {fmt::format("j{}", i - 1)});
  EXPECT_EQ(faults(), Names{});
  jobs_[0].spec.after.ok = {fmt::format("j{}", kMany - 1)};
  for (int i = 1; i < kMany; ++i) jobs_[static_cast<std::size_t>(i)].spec.after.ok = {fmt::format("j{}", i - 1)};
  EXPECT_EQ(faults().size(), 1u);
}

}  // namespace
}  // namespace falaj::jobs
