// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compute/graph/tensor.h"
#include "compute/infer/batch.h"
#include "compute/infer/view.h"
#include "foundation/base/mutex.h"

namespace falaj::serve {

// Answers of one version of a model, given again to equal requests: all of what was asked is compared. Those that were
// not asked for longest go first. Thread-safe.
class AnswerCache {
 public:
  explicit AnswerCache(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  static std::string key_of(const infer::Request& request);
  using Answer = std::vector<graph::Tensor>;
  std::shared_ptr<const Answer> find(const std::string& key);  // null: it is not there
  void keep(std::string key, std::span<const infer::TensorView> outputs);
  std::size_t bytes_max() const { return bytes_max_; }

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Answer> answer;
    std::size_t bytes = 0;
  };
  const std::size_t bytes_max_;

  Mutex mu_;  // guards everything below
  std::size_t bytes_ GUARDED_BY(mu_) = 0;
  std::list<Entry> entries_ GUARDED_BY(mu_);  // the one asked for last is first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_ GUARDED_BY(mu_);
};

}  // namespace falaj::serve
