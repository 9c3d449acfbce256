// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "foundation/base/bytes.h"

namespace falaj::track {

// The points of one metric of one run: how they are ordered, stored and shown. Pure functions.
struct Point {
  std::int64_t unix_ms = 0;
  std::int64_t step = 0;
  double value = 0;
};

// The order of a history: by time, then step, then value. A NaN comes after every number, all NaN are equal, and so are
// the two zeros.
bool before(const Point& a, const Point& b);

// Neither is before the other: logged twice.
bool same(const Point& a, const Point& b);

// Whether `a` and not `b` is the metric's latest value: the larger by step, then time, then value. A NaN is never newer
// than a number of the same step and time.
bool newer(const Point& a, const Point& b);

// Sorts and keeps one of each: of points that are the same, the one that stood first. What it makes is called *tidy*.
void tidy(std::vector<Point>& points);

inline constexpr std::size_t kPointsPerBlockMax = 65'536;

// One block of stored bytes, 3 to 40 times smaller than the points in memory; the bits of every value are kept.
// Requires: tidy, at most kPointsPerBlockMax points.
Bytes pack(std::span<const Point> tidy);

// What pack was given. Throws corrupt for bytes that pack did not make.
std::vector<Point> unpack(BytesView block);

// At most `most` of the points that draw the same line: the first, the last, and of each of (most - 2) / 2 equal
// stretches between them the lowest and the highest value (of a stretch that has only NaN, its first). All of them when
// they fit. Requires: most >= 4.
std::vector<Point> thin(std::span<const Point> tidy, std::size_t most);

// At most `most` of the points, evenly by index, the first and the last among them (of one, the last). All of them when
// they fit.
std::vector<Point> sample_evenly(std::span<const Point> tidy, std::size_t most);

}  // namespace falaj::track
