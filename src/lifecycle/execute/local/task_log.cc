// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/task_log.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::execute::local {
namespace {

constexpr int kSegments = 8;
constexpr std::int64_t kSegmentBytesMin = 64 << 10;

std::string segment_name(int rank, std::int64_t first) { return fmt::format("{}.{:016x}", rank, first); }

std::vector<std::int64_t> segments_of(const std::string& directory, int rank) {
  std::vector<std::int64_t> firsts;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(directory.c_str()), ::closedir);
  if (!listing) return firsts;
  const std::string prefix = fmt::format("{}.", rank);
  while (const dirent* entry = ::readdir(listing.get())) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(prefix) || name.size() != prefix.size() + 16) continue;
    std::int64_t first = 0;
    const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), first, 16);
    if (error == std::errc() && end == name.data() + name.size()) firsts.push_back(first);
  }
  std::sort(firsts.begin(), firsts.end());
  return firsts;
}

}  // namespace

TaskLog::TaskLog(std::string directory, int rank, std::int64_t bytes_max)
    : directory_(std::move(directory)),
      rank_(rank),
      bytes_max_(std::max(bytes_max, kSegments * kSegmentBytesMin)),
      segment_bytes_(bytes_max_ / kSegments) {}

std::string TaskLog::segment_path(std::int64_t first) const {
  return fmt::format("{}/{}", directory_, segment_name(rank_, first));
}

bool TaskLog::open_segment() {
  if (::mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST) return false;
  file_ = sys::Descriptor(::open(segment_path(offset_).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file_) return false;
  firsts_.push_back(offset_);
  if (firsts_.size() > kSegments) drop_oldest();
  return true;
}

void TaskLog::drop_oldest() {
  ::unlink(segment_path(firsts_.front()).c_str());
  firsts_.pop_front();
}

void TaskLog::write(BytesView bytes) {
  while (!bytes.empty()) {
    const bool full = file_ && offset_ - firsts_.back() >= segment_bytes_;
    if ((!file_ || full) && !open_segment()) break;
    const auto room = static_cast<std::size_t>(segment_bytes_ - (offset_ - firsts_.back()));
    const auto n = ::write(file_.get(), bytes.data(), std::min(bytes.size(), room));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    offset_ += n;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  if (bytes.empty()) return;
  offset_ += static_cast<std::int64_t>(bytes.size());  // lost; what comes next begins a segment that says where
  file_ = sys::Descriptor();
}

LogPage read_task_log(const std::string& directory, int rank, std::int64_t offset, std::int64_t bytes_max) {
  LogPage page;
  const auto firsts = segments_of(directory, rank);
  page.first_offset = firsts.empty() ? 0 : firsts.front();
  page.next_offset = std::max(offset, page.first_offset);
  auto segment = std::upper_bound(firsts.begin(), firsts.end(), page.next_offset);
  if (segment != firsts.begin()) --segment;
  for (; segment != firsts.end() && static_cast<std::int64_t>(page.text.size()) < bytes_max; ++segment) {
    const std::string path = fmt::format("{}/{}", directory, segment_name(rank, *segment));
    const sys::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file) continue;  // dropped meanwhile
    if (page.text.empty()) page.next_offset = std::max(page.next_offset, *segment);
    if (page.next_offset < *segment) break;  // bytes were lost between: the next page begins behind them
    const auto had = page.text.size();
    page.text.resize(static_cast<std::size_t>(bytes_max));
    const auto n = ::pread(file.get(), page.text.data() + had, page.text.size() - had, page.next_offset - *segment);
    page.text.resize(had + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    page.next_offset += std::max<ssize_t>(n, 0);
  }
  return page;
}

}  // namespace falaj::execute::local
