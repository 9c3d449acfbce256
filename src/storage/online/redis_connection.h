// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to online.

#include <hiredis/hiredis.h>

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/base/error.h"
#include "foundation/base/mutex.h"
#include "storage/online/probe.h"
#include "storage/online/store.h"

namespace falaj::online {

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;
inline BytesView bytes_of(const redisReply& reply) { return as_bytes(std::string_view(reply.str, reply.len)); }

// The functions we keep in the server, each atomic there.
enum class Script { put, swap, erase_before };

// One connection. Commands are appended, then their replies taken in the same order. One thread at a time.
// Throws unavailable when the connection breaks, and for errors the server reports: exhausted (out of memory), denied,
// unavailable (loading, read-only, a script it forgot).
class RedisConnection {
 public:
  enum class For { reading, writing };  // who only reads needs none of the functions in the server
  RedisConnection(const RedisOptions& options, For purpose);
  void append(std::span<const std::string_view> words);
  void append(std::initializer_list<std::string_view> words) { append({words.begin(), words.size()}); }
  void append(Script script, std::string_view key, std::initializer_list<std::string_view> arguments);
  Reply take();
  sys::Descriptor twin() const;  // of its socket
  bool reusable() const { return pending_ == 0 && context_->err == 0; }

 private:
  struct FreeContext {
    void operator()(redisContext* context) const { redisFree(context); }
  };
  std::unique_ptr<redisContext, FreeContext> context_;
  std::vector<std::string> digests_;  // of the scripts, by Script
  std::size_t pending_ = 0;
};

// Connections that are made when needed and used again. Thread-safe.
class RedisPool {
 public:
  RedisPool(const RedisOptions& options, RedisConnection::For purpose, Probe& probe)
      : options_(options), purpose_(purpose), probe_(probe) {}

  // Runs `work` on a connection. When one that lay idle turns out to be broken (the server was started anew), tries
  // once more on a fresh one, unless `once`.
  enum class Tries { once, again };
  template <class Work>
  auto with(Tries tries, Work&& work) {
    Turn turn(*this);
    const bool fresh = turn.fresh;
    try {
      return work(*turn.connection);
    } catch (const Error& error) {
      if (fresh || tries == Tries::once || error.code() != Code::unavailable) throw;
    }
    turn.renew();
    return work(*turn.connection);
  }

 private:
  struct Turn {
    explicit Turn(RedisPool& pool);
    ~Turn();
    void renew();  // drops all idle ones: they are as old as the broken one
    RedisPool& pool;
    std::unique_ptr<RedisConnection> connection;
    bool fresh = false;
  };

  const RedisOptions options_;
  const RedisConnection::For purpose_;
  Probe& probe_;
  Mutex mu_;
  std::vector<std::unique_ptr<RedisConnection>> idle_ GUARDED_BY(mu_);
  std::size_t in_use_ GUARDED_BY(mu_) = 0;
};

}  // namespace falaj::online
