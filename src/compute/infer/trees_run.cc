// SPDX-License-Identifier: Apache-2.0
// Rows through trees. Few rows: many trees of one row take a step at once. Many rows: many rows take a step of one
// tree, and the rows of a block lie slot by slot, so that the first three steps, which few places can be taken from,
// need no gathering. What leaves add is added tree by tree in both.
#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "compute/infer/trees.h"
#include "foundation/base/error.h"
#include "foundation/sys/clock.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define FALAJ_TREES_X86 1
#endif

namespace falaj::infer {
namespace {

constexpr std::size_t kBlock = 64;   // rows; a slot's numbers are that far from the next slot's
constexpr std::size_t kFewRows = 8;  // below, a row at a time is faster
constexpr std::uint32_t kChild = 0xffff;
constexpr std::uint32_t kMayEndEarly = 8;  // deeper trees are uneven: see whether all have arrived

using Step = Trees::Step;

// Where each of the trees of a row ends, counted from all steps.
using WalkTrees = void (*)(const Step* steps, const std::uint32_t* firsts, std::uint32_t depth,
                           const std::int32_t* keys, std::uint32_t* ends);
// Where each row of a block ends in one tree, counted from its first step.
using WalkRows = void (*)(const Step* steps, std::uint32_t depth, const std::int32_t* keys, std::size_t rows,
                          std::uint32_t* ends);

constexpr std::size_t kGroup = 64;  // trees of one call of WalkTrees

void walk_trees_plain(const Step* steps, const std::uint32_t* firsts, std::uint32_t depth, const std::int32_t* keys,
                      std::uint32_t* ends) {
  constexpr std::size_t kLanes = 8;
  for (std::size_t tree = 0; tree < kGroup; tree += kLanes) {
    std::uint32_t at[kLanes];
    for (std::size_t k = 0; k < kLanes; ++k) at[k] = firsts[tree + k] + 1;
    for (std::uint32_t level = 0; level < depth; ++level) {
      for (std::size_t k = 0; k < kLanes; ++k) {
        const Step step = steps[at[k]];
        at[k] = firsts[tree + k] + (step.where & kChild) + (keys[step.where >> 16] >= step.threshold ? 1 : 0);
      }
    }
    for (std::size_t k = 0; k < kLanes; ++k) ends[tree + k] = at[k];
  }
}

void walk_rows_plain(const Step* steps, std::uint32_t depth, const std::int32_t* keys, std::size_t rows,
                     std::uint32_t* ends) {
  constexpr std::size_t kLanes = 8;
  for (std::size_t row = 0; row < rows; row += kLanes) {
    std::uint32_t at[kLanes];
    for (std::size_t k = 0; k < kLanes; ++k) at[k] = 1;
    for (std::uint32_t level = 0; level < depth; ++level) {
      for (std::size_t k = 0; k < kLanes; ++k) {
        const Step step = steps[at[k]];
        at[k] = (step.where & kChild) + (keys[(step.where >> 16) * kBlock + row + k] >= step.threshold ? 1 : 0);
      }
    }
    for (std::size_t k = 0; k < kLanes; ++k) ends[row + k] = at[k];
  }
}

#if FALAJ_TREES_X86
#define FALAJ_AVX2 __attribute__((target("avx2")))
#define FALAJ_AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw")))

FALAJ_AVX2 void walk_trees_avx2(const Step* steps, const std::uint32_t* firsts, std::uint32_t depth,
                                const std::int32_t* keys, std::uint32_t* ends) {
  constexpr std::size_t kLanes = 8, kAtOnce = 4;
  const auto* words = reinterpret_cast<const int*>(steps);
  const __m256i one = _mm256_set1_epi32(1), child = _mm256_set1_epi32(kChild);
  for (std::size_t tree = 0; tree < kGroup; tree += kLanes * kAtOnce) {
    __m256i first[kAtOnce], at[kAtOnce];
    for (std::size_t k = 0; k < kAtOnce; ++k) {
      first[k] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(firsts + tree + k * kLanes));
      first[k] = _mm256_add_epi32(first[k], one);  // "right" is taken unless "left" is subtracted
      at[k] = first[k];
    }
    for (std::uint32_t level = 0; level < depth; ++level) {
      for (std::size_t k = 0; k < kAtOnce; ++k) {
        const __m256i threshold = _mm256_i32gather_epi32(words, at[k], 8);
        const __m256i where = _mm256_i32gather_epi32(words + 1, at[k], 8);
        const __m256i key = _mm256_i32gather_epi32(keys, _mm256_srli_epi32(where, 16), 4);
        const __m256i right = _mm256_add_epi32(first[k], _mm256_and_si256(where, child));
        at[k] = _mm256_add_epi32(right, _mm256_cmpgt_epi32(threshold, key));
      }
    }
    for (std::size_t k = 0; k < kAtOnce; ++k)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(ends + tree + k * kLanes), at[k]);
  }
}

