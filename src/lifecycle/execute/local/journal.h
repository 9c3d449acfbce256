// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "foundation/base/bytes.h"
#include "foundation/sys/descriptor.h"
#include "lifecycle/execute/executor.h"

namespace falaj::execute::local {

// The keeper's memory of its attempts: the last report of each that has not been forgotten, in one file that is only
// appended to, and now and then written anew. A record is its length, a checksum and the report or the name of what was
// forgotten; a tail that was not written whole is cut off. Appending survives the death of the keeper at once; of the
// machine only after `sync`, which any process may call.
class Journal {
 public:
  static constexpr const char* kName = "journal";

  explicit Journal(const std::string& directory);  // reads what is there; throws unavailable, corrupt

  const std::map<std::string, Report, std::less<>>& reports() const { return reports_; }
  void put(const Report& report);   // throws unavailable when the disk is full; then nothing changed
  void note(const Report& report);  // also when the disk is full: then it is lost with this process
  void forget(const std::string& attempt);

  // Makes everything appended so far durable. Throws unavailable.
  static void sync(const std::string& directory);

 private:
  void read();
  void append(BytesView payload);
  void rewrite_when_long();

  const std::string path_;
  sys::Descriptor file_;
  std::map<std::string, Report, std::less<>> reports_;
  std::int64_t bytes_ = 0;
  std::int64_t live_bytes_ = 0;  // as of the last rewriting
};

}  // namespace falaj::execute::local
