// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/slurm/attempt_files.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/log.h"
#include "foundation/base/shape.h"
#include "foundation/base/text.h"
#include "foundation/sys/descriptor.h"
#include "foundation/sys/path.h"
#include "lifecycle/execute/slurm/script.h"

namespace falaj::execute::slurm {

// As written to the files "launch" and "ending".
struct LaunchRecord {
  std::int64_t tasks = 1, grace_us = 0, time_limit_us = 0;
};
struct EndingRecord {
  std::int64_t exit_code = 0, signal = 0, rank = 0, at_us = 0, cpu_us = 0, memory_peak_bytes = 0;
  std::string reason, message;
};

}  // namespace falaj::execute::slurm

namespace falaj {
template <>
struct Shape<execute::slurm::LaunchRecord> {
  using T = execute::slurm::LaunchRecord;
  static constexpr std::string_view name = "LaunchRecord";
  static Fields fields() {
    return {field("tasks", &T::tasks, "").required(), field("grace_us", &T::grace_us, "").required(),
            field("time_limit_us", &T::time_limit_us, "").required()};
  }
};
template <>
struct Shape<execute::slurm::EndingRecord> {
  using T = execute::slurm::EndingRecord;
  static constexpr std::string_view name = "EndingRecord";
  static Fields fields() {
    return {field("reason", &T::reason, "").required(),
            field("exit_code", &T::exit_code, "").required(),
            field("signal", &T::signal, "").required(),
            field("rank", &T::rank, "").required(),
            field("at_us", &T::at_us, "").required(),
            field("message", &T::message, ""),
            field("cpu_us", &T::cpu_us, ""),
            field("memory_peak_bytes", &T::memory_peak_bytes, "")};
  }
};
}  // namespace falaj