FALAJ_AVX2 void walk_rows_avx2(const Step* steps, std::uint32_t depth, const std::int32_t* keys, std::size_t rows,
                               std::uint32_t* ends) {
  constexpr std::size_t kLanes = 8, kAtOnce = 4;
  const auto* words = reinterpret_cast<const int*>(steps);
  const __m256i one = _mm256_set1_epi32(1), child = _mm256_set1_epi32(kChild);
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (std::size_t row = 0; row < rows; row += kLanes * kAtOnce) {
    __m256i at[kAtOnce], mine[kAtOnce];
    for (std::size_t k = 0; k < kAtOnce; ++k) {
      at[k] = one;
      mine[k] = _mm256_add_epi32(lane, _mm256_set1_epi32(static_cast<int>(row + k * kLanes)));
    }
    for (std::uint32_t level = 0; level < depth; ++level) {
      for (std::size_t k = 0; k < kAtOnce; ++k) {
        const __m256i threshold = _mm256_i32gather_epi32(words, at[k], 8);
        const __m256i where = _mm256_i32gather_epi32(words + 1, at[k], 8);
        const __m256i slot = _mm256_slli_epi32(_mm256_srli_epi32(where, 16), std::countr_zero(kBlock));
        const __m256i key = _mm256_i32gather_epi32(keys, _mm256_add_epi32(slot, mine[k]), 4);
        const __m256i right = _mm256_add_epi32(one, _mm256_and_si256(where, child));
        at[k] = _mm256_add_epi32(right, _mm256_cmpgt_epi32(threshold, key));
      }
    }
    for (std::size_t k = 0; k < kAtOnce; ++k)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(ends + row + k * kLanes), at[k]);
  }
}

// The two halves of sixteen steps: a gather of eight of them brings both.
struct Sixteen {
  __m512i threshold, where;
};
FALAJ_AVX512 inline Sixteen gather_steps(const Step* steps, __m512i at) {
  const __m512i low = _mm512_i32gather_epi64(_mm512_castsi512_si256(at), steps, 8);
  const __m512i high = _mm512_i32gather_epi64(_mm512_extracti64x4_epi64(at, 1), steps, 8);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return {_mm512_permutex2var_epi32(low, even, high), _mm512_permutex2var_epi32(low, odd, high)};
}

FALAJ_AVX512 void walk_trees_avx512(const Step* steps, const std::uint32_t* firsts, std::uint32_t depth,
                                    const std::int32_t* keys, std::uint32_t* ends) {
  constexpr std::size_t kLanes = 16, kAtOnce = kGroup / kLanes;
  const __m512i one = _mm512_set1_epi32(1), child = _mm512_set1_epi32(kChild);
  __m512i first[kAtOnce], at[kAtOnce];
  for (std::size_t k = 0; k < kAtOnce; ++k) {
    first[k] = _mm512_loadu_si512(firsts + k * kLanes);
    at[k] = _mm512_add_epi32(first[k], one);
  }
  for (std::uint32_t level = 0; level < depth; ++level) {
    for (std::size_t k = 0; k < kAtOnce; ++k) {
      const Sixteen step = gather_steps(steps, at[k]);
      const __m512i key = _mm512_i32gather_epi32(_mm512_srli_epi32(step.where, 16), keys, 4);
      const __m512i left = _mm512_add_epi32(first[k], _mm512_and_si512(step.where, child));
      at[k] = _mm512_mask_add_epi32(left, _mm512_cmpge_epi32_mask(key, step.threshold), left, one);
    }
  }
  for (std::size_t k = 0; k < kAtOnce; ++k) _mm512_storeu_si512(ends + k * kLanes, at[k]);
}

