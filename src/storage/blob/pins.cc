// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/pins.h"

#include "foundation/base/error.h"

namespace falaj::blob {

void Pins::Put::add(const Digest& address) {
  pins_.pin(address);
  Lock lock(mu_);
  addresses_.push_back(address);
}

void Pins::pin(const Digest& address) {
  Lock lock(mu_);
  while (being_removed_.contains(address)) lock.wait(removed_);
  ++pinned_[address];
}

void Pins::release(const std::vector<Digest>& addresses) {
  Lock lock(mu_);
  for (const auto& address : addresses) {
    const auto it = pinned_.find(address);
    if (--it->second == 0) pinned_.erase(it);
    if (collecting_) ended_during_collection_.insert(address);
  }
}

Pins::Collection::Collection(Pins& pins) : pins_(pins) {
  Lock lock(pins_.mu_);
  CHECK(!pins_.collecting_, "one collection at a time");
  pins_.collecting_ = true;
}

Pins::Collection::~Collection() {
  Lock lock(pins_.mu_);
  pins_.collecting_ = false;
  pins_.ended_during_collection_.clear();
}

bool Pins::Collection::unless_pinned(const Digest& address, const std::function<void()>& remove) {
  {
    Lock lock(pins_.mu_);
    if (pins_.pinned_.contains(address) || pins_.ended_during_collection_.contains(address)) return false;
    pins_.being_removed_.insert(address);
  }
  const auto done = [&] {
    Lock lock(pins_.mu_);
    pins_.being_removed_.erase(address);
    pins_.removed_.notify_all();
  };
  try {
    remove();
  } catch (...) {
    done();
    throw;
  }
  done();
  return true;
}

}  // namespace falaj::blob
