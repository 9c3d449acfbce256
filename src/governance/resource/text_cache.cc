// SPDX-License-Identifier: Apache-2.0
#include "governance/resource/text_cache.h"

#include <functional>

namespace falaj::resource {

std::size_t TextCache::Hash::operator()(const Key& key) const {
  std::size_t out = 0;
  for (const auto* part : {&key.kind, &key.tenant, &key.project, &key.name})
    out = out * 31 + std::hash<std::string_view>()(*part);
  return out;
}

TextCache::Found TextCache::find(const Key& key) const {
  Lock lock(mu_);
  const auto found = texts_.find(key);
  return {found == texts_.end() ? nullptr : found->second, forgotten_};
}

void TextCache::put(const Key& key, Text text, std::uint64_t seen) {
  if (text->size() > kTextBytesMax) return;
  Lock lock(mu_);
  if (forgotten_ != seen) return;
  if (bytes_ + text->size() > kBytesMax) {
    texts_.clear();
    bytes_ = 0;
  }
  const auto size = text->size();
  if (texts_.emplace(key, std::move(text)).second) bytes_ += size;
}

void TextCache::forget(const Key& key) {
  Lock lock(mu_);
  ++forgotten_;
  const auto found = texts_.find(key);
  if (found == texts_.end()) return;
  bytes_ -= found->second->size();
  texts_.erase(found);
}

}  // namespace falaj::resource