FALAJ_AVX512 inline __m512i all_of(std::uint32_t value) { return _mm512_set1_epi32(static_cast<int>(value)); }
FALAJ_AVX512 inline __m512i all_of(std::int32_t value) { return _mm512_set1_epi32(value); }

// Of four, the one that two answers lead to.
FALAJ_AVX512 inline __m512i one_of(__mmask16 first, __mmask16 second, __m512i a, __m512i b, __m512i c, __m512i d) {
  return _mm512_mask_blend_epi32(first, _mm512_mask_blend_epi32(second, a, b), _mm512_mask_blend_epi32(second, c, d));
}

template <std::size_t kAtOnce>
FALAJ_AVX512 inline void walk_some_rows(const Step* steps, std::uint32_t depth, const std::int32_t* keys,
                                        std::uint32_t* ends) {
  constexpr std::size_t kLanes = 16;
  const __m512i one = _mm512_set1_epi32(1), child = _mm512_set1_epi32(kChild);
  // The root, its two children and their four: a leaf among them stands for itself below.
  Step top[7];
  const std::int32_t* key[7];
  std::uint32_t place[7] = {1};
  for (std::size_t k = 0; k < 7; ++k) {
    top[k] = steps[place[k]];
    key[k] = keys + (top[k].where >> 16) * kBlock;
    top[k].where &= kChild;
    if (k < 3) place[2 * k + 1] = top[k].where, place[2 * k + 2] = top[k].where + 1;
  }
  __m512i at[kAtOnce], mine[kAtOnce];
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (std::size_t v = 0; v < kAtOnce; ++v) {
    const std::size_t row = v * kLanes;
    mine[v] = _mm512_add_epi32(lane, all_of(static_cast<std::uint32_t>(row)));
    const __mmask16 first = _mm512_cmpge_epi32_mask(_mm512_loadu_si512(key[0] + row), all_of(top[0].threshold));
    const __mmask16 second = _mm512_cmpge_epi32_mask(
        _mm512_mask_blend_epi32(first, _mm512_loadu_si512(key[1] + row), _mm512_loadu_si512(key[2] + row)),
        _mm512_mask_blend_epi32(first, all_of(top[1].threshold), all_of(top[2].threshold)));
    const __mmask16 third = _mm512_cmpge_epi32_mask(
        one_of(first, second, _mm512_loadu_si512(key[3] + row), _mm512_loadu_si512(key[4] + row),
               _mm512_loadu_si512(key[5] + row), _mm512_loadu_si512(key[6] + row)),
        one_of(first, second, all_of(top[3].threshold), all_of(top[4].threshold), all_of(top[5].threshold),
               all_of(top[6].threshold)));
    const __m512i left =
        one_of(first, second, all_of(top[3].where), all_of(top[4].where), all_of(top[5].where), all_of(top[6].where));
    at[v] = _mm512_mask_add_epi32(left, third, left, one);
  }
  for (std::uint32_t level = 3; level < depth; ++level) {
    bool moved = level < kMayEndEarly;
    for (std::size_t v = 0; v < kAtOnce; ++v) {
      const Sixteen step = gather_steps(steps, at[v]);
      const __m512i slot = _mm512_slli_epi32(_mm512_srli_epi32(step.where, 16), std::countr_zero(kBlock));
      const __m512i key = _mm512_i32gather_epi32(_mm512_add_epi32(slot, mine[v]), keys, 4);
      const __m512i left = _mm512_and_si512(step.where, child);
      const __m512i next = _mm512_mask_add_epi32(left, _mm512_cmpge_epi32_mask(key, step.threshold), left, one);
      moved = moved || _mm512_cmpneq_epi32_mask(next, at[v]) != 0;
      at[v] = next;
    }
    if (!moved) break;
  }
  for (std::size_t v = 0; v < kAtOnce; ++v) _mm512_storeu_si512(ends + v * kLanes, at[v]);
}

FALAJ_AVX512 void walk_rows_avx512(const Step* steps, std::uint32_t depth, const std::int32_t* keys, std::size_t rows,
                                   std::uint32_t* ends) {
  if (rows <= 16) return walk_some_rows<1>(steps, depth, keys, ends);
  if (rows <= 32) return walk_some_rows<2>(steps, depth, keys, ends);
  walk_some_rows<4>(steps, depth, keys, ends);
}
#endif

}  // namespace

