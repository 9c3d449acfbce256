// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/journal.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include "foundation/base/bytes.h"
#include "foundation/base/error.h"
#include "lifecycle/execute/local/wire.h"

namespace falaj::execute::local {
namespace {

constexpr std::string_view kMagic = "falaj keeper 1\n";
constexpr std::int64_t kRewriteBytesMin = 4 << 20;
constexpr std::uint8_t kReport = 1, kForgotten = 2;

[[noreturn]] void fail_journal(std::string_view doing) {
  throw Error(Code::unavailable,
              fmt::format("the keeper's journal: {}: {}", doing, std::generic_category().message(errno)));
}

std::uint32_t checksum(BytesView bytes) {
  return static_cast<std::uint32_t>(::crc32(0, raw(bytes), static_cast<unsigned>(bytes.size())));
}

Bytes record_of(BytesView payload) {
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(payload.size()));
  out.u32(checksum(payload));
  out.raw(payload);
  return out.take();
}

Bytes payload_of(const Report& report) {
  ByteWriter out;
  out.u8(kReport);
  write_report(out, report);
  return out.take();
}

bool write_whole(int fd, BytesView bytes) {
  while (!bytes.empty()) {
    const auto n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

Bytes read_whole(int fd) {
  Bytes all;
  for (;;) {
    const auto at = all.size();
    all.resize(at + 65'536);
    const auto n = ::pread(fd, all.data() + at, 65'536, static_cast<off_t>(at));
    if (n < 0) fail_journal("reading");
    all.resize(at + static_cast<std::size_t>(n));
    if (n == 0) return all;
  }
}

}  // namespace

Journal::Journal(const std::string& directory)
    : path_(directory + "/" + kName), file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {
  if (!file_) fail_journal("opening");
  read();
}

void Journal::read() {
  const Bytes all = read_whole(file_.get());
  if (all.empty()) {
    if (!write_whole(file_.get(), as_bytes(kMagic))) fail_journal("writing");
    bytes_ = static_cast<std::int64_t>(kMagic.size());
    return;
  }
  if (!as_text(all).starts_with(kMagic)) throw Error(Code::corrupt, "the keeper's journal: not of this version");
  std::size_t whole = kMagic.size();
  while (all.size() - whole >= 8) {
    ByteReader head(BytesView(all).subspan(whole, 8));
    const std::size_t length = head.u32();
    const std::uint32_t expected = head.u32();
    if (length > all.size() - whole - 8) break;
    const auto payload = BytesView(all).subspan(whole + 8, length);
    if (checksum(payload) != expected) break;
    ByteReader in(payload);
    if (const auto kind = in.u8(); kind == kReport) {
      Report report = read_report(in);
      reports_[report.attempt] = std::move(report);
    } else if (kind == kForgotten) {
      reports_.erase(in.text());
    } else {
      throw Error(Code::corrupt, "the keeper's journal: unknown record");
    }
    whole += 8 + length;
  }
  if (whole < all.size() && ::ftruncate(file_.get(), static_cast<off_t>(whole)) != 0) fail_journal("cutting its tail");
  bytes_ = static_cast<std::int64_t>(whole);
}

void Journal::put(const Report& report) {
  append(payload_of(report));
  reports_[report.attempt] = report;
  rewrite_when_long();
}

void Journal::note(const Report& report) {
  try {
    put(report);
  } catch (const Error&) {
    reports_[report.attempt] = report;
  }
}

void Journal::forget(const std::string& attempt) {
  ByteWriter out;
  out.u8(kForgotten);
  out.text(attempt);
  append(out.bytes());
  reports_.erase(attempt);
  rewrite_when_long();
}

void Journal::append(BytesView payload) {
  const Bytes record = record_of(payload);
  if (!write_whole(file_.get(), record)) {
    const int error = errno;
    // What cannot be cut off now is cut off by who reads it next: the checksum does not match.
    [[maybe_unused]] const int cut = ::ftruncate(file_.get(), bytes_);
    errno = error;
    fail_journal("writing");
  }
  bytes_ += static_cast<std::int64_t>(record.size());
}

// When four fifths of it are about attempts that were forgotten or went on.
void Journal::rewrite_when_long() {
  if (bytes_ < kRewriteBytesMin || bytes_ < 5 * live_bytes_) return;
  ByteWriter out;
  out.raw(as_bytes(kMagic));
  for (const auto& [attempt, report] : reports_) out.raw(record_of(payload_of(report)));
  live_bytes_ = static_cast<std::int64_t>(out.bytes().size());
  if (bytes_ < 5 * live_bytes_) return;
  const std::string fresh = path_ + ".new";
  sys::Descriptor file(::open(fresh.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  // A full disk is no reason to fail: the long one is as good.
  if (!file || !write_whole(file.get(), out.bytes()) || ::fdatasync(file.get()) != 0 ||
      ::rename(fresh.c_str(), path_.c_str()) != 0)
    return;
  file_ = std::move(file);
  bytes_ = live_bytes_;
}

void Journal::sync(const std::string& directory) {
  const sys::Descriptor file(::open((directory + "/" + kName).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) fail_journal("opening");
  CHECK(::fdatasync(file.get()) == 0, "a disk failed to keep what it was given");
}

}  // namespace falaj::execute::local