namespace falaj::execute::slurm {
namespace {

constexpr std::string_view kLaunch = "launch", kJob = "job", kStopping = "stopping", kEnding = "ending";
constexpr std::string_view kNobody = "nobody\n";  // holds the claim of an attempt that no job may run
constexpr std::size_t kSmallBytesMax = 16 << 20;

// "rank.<N>.log", and "rank.<N>.log.first": where it begins, once it was cut.
bool is_log(std::string_view name) {
  return name.starts_with("rank.") && (name.ends_with(".log") || name.ends_with(".log.first"));
}
std::string first_name(int rank) { return log_name(rank) + ".first"; }
bool is_no_log(std::string_view name) { return !is_log(name); }
bool is_any(std::string_view) { return true; }

Reason reason_called(std::string_view name) {
  for (const auto reason : {Reason::finished, Reason::checkpointed, Reason::signalled, Reason::out_of_memory,
                            Reason::time_limit, Reason::stopped, Reason::node_lost, Reason::not_started})
    if (name_of(reason) == name) return reason;
  throw Error(Code::corrupt, "a Slurm attempt's record names an unknown reason");
}

Ending ending_of(const EndingRecord& in) {
  Ending out;
  out.reason = reason_called(in.reason);
  out.exit_code = static_cast<int>(in.exit_code);
  out.signal = static_cast<int>(in.signal);
  out.rank = static_cast<int>(in.rank);
  out.at = Micros{in.at_us};
  out.message = in.message;
  out.used = {Micros{in.cpu_us}, in.memory_peak_bytes};
  return out;
}

}  // namespace

AttemptFiles::AttemptFiles(const std::string& root) : root_(root), files_(sys::open_files(root)) {}

std::string AttemptFiles::directory(std::string_view attempt) const { return fmt::format("{}/{}", root_, attempt); }

std::string AttemptFiles::path(std::string_view attempt, std::string_view name) const {
  return fmt::format("{}/{}", attempt, name);
}

std::string AttemptFiles::small(const std::string& attempt, std::string_view name) {
  try {
    return std::string(as_text(files_->read_all(path(attempt, name), kSmallBytesMax)));
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
    return "";
  }
}

void AttemptFiles::put(const std::string& attempt, std::string_view name, std::string_view text,
                       sys::NewFile::Durable durable) {
  const auto file = files_->create();
  file->write(as_bytes(text));
  file->commit(path(attempt, name), durable, sys::NewFile::Existing::replace);
}

std::vector<std::string> AttemptFiles::attempts() {
  std::vector<std::string> out;
  for (const auto& entry : files_->list(""))
    if (entry.directory && entry.name != sys::kUnnamedDirectory && files_->stat(path(entry.name, kLaunch)))
      out.push_back(entry.name);
  return out;
}

bool AttemptFiles::create(const Launch& launch) {
  const auto& attempt = launch.attempt;
  if (files_->stat(path(attempt, kLaunch))) return false;
  const auto here = directory(attempt);
  constexpr auto kLater = sys::NewFile::Durable::at_sync;
  put(attempt, kBatchScript, batch_script(launch, here), kLater);
  put(attempt, kTaskScript, task_script(launch, here), kLater);
  put(attempt, kAfterScript, after_script(here), kLater);
  std::error_code without;  // then nobody knows what it used
  std::filesystem::permissions(fmt::format("{}/{}", here, kAfterScript), std::filesystem::perms::owner_all, without);
  if (const auto hosts = hosts_file(launch); !hosts.empty()) put(attempt, kHosts, hosts, kLater);
  const LaunchRecord record{static_cast<std::int64_t>(launch.tasks.size()), launch.grace.count(),
                            launch.time_limit.count()};
  put(attempt, kLaunch, json::serialize(encode(record)), sys::NewFile::Durable::now);
  return true;
}

void AttemptFiles::remove(const std::string& attempt) {
  remove_if(attempt, is_any);
  files_->remove(attempt);
}

void AttemptFiles::set_job(const std::string& attempt, SlurmId job) {
  // Not durable: the claim and Slurm itself tell which job it is, too.
  put(attempt, kJob, std::to_string(job), sys::NewFile::Durable::at_sync);
}

void AttemptFiles::set_stop(const std::string& attempt, Stop stop) {
  put(attempt, kStopping, stop == Stop::time_limit ? "time_limit" : "asked", sys::NewFile::Durable::at_sync);
}

void AttemptFiles::set_ending(const std::string& attempt, const Ending& ending) {
  EndingRecord record{ending.exit_code,
                      ending.signal,
                      ending.rank,
                      ending.at.count(),
                      ending.used.cpu.count(),
                      ending.used.memory_peak_bytes,
                      {},
                      ending.message};
  record.reason = name_of(ending.reason);
  put(attempt, kEnding, json::serialize(encode(record)), sys::NewFile::Durable::now);
}

std::optional<Stored> AttemptFiles::load(const std::string& attempt) {
  const auto launch = small(attempt, kLaunch);
  if (launch.empty()) return std::nullopt;
  const auto record = decode<LaunchRecord>(parse_json(launch), "reading a Slurm attempt's record");
  Stored out;
  out.tasks = static_cast<int>(record.tasks);
  out.grace = Micros{record.grace_us};
  out.time_limit = Micros{record.time_limit_us};
  out.job = parse_int(small(attempt, kJob)).value_or(0);
  if (const auto claimed = claim(attempt)) out.job = claimed->job;
  if (const auto stop = small(attempt, kStopping); !stop.empty())
    out.stop = stop == "time_limit" ? Stop::time_limit : Stop::asked;
  if (const auto ending = small(attempt, kEnding); !ending.empty())
    out.ending = ending_of(decode<EndingRecord>(parse_json(ending), "reading a Slurm attempt's end"));
  return out;
}

std::optional<Claim> AttemptFiles::claim(const std::string& attempt) { return parse_claim(small(attempt, kClaim)); }

bool AttemptFiles::close(const std::string& attempt) {
  const auto file = files_->create();
  file->write(as_bytes(kNobody));
  file->commit(path(attempt, kClaim), sys::NewFile::Durable::at_sync, sys::NewFile::Existing::keep);
  return small(attempt, kClaim) == kNobody;
}

Evidence AttemptFiles::evidence(const std::string& attempt) {
  Evidence out;
  out.claimed = files_->stat(path(attempt, kClaim)) && small(attempt, kClaim) != kNobody;
  out.end = parse_end(small(attempt, kEnd));
  out.status = small(attempt, kStatus);
  out.refused = small(attempt, kRefused);
  for (const auto& entry : files_->list(attempt)) {
    if (!entry.name.starts_with(kUsed)) continue;
    const auto used = parse_used(small(attempt, entry.name));
    if (!used) continue;
    out.used.cpu += used->cpu;
    out.used.memory_peak_bytes += used->memory_peak_bytes;
  }
  return out;
}

LogPage AttemptFiles::read_log(const std::string& attempt, int rank, std::int64_t offset, std::int64_t bytes_max) {
  if (!files_->stat(attempt)) throw Error(Code::not_found, fmt::format("no attempt {}", attempt));
  LogPage out;
  // In this order: what is written before the end is seen, is read.
  out.ended = !files_->stat(path(attempt, kLaunch)) || files_->stat(path(attempt, kEnding));
  out.first_offset = first_offset(attempt, rank);
  out.next_offset = std::max(offset, out.first_offset);
  try {
    const auto file = files_->open(path(attempt, log_name(rank)));
    constexpr std::int64_t kPageBytesMax = 4 << 20;
    out.text.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(bytes_max, 0, kPageBytesMax)));
    const auto at = static_cast<std::uint64_t>(out.next_offset);
    out.text.resize(file->read(at, std::as_writable_bytes(std::span(out.text))));
    // Cut meanwhile: what was read may be the hole.
    if (const auto first = first_offset(attempt, rank); first > out.next_offset) {
      out.first_offset = out.next_offset = first;
      out.text.clear();
    }
    out.next_offset += static_cast<std::int64_t>(out.text.size());
    out.ended = out.ended && static_cast<std::uint64_t>(out.next_offset) >= file->size();
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;  // it wrote nothing, or its logs were dropped
  }
  return out;
}