namespace {

struct Walks {
  WalkTrees trees = walk_trees_plain;
  WalkRows rows = walk_rows_plain;
};

Walks walks_of(Trees::Lanes lanes) {
#if FALAJ_TREES_X86
  if (lanes == Trees::Lanes::avx2) return {walk_trees_avx2, walk_rows_avx2};
  if (lanes == Trees::Lanes::avx512) return {walk_trees_avx512, walk_rows_avx512};
#endif
  (void)lanes;
  return {};
}

// Processors that have wide lanes may still gather slowly, so it is tried, for about a millisecond: full trees of depth
// 6, in which node k lies at k + 1.
Walks find_fastest() {
  constexpr std::size_t kInner = 63, kSteps = 2 * kInner + 2, kSlots = 16;
  constexpr std::uint32_t kDepth = 6;
  std::vector<Step> steps(kGroup * kSteps);
  std::vector<std::uint32_t> firsts(kGroup), ends(kGroup);
  std::vector<std::int32_t> keys(kSlots * kBlock);
  std::uint32_t state = 1;
  const auto random = [&] { return state = state * 1664525 + 1013904223; };
  for (auto& key : keys) key = static_cast<std::int32_t>(random());
  for (std::size_t tree = 0; tree < kGroup; ++tree) {
    firsts[tree] = static_cast<std::uint32_t>(tree * kSteps);
    for (std::uint32_t k = 0; k + 1 < kSteps; ++k)
      steps[tree * kSteps + k + 1] =
          k < kInner ? Step{static_cast<std::int32_t>(random()), (random() >> 28) << 16 | (2 * k + 2)}
                     : Step{std::numeric_limits<std::int32_t>::min(), k};
  }
  const sys::RealClock clock;
  const auto best_of = [&](const auto& walk) {
    auto best = sys::Micros::max();
    for (int round = 0; round < 4; ++round) {
      const auto begin = clock.now();
      for (std::size_t k = 0; k < kGroup; ++k) walk(k);
      best = std::min(best, clock.now() - begin);
    }
    return best;
  };
  Walks out;
  auto trees_took = sys::Micros::max(), rows_took = sys::Micros::max();
  for (const auto lanes : {Trees::Lanes::avx512, Trees::Lanes::avx2, Trees::Lanes::plain}) {
    if (lanes > Trees::lanes()) continue;
    const Walks tried = walks_of(lanes);
    const auto by_trees =
        best_of([&](std::size_t k) { tried.trees(steps.data(), firsts.data(), kDepth, keys.data() + k, ends.data()); });
    const auto by_rows =
        best_of([&](std::size_t k) { tried.rows(&steps[firsts[k]], kDepth, keys.data(), kBlock, ends.data()); });
    if (by_trees < trees_took) trees_took = by_trees, out.trees = tried.trees;
    if (by_rows < rows_took) rows_took = by_rows, out.rows = tried.rows;
  }
  return out;
}

}  // namespace

class TreesRun {
 public:
  TreesRun(const Trees& trees, const Walks& walks) : trees_(trees), walks_(walks) {}

  void run(const float* rows, std::size_t count, std::size_t stride, float* sums) {
    auto& keys = scratch().keys;
    if (trees_.slots_.empty()) keys.assign(kBlock, 0);  // nothing but leaves
    for (std::size_t first = 0; first < count; first += kBlock) {
      const std::size_t some = std::min(kBlock, count - first);
      if (some < kFewRows)
        for (std::size_t row = first; row < first + some; ++row)
          one_row(rows + row * stride, sums + row * trees_.outputs_);
      else
        block(rows + first * stride, some, stride, sums + first * trees_.outputs_);
    }
  }

 private:
  // Kept by each thread from call to call.
  struct Scratch {
    std::vector<std::int32_t> keys;
    std::vector<std::uint32_t> ends;
  };
  static Scratch& scratch() {
    static thread_local Scratch mine;
    return mine;
  }

