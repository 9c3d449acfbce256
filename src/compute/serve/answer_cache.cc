// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/answer_cache.h"

#include <utility>

#include "foundation/base/bytes.h"

namespace falaj::serve {
namespace {

constexpr std::size_t kEntryBytes = 256;  // about what an entry takes besides what it holds

void append_whole(std::string& to, std::uint64_t value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

// Every part with its length before it: different requests are never spelled alike.
std::string AnswerCache::key_of(const infer::Request& request) {
  std::string out;
  append_whole(out, request.wanted.size());
  for (const auto wanted : request.wanted) append_whole(out, wanted);
  for (const auto& input : request.inputs) {
    append_whole(out, input.shape.rank());
    for (const auto size : input.shape.sizes()) append_whole(out, static_cast<std::uint64_t>(size));
    append_whole(out, input.bytes.size());
    out += as_text(input.bytes);
    append_whole(out, input.texts.size());
    for (const auto text : input.texts) {
      append_whole(out, text.size());
      out += text;
    }
  }
  return out;
}

std::shared_ptr<const AnswerCache::Answer> AnswerCache::find(const std::string& key) {
  Lock lock(mu_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->answer;
}

void AnswerCache::keep(std::string key, std::span<const infer::TensorView> outputs) {
  auto answer = std::make_shared<Answer>();
  std::size_t bytes = kEntryBytes + key.size();
  for (const auto& output : outputs) {
    answer->push_back(infer::copy_of(output));
    bytes += kEntryBytes + output.bytes.size();
    for (const auto text : output.texts) bytes += sizeof(std::string) + text.size();
  }
  if (bytes > bytes_max_ / 4) return;  // one answer does not take the room of all others
  std::list<Entry> gone;               // freed outside of the lock
  Lock lock(mu_);
  if (by_key_.contains(key)) return;  // two were asked at once
  entries_.push_front({std::move(key), std::move(answer), bytes});
  by_key_.emplace(entries_.front().key, entries_.begin());
  bytes_ += bytes;
  while (bytes_ > bytes_max_) {
    bytes_ -= entries_.back().bytes;
    by_key_.erase(entries_.back().key);
    gone.splice(gone.begin(), entries_, std::prev(entries_.end()));
  }
}

}  // namespace falaj::serve
