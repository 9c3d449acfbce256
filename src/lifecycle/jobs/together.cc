// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/together.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/id.h"

namespace falaj::jobs {
namespace {

struct Link {
  std::size_t to;
  std::string at;  // where it is asked for
};
using Links = std::vector<std::vector<Link>>;  // by job: those it waits for

bool is_id(std::string_view text) {
  try {
    parse_id(text);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Jobs that can never begin are those that are left when all that wait for nothing else are gone, again and again. From
// any of them the way leads into a circle.
void refuse_circle(const std::vector<NewJob>& jobs, const Links& links, const PlaceOf& place_of, Faults& faults) {
  constexpr std::size_t kNamed = 10;
  std::vector<std::size_t> waits(jobs.size());
  std::vector<std::vector<std::size_t>> behind(jobs.size());
  std::deque<std::size_t> free;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    waits[i] = links[i].size();
    if (waits[i] == 0) free.push_back(i);
    for (const auto& link : links[i]) behind[link.to].push_back(i);
  }
  for (; !free.empty(); free.pop_front())
    for (const auto i : behind[free.front()])
      if (--waits[i] == 0) free.push_back(i);
  const auto left = std::find_if(waits.begin(), waits.end(), [](std::size_t n) { return n > 0; });
  if (left == waits.end()) return;
  const auto next = [&](std::size_t i) {
    return std::find_if(links[i].begin(), links[i].end(), [&](const Link& link) { return waits[link.to] > 0; });
  };
  auto at = static_cast<std::size_t>(left - waits.begin());
  std::vector<bool> seen(jobs.size());
  for (; !seen[at]; at = next(at)->to) seen[at] = true;
  std::string way = fmt::format("'{}' waits for '{}'", jobs[at].name, jobs[next(at)->to].name);
  std::size_t named = 2;
  for (auto i = next(at)->to; i != at; i = next(i)->to)
    if (++named <= kNamed) way += fmt::format(", which waits for '{}'", jobs[next(i)->to].name);
  faults.push_back({place_of(at, next(at)->at), fmt::format("none of them could ever begin: {}", way)});
}

}  // namespace

void link_by_name(std::vector<NewJob>& jobs, const std::vector<std::string>& ids, const PlaceOf& place_of,
                  Faults& faults) {
  std::map<std::string, std::vector<std::size_t>, std::less<>> named;
  for (std::size_t i = 0; i < jobs.size(); ++i) named[jobs[i].name].push_back(i);
  Links links(jobs.size());
  bool any = false;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    auto& after = jobs[i].spec.after;
    for (const auto& [list, path] : {std::pair(&after.ok, "spec.after.ok"), {&after.any, "spec.after.any"}}) {
      for (std::size_t k = 0; k < list->size(); ++k) {
        auto& other = (*list)[k];
        const auto found = named.find(other);
        if (found == named.end() || is_id(other)) continue;
        const auto at = fmt::format("{}[{}]", path, k);
        if (found->second.size() > 1) {
          faults.push_back({place_of(i, at), fmt::format("{} of the jobs submitted together are called '{}'",
                                                         found->second.size(), other)});
          continue;
        }
        links[i].push_back({found->second[0], at});
        other = ids[found->second[0]];
        any = true;
      }
    }
  }
  if (any) refuse_circle(jobs, links, place_of, faults);
}

}  // namespace falaj::jobs
