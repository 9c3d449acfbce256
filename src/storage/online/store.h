// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "foundation/base/bytes.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/descriptor.h"
#include "storage/online/space.h"

namespace falaj {
class Metrics;
}

namespace falaj::online {

// A row to write.
struct Write {
  BytesView entity_key;
  Row row;
  std::int64_t expires_us = 0;  // the store may drop it from then on; 0: never. Readers still check what they are told.
};

// Reads of one moment. What it gave stays valid until clear() or its end. It holds resources of the store: keep it for
// one request, and write nothing while holding one. One thread at a time.
class Snapshot {
 public:
  virtual ~Snapshot() = default;
  // Fills `out[i]` with the row of `entity_keys[i]`, if there is one. Each row is whole; in LMDB all are of one moment.
  // Requires: both have the same length.
  virtual void get(const Space& space, std::span<const BytesView> entity_keys, std::span<std::optional<Row>> out) = 0;
  // Every row of a space, in no meaningful order, until `each` says false; its Row is valid during the call only. In
  // Redis a row written meanwhile may be given twice or not at all.
  virtual void each(const Space& space, const std::function<bool(const Address&, const Row&)>& each) = 0;
  virtual void clear() = 0;  // forgets what it gave
};

// Thread-safe. Errors: unavailable (the server does not answer), corrupt, denied (sealed under a key the space lacks),
// exhausted (too many readers).
class Reader {
 public:
  virtual ~Reader() = default;
  virtual std::unique_ptr<Snapshot> snapshot() = 0;
};

// What `change` of an update makes of a row; nothing: leave it as it is.
struct Changed {
  std::int64_t event_us = 0, created_us = 0;
  Bytes payload;
  std::int64_t expires_us = 0;
};
using Change = std::function<std::optional<Changed>(std::size_t index, const std::optional<Row>& old)>;
// Rows of one space that are to be changed; all of it is the caller's.
struct Update {
  const Space& space;
  std::span<const BytesView> entity_keys;
  const Change& change;
};

// Thread-safe. When a write returns, it is as durable as the engine makes it: on disk in LMDB; in Redis as its
// configuration says. Errors also: invalid (a key or a row too long), exhausted (the disk or the map is full, too many
// writes waiting), cancelled (stopping), conflict (an update lost too many races).
class Store : public Reader {
 public:
  // What all its keys begin with, where others keep theirs beside them; "": it has files of its own.
  virtual std::string key_prefix() const { return ""; }
  // Whether reads wait for an answer over the network.
  virtual bool is_elsewhere() const { return false; }
  // Keeps of every entity the row of the latest event; of the same event the one created last; of the same creation the
  // one written last. Late and repeated events therefore may come in any order. Returns how many rows were stored.
  // All or nothing in LMDB; in Redis each row for itself: after an error, put the same again.
  virtual std::size_t put(const Space& space, std::span<const Write> writes) = 0;
  // Replaces each row by what `change` makes of it, with no other write in between. `change` is pure: it may run more
  // than once, on any thread. All or nothing in LMDB, and one wait for the disk; in Redis, after unavailable, some rows
  // may have been changed.
  virtual void update(std::span<const Update> updates) = 0;
  void update(const Space& space, std::span<const BytesView> entity_keys, const Change& change) {
    const Update one[] = {{space, entity_keys, change}};
    update(one);
  }
  // Returns how many were there. An older event put after this is stored again: there is no memory of what was erased.
  virtual std::size_t erase(const Space& space, std::span<const BytesView> entity_keys) = 0;
  // Rows of events before `event_us`, a part at a time: what is past its time to live, or (the default) all of them.
  virtual std::size_t erase_before(const Space& space, std::int64_t event_us = kEnd) = 0;
  static constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();
};

struct LmdbOptions {
  std::uint64_t map_bytes_first = std::uint64_t{1} << 30;
  std::uint64_t map_bytes_max = std::uint64_t{1} << 40;  // the map doubles up to here; it is address space, not memory
  unsigned readers_max = 1024;                           // snapshots at once, over all processes
  std::size_t waiting_max = 4096;                        // writes waiting for a commit
  std::size_t opened_bytes = std::size_t{64} << 20;      // of rows that were opened lately, in this process's memory
  // The map cannot grow while somebody reads. A request's snapshot lives for milliseconds; whoever holds one for longer
  // than this must not stop all writers: the write that needs room is then refused.
  sys::Micros grow_wait_max = std::chrono::seconds(5);
};
// The one writer of the directory, which is made when missing. Many processes may read it at once through
// read_lmdb(), each with a pid namespace in which the others are seen; they need to write its lock file.
std::unique_ptr<Store> open_lmdb(const std::string& directory, Metrics& metrics, const LmdbOptions& options = {});
std::unique_ptr<Reader> read_lmdb(const std::string& directory, const LmdbOptions& options = {});

struct RedisOptions {
  std::string unix_socket;  // or host and port
  std::string host;
  int port = 6379;
  std::string password;  // "" sends none
  std::string key_prefix = "falaj:";
  int timeout_ms = 1000;
  std::size_t connections_max = 64;
  // Connections that somebody else makes and authenticates, instead of where and by what.
  std::function<sys::Descriptor()> dial;
};
std::unique_ptr<Store> open_redis(const RedisOptions& options, Metrics& metrics);  // connects when first used
std::unique_ptr<Reader> read_redis(const RedisOptions& options, Metrics& metrics);
sys::Descriptor dial_redis(const RedisOptions& options);  // a connection for those who cannot make one

}  // namespace falaj::online
