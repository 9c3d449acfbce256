// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/slow_lane.h"

#include <future>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "foundation/base/mutex.h"

namespace falaj::serve {
namespace {

// Its only thread is kept until it is let go.
class KeptSlowLane : public testing::Test {
 protected:
  KeptSlowLane() {
    lane_.push(1, "a", [this] {
      began_.set_value();
      go_.get_future().wait();
      clock_.advance(sys::Micros(5'000));
    });
    began_.get_future().wait();
  }
  std::promise<void> began_, go_;
  CrashNote note_{};
  sys::SimClock clock_;
  SlowLane lane_{clock_, 1, &note_};
};

TEST_F(KeptSlowLane, WhoseCallsTookLeastGoesFirst) {
  Mutex mu;
  std::string order;
  std::promise<void> last;
  const auto call = [&](char name) {
    return [&, name] {
      Lock lock(mu);
      order += name;
      if (order.size() == 4) last.set_value();
    };
  };
  for (int i = 0; i < 3; ++i) lane_.push(1, "a", call('a'));
  lane_.push(2, "b", call('b'));
  go_.set_value();
  last.get_future().wait();
  Lock lock(mu);
  EXPECT_EQ(order, "baaa") << "the first model's call under way was counted";
}

TEST_F(KeptSlowLane, HasRoomWhileAThreadIsFree) {
  EXPECT_FALSE(lane_.has_room());
  EXPECT_EQ(std::string_view(*CrashNote::of_other(&note_, 1), 1), "a") << "who crashes now is known";
  go_.set_value();
  std::promise<void> done;
  lane_.push(1, "a", [&] { done.set_value(); });
  done.get_future().wait();
  SlowLane more{clock_, 2, nullptr};
  EXPECT_TRUE(more.has_room());
}

TEST_F(KeptSlowLane, DropsWhatWaitsWhenItCloses) {
  const auto held = std::make_shared<int>(1);
  bool ran = false;
  lane_.push(2, "b", [&ran, held] { ran = true; });
  std::thread closing([this] { lane_.close(); });
  while (held.use_count() > 1) std::this_thread::yield();
  go_.set_value();
  closing.join();
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace falaj::serve
