// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lifecycle/schedule/state.h"

namespace falaj::schedule {

// What to do now. Pure: the same state, policy and moment give the same plan.
//
// In this order:
//   1. jobs that may displace others start, or others are told to stop for them
//   2. those whose patience ends soonest are promised a start: at once when it is over, otherwise when it will be
//   3. queues take turns, the one with the least share for its weight first, each with its jobs in their order: what
//      fits and breaks no promise starts; the first that does not fit is promised the earliest start there is
//   4. restartable jobs are tried in room that is promised but still empty
//   5. elastic jobs take what nobody waits for
Plan plan(const State& state, const Policy& policy, Micros now);

// When a job that is not yet there could start at the earliest, were it the next in line; kNever when no node has its
// shape or something without a limit is in the way.
Micros earliest_start(const State& state, const Job& job, Micros now);

}  // namespace falaj::schedule