std::int64_t AttemptFiles::first_offset(const std::string& attempt, int rank) {
  return std::max<std::int64_t>(parse_int(small(attempt, first_name(rank))).value_or(0), 0);
}

// Tasks append to their files, so that bytes can be taken out in front without moving what follows: offsets stay.
void AttemptFiles::cut_logs(const std::string& attempt, std::int64_t bytes_max) {
  constexpr std::int64_t kBlock = 4096, kParts = 8;
  for (const auto& entry : files_->list(attempt)) {
    if (!is_log(entry.name) || !entry.name.ends_with(".log")) continue;
    const auto rank = parse_int(split(entry.name, '.')[1]);
    const auto bytes = static_cast<std::int64_t>(entry.bytes);
    if (!rank || bytes - first_offset(attempt, static_cast<int>(*rank)) <= bytes_max) continue;
    const auto first = (bytes - bytes_max + bytes_max / kParts) / kBlock * kBlock;
    const sys::Descriptor file(
        ::open(fmt::format("{}/{}", directory(attempt), entry.name).c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    // Said first, so that nobody reads the zeroes.
    put(attempt, first_name(static_cast<int>(*rank)), std::to_string(first), sys::NewFile::Durable::at_sync);
    if (!file || ::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, first) != 0)
      log::warn("slurm_log_not_cut", {{"attempt", attempt}, {"why", std::strerror(errno)}});
  }
}

void AttemptFiles::remove_if(const std::string& attempt, bool (*chosen)(std::string_view name)) {
  try {
    for (const auto& entry : files_->list(attempt))
      if (!entry.directory && chosen(entry.name)) files_->remove(path(attempt, entry.name));
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
  }
}

void AttemptFiles::forget(const std::string& attempt) {
  // The record last: what is forgotten by half is still known after a restart.
  remove_if(attempt, [](std::string_view name) { return is_no_log(name) && name != kLaunch && name != kEnding; });
  remove_if(attempt, [](std::string_view name) { return is_no_log(name) && name != kEnding; });
  remove_if(attempt, is_no_log);
}

void AttemptFiles::drop_logs(const std::string& attempt) {
  if (!files_->stat(attempt)) return;
  const bool forgotten = !files_->stat(path(attempt, kLaunch));
  if (forgotten)
    remove(attempt);
  else
    remove_if(attempt, is_log);
}

}  // namespace falaj::execute::slurm
