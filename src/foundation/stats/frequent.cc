// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/frequent.h"

#include <algorithm>

#include "foundation/stats/wire.h"

namespace falaj::stats {

Frequent::Frequent(std::uint32_t counters) : counters_(counters) {
  CHECK(counters >= 2 && counters <= kCountersMax, "the number of counters is within its limits");
}

void Frequent::add(std::string_view text, std::uint64_t times) {
  if (times == 0) return;
  total_ += times;
  counts_[std::string(text.substr(0, kTextMax))] += times;
  if (counts_.size() > counters_) shrink();
}

void Frequent::merge(const Frequent& other) {
  total_ += other.total_;
  error_ += other.error_;
  for (const auto& [text, count] : other.counts_) counts_[text] += count;
  if (counts_.size() > counters_) shrink();
}

// Takes from every counter as much as leaves at most half of them: each unit of error thus costs n/2 units of total.
void Frequent::shrink() {
  std::vector<std::uint64_t> counts;
  counts.reserve(counts_.size());
  for (const auto& entry : counts_) counts.push_back(entry.second);
  const auto middle = counts.begin() + counters_ / 2;
  std::nth_element(counts.begin(), middle, counts.end(), std::greater<>());
  const std::uint64_t taken = *middle;
  std::erase_if(counts_, [&](const auto& entry) { return entry.second <= taken; });
  for (auto& entry : counts_) entry.second -= taken;
  error_ += taken;
}

std::uint64_t Frequent::counted(std::string_view text) const {
  const auto found = counts_.find(std::string(text.substr(0, kTextMax)));
  return found == counts_.end() ? 0 : found->second;
}

std::vector<Frequent::Entry> Frequent::top(std::size_t most) const {
  std::vector<Entry> all;
  all.reserve(counts_.size());
  for (const auto& [text, count] : counts_) all.push_back({text, count});
  std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) {
    return a.counted != b.counted ? a.counted > b.counted : a.text < b.text;
  });
  if (all.size() > most) all.resize(most);
  return all;
}

void Frequent::encode(ByteWriter& out) const {
  out.u32(counters_);
  out.u64(total_);
  out.u64(error_);
  out.u32(static_cast<std::uint32_t>(counts_.size()));
  for (const auto& [text, count] : top(counts_.size())) {  // in order: the same sketch gives the same bytes
    out.text(text);
    out.u64(count);
  }
}

Frequent Frequent::decode(ByteReader& in) {
  const auto counters = in.u32();
  must_be(counters >= 2 && counters <= kCountersMax, "its counters");
  Frequent f(counters);
  f.total_ = get_count(in);
  f.error_ = get_count(in);
  const std::size_t size = in.u32();
  must_be(size <= counters && size <= in.left() / 12, "its size");
  std::uint64_t counted = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const auto text = as_text(in.blob());
    const auto count = get_count(in);
    must_be(text.size() <= kTextMax && count > 0 && (counted += count) <= f.total_, "a counter");
    must_be(f.counts_.emplace(text, count).second, "a text twice");
  }
  return f;
}

}  // namespace falaj::stats
