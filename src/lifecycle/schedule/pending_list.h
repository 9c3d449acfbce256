// SPDX-License-Identifier: Apache-2.0
#pragma once

// The waiting jobs of one queue in their order, laid out to be walked: a pass looks at all of them, most of the time to
// find that there is no room for any of their kind. So what tells that stands in the list itself, in runs of memory.
// Private to this directory.

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

#include "lifecycle/schedule/model.h"

namespace falaj::schedule {

struct Pending;

struct OrderKey {
  std::int64_t urgency = 0;  // minus the priority
  double score = 0;
  Micros submitted{0};
  JobId id;
  friend auto operator<=>(const OrderKey&, const OrderKey&) = default;
};

struct Waiting {
  OrderKey key;
  const Pending* pending = nullptr;
  Micros lasts{0};  // how long it holds its place at the longest
  int ask = 0;
  int tasks_min = 0;
  bool may_be_held = false;  // something other than room and its queue may keep it from starting
  bool may_be_tried = false;
};

class PendingList {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = Waiting;
    using difference_type = std::ptrdiff_t;
    using pointer = const Waiting*;
    using reference = const Waiting&;

    Iterator() = default;
    Iterator(const std::vector<std::vector<Waiting>>& runs, std::size_t run)
        : runs_(&runs), run_(run), at_(run < runs.size() ? runs[run].data() : nullptr) {}
    reference operator*() const { return *at_; }
    pointer operator->() const { return at_; }
    Iterator& operator++() {
      if (++at_ == (*runs_)[run_].data() + (*runs_)[run_].size()) *this = Iterator(*runs_, run_ + 1);
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.at_ == b.at_; }

   private:
    const std::vector<std::vector<Waiting>>* runs_ = nullptr;
    std::size_t run_ = 0;
    const Waiting* at_ = nullptr;
  };

  Iterator begin() const { return {runs_, 0}; }
  Iterator end() const { return {runs_, runs_.size()}; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  void insert(const Waiting& waiting) {
    ++size_;
    if (runs_.empty()) return runs_.push_back({waiting});
    std::vector<Waiting>& run = runs_[run_of(waiting.key)];
    run.insert(std::ranges::lower_bound(run, waiting.key, {}, &Waiting::key), waiting);
    if (run.size() < kRunMax) return;
    const auto half = run.begin() + kRunMax / 2;
    std::vector<Waiting> second(half, run.end());
    run.erase(half, run.end());
    runs_.insert(runs_.begin() + (&run - runs_.data()) + 1, std::move(second));
  }

  void erase(const OrderKey& key) {  // Requires: it is there
    const std::size_t at = run_of(key);
    std::vector<Waiting>& run = runs_[at];
    run.erase(std::ranges::lower_bound(run, key, {}, &Waiting::key));
    --size_;
    const std::size_t next = at + 1;
    if (next < runs_.size() && run.size() + runs_[next].size() < kRunMax / 2) {
      run.insert(run.end(), runs_[next].begin(), runs_[next].end());
      runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(next));
    }
    if (run.empty()) runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(at));
  }

 private:
  static constexpr std::ptrdiff_t kRunMax = 128;

  // The run that holds it, or would.
  std::size_t run_of(const OrderKey& key) const {
    const auto after = std::ranges::upper_bound(runs_, key, {}, [](const auto& run) { return run.front().key; });
    return static_cast<std::size_t>(std::max<std::ptrdiff_t>(after - runs_.begin(), 1) - 1);
  }

  std::vector<std::vector<Waiting>> runs_;  // none is empty
  std::size_t size_ = 0;
};

}  // namespace falaj::schedule
