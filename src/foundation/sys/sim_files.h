// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/files.h"
#include "foundation/sys/random.h"

namespace falaj::sys {

// Files in memory that can lose power. Nobody may rely on more than this model gives: it keeps what was made durable,
// and of the rest whatever the seed says. Thread-safe.
class SimFiles final : public Files {
 public:
  SimFiles(const Clock& clock, std::uint64_t seed) : clock_(clock), random_(seed) {}

  std::unique_ptr<ReadFile> open(const std::string& path) override;
  std::unique_ptr<NewFile> create() override;
  std::unique_ptr<ScratchFile> scratch() override;
  void remove(const std::string& path) override;
  std::vector<FileInfo> list(const std::string& path) override;
  std::optional<FileInfo> stat(const std::string& path) override;
  void sync() override;
  void make_directories(const std::string& path) override;

  // Power loss and restart. A name changed since it was last durable goes to any of the states it had since then; bytes
  // never made durable are cut short or replaced by zeros from some place on. Files being written are gone: committing
  // one throws unavailable.
  void crash();

 private:
  struct Content {
    Bytes bytes;
    std::int64_t modified_us = 0;
    bool durable = false;
  };
  using Name = std::shared_ptr<Content>;  // null: no file of that name
  // What a name has stood for, oldest first: the first is durable, the last is what everybody sees.
  using History = std::vector<Name>;
  class SimReadFile;
  class SimNewFile;
  class SimScratchFile;

  void commit(const std::string& path, Name content, NewFile::Durable durable, NewFile::Existing existing,
              std::uint64_t life);
  Name find(const std::string& path) const REQUIRES(mu_);
  void make_directories_locked(const std::string& path) REQUIRES(mu_);
  void settle(History& history) REQUIRES(mu_);

  const Clock& clock_;

  Mutex mu_;
  SimRandom random_ GUARDED_BY(mu_);
  std::map<std::string, History> names_ GUARDED_BY(mu_);
  std::map<std::string, std::int64_t> directories_
      GUARDED_BY(mu_);  // when each was made; durable at once, as in the real one
  std::set<std::string> removed_directories_ GUARDED_BY(mu_);  // not durably: they may come back, empty
  std::uint64_t life_ GUARDED_BY(mu_) = 0;                     // counts crashes
};

}  // namespace falaj::sys
