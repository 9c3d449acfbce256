// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lifecycle/execute/local/cgroups.h"
#include "lifecycle/execute/local/networks.h"
#include "lifecycle/execute/local/restrict.h"
#include "lifecycle/execute/local/view.h"

namespace falaj::execute::local {

// What this machine lets the keeper do, found by doing it, and what is prepared once for every attempt.
class Machine {
 public:
  // `name` tells the keepers of one machine apart. As an ordinary user, this process enters a user namespace of its
  // own: it must have one thread. Throws unavailable when not even `restricted` is possible.
  explicit Machine(const std::string& name);

  // What is lacking lowers the level that attempts reach; `lacking` says why, for people.
  Isolation isolation_max() const;
  const std::string& lacking() const { return lacking_; }

  bool has_namespaces() const { return view_ != nullptr; }
  View& view() { return *view_; }
  Networks& networks() { return *networks_; }
  Cgroups* cgroups() { return cgroups_.get(); }  // null: there are none
  const Identity& identity() const { return identity_; }
  // How many files a task may have open unless it asks for more: what was usual here before the keeper took all it may.
  std::int64_t open_files() const { return open_files_; }
  const CallFilter& filter(CallFilter::Sockets sockets) const {
    return sockets == CallFilter::Sockets::any ? any_ : local_only_;
  }

 private:
  void take_namespaces();
  void try_namespaces();
  void note(const std::string& why) { lacking_ += (lacking_.empty() ? "" : "; ") + why; }

  CallFilter any_{CallFilter::Sockets::any}, local_only_{CallFilter::Sockets::local_only};
  std::int64_t open_files_ = 0;
  Identity identity_;
  std::unique_ptr<Cgroups> cgroups_;
  std::unique_ptr<View> view_;
  std::unique_ptr<Networks> networks_;
  std::string lacking_;
};

}  // namespace falaj::execute::local
