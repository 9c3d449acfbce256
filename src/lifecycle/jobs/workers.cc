// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/workers.h"

namespace falaj::jobs {

Workers::Workers(std::size_t threads) {
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { loop(); });
}

Workers::~Workers() { stop(); }

void Workers::give(std::function<void()> work) {
  Lock lock(mu_);
  if (stopping_) return;
  work_.push_back(std::move(work));
  changed_.notify_one();
}

void Workers::stop() {
  {
    Lock lock(mu_);
    stopping_ = true;
    work_.clear();
    changed_.notify_all();
  }
  for (auto& thread : threads_)
    if (thread.joinable()) thread.join();
}

void Workers::loop() {
  for (;;) {
    std::function<void()> work;
    {
      Lock lock(mu_);
      while (work_.empty() && !stopping_) lock.wait(changed_);
      if (stopping_) return;
      work = std::move(work_.front());
      work_.pop_front();
    }
    work();
  }
}

}  // namespace falaj::jobs