  static std::int32_t key_of(float value, std::int32_t missing) {
    const auto bits = std::bit_cast<std::int32_t>(value + 0.0F);
    const std::int32_t key = bits ^ ((bits >> 31) & 0x7fffffff);
    return (bits & 0x7fffffff) > 0x7f800000 ? missing : key;
  }

  void one_row(const float* row, float* sums) {
    auto& keys = scratch().keys;
    auto& ends = scratch().ends;
    keys.resize(std::max(keys.size(), trees_.slots_.size()));
    for (std::size_t at = 0; at < trees_.slots_.size(); ++at)
      keys[at] = key_of(row[trees_.slots_[at].feature], trees_.slots_[at].missing);
    const std::size_t count = trees_.depths_.size();
    ends.resize(std::max(ends.size(), trees_.firsts_.size()));
    for (std::size_t tree = 0; tree < count; tree += kGroup) {
      const auto* depths = &trees_.depths_[tree];
      const std::uint32_t depth = *std::max_element(depths, depths + std::min(kGroup, count - tree));
      walks_.trees(trees_.steps_.data(), &trees_.firsts_[tree], depth, keys.data(), &ends[tree]);
    }
    for (std::size_t tree = 0; tree < count; ++tree) add_leaf(tree, ends[tree], sums);
  }

  void add_leaf(std::size_t tree, std::size_t end, float* sums) const {
    const float value = trees_.values_[end];
    if (!trees_.listed_) {
      sums[trees_.targets_[tree]] += value;
      return;
    }
    const auto& leaf = trees_.leaves_[std::bit_cast<std::uint32_t>(value)];
    for (std::uint32_t at = leaf.first; at < leaf.first + leaf.count; ++at)
      sums[trees_.weights_[at].output] += trees_.weights_[at].value;
  }

  void block(const float* rows, std::size_t count, std::size_t stride, float* sums) {
    auto& keys = scratch().keys;
    keys.resize(std::max(keys.size(), trees_.slots_.size() * kBlock));
    for (std::size_t at = 0; at < trees_.slots_.size(); ++at) {
      const Trees::Slot slot = trees_.slots_[at];
      std::int32_t* to = &keys[at * kBlock];
      for (std::size_t row = 0; row < count; ++row) to[row] = key_of(rows[row * stride + slot.feature], slot.missing);
      std::fill(to + count, to + kBlock, 0);  // rows that are not there walk too
    }
    alignas(64) std::uint32_t ends[kBlock];
    for (std::size_t tree = 0; tree < trees_.depths_.size(); ++tree) {
      const std::size_t first = trees_.firsts_[tree];
      walks_.rows(&trees_.steps_[first], trees_.depths_[tree], keys.data(), count, ends);
      if (trees_.listed_) {
        for (std::size_t row = 0; row < count; ++row) add_leaf(tree, first + ends[row], sums + row * trees_.outputs_);
      } else {
        const float* values = &trees_.values_[first];
        float* to = sums + trees_.targets_[tree];
        for (std::size_t row = 0; row < count; ++row) to[row * trees_.outputs_] += values[ends[row]];
      }
    }
  }

  const Trees& trees_;
  const Walks walks_;
};

Trees::Lanes Trees::lanes() {
#if FALAJ_TREES_X86
  static const Lanes widest = [] {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw"))
      return Lanes::avx512;
    return __builtin_cpu_supports("avx2") ? Lanes::avx2 : Lanes::plain;
  }();
  return widest;
#else
  return Lanes::plain;
#endif
}

void Trees::add_with(Lanes lanes, std::span<const float> rows, std::size_t stride, std::span<float> sums) const {
  check_room(rows, stride, sums);
  TreesRun(*this, walks_of(lanes)).run(rows.data(), sums.size() / outputs_, stride, sums.data());
}

void Trees::add(std::span<const float> rows, std::size_t stride, std::span<float> sums) const {
  static const Walks fastest = find_fastest();
  check_room(rows, stride, sums);
  TreesRun(*this, fastest).run(rows.data(), sums.size() / outputs_, stride, sums.data());
}

void Trees::check_room(std::span<const float> rows, std::size_t stride, std::span<const float> sums) const {
  const std::size_t count = sums.size() / outputs_;
  CHECK(count * outputs_ == sums.size() && count * stride == rows.size() && stride >= features_,
        "whole rows, and room for the sums of each");
}

}  // namespace falaj::infer
