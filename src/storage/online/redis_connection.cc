// SPDX-License-Identifier: Apache-2.0
#include "storage/online/redis_connection.h"

#include <fcntl.h>

namespace falaj::online {

namespace {

// The order of a record (event, creation) is bytes 8 to 23 of it, and compares as bytes: Lua's numbers would round it,
// and its comparison of strings follows the locale.
constexpr std::string_view kScripts[] = {
    // put KEY record, expires in unix ms or 0: 1 when stored, 0 when what is there is newer
    R"lua(
local old, new = redis.call('GETRANGE', KEYS[1], 8, 23), ARGV[1]
for i = 1, #old do
  local a, b = old:byte(i), new:byte(8 + i)
  if a > b then return 0 end
  if a < b then break end
end
redis.call('SET', KEYS[1], new)
if ARGV[2] ~= '0' then redis.call('PEXPIREAT', KEYS[1], ARGV[2]) end
return 1)lua",
    // swap KEY old-or-empty new expires: 1 when the record was `old` and is now `new`
    R"lua(
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
if ARGV[3] ~= '0' then redis.call('PEXPIREAT', KEYS[1], ARGV[3]) end
return 1)lua",
    // erase_before KEY event, as 8 bytes of a record: 1 when erased
    R"lua(
local old = redis.call('GETRANGE', KEYS[1], 8, 15)
for i = 1, #old do
  local a, b = old:byte(i), ARGV[1]:byte(i)
  if a < b then return redis.call('UNLINK', KEYS[1]) end
  if a > b then return 0 end
end
return 0)lua",
};

[[noreturn]] void throw_reply(std::string_view message) {
  const auto begins = [&](std::string_view word) { return message.substr(0, word.size()) == word; };
  Code code = Code::internal;
  if (begins("OOM")) code = Code::exhausted;
  if (begins("NOAUTH") || begins("WRONGPASS") || begins("NOPERM")) code = Code::denied;
  for (const auto word :
       {"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "BUSY", "NOSCRIPT", "MISCONF", "TRYAGAIN"})
    if (begins(word)) code = Code::unavailable;
  throw Error(code, "redis: " + std::string(message));
}

[[noreturn]] void throw_broken(const redisContext* context) {
  throw Error(Code::unavailable,
              std::string("redis does not answer: ") + (context ? context->errstr : "out of memory"));
}

}  // namespace

RedisConnection::RedisConnection(const RedisOptions& options, For purpose) {
  const timeval timeout{options.timeout_ms / 1000, options.timeout_ms % 1000 * 1000};
  if (options.dial)
    context_.reset(redisConnectFd(options.dial().release()));
  else
    context_.reset(options.unix_socket.empty() ? redisConnectWithTimeout(options.host.c_str(), options.port, timeout)
                                               : redisConnectUnixWithTimeout(options.unix_socket.c_str(), timeout));
  if (!context_ || context_->err) throw_broken(context_.get());
  if (redisSetTimeout(context_.get(), timeout) != REDIS_OK) throw_broken(context_.get());
  if (!options.password.empty()) {
    append({"AUTH", options.password});
    take();
  }
  if (purpose == For::reading) return;
  for (const auto script : kScripts) append({"SCRIPT", "LOAD", script});
  for (std::size_t i = 0; i < std::size(kScripts); ++i) digests_.emplace_back(as_text(bytes_of(*take())));
}

void RedisConnection::append(std::span<const std::string_view> words) {
  std::vector<const char*> texts;
  std::vector<std::size_t> sizes;
  texts.reserve(words.size());
  sizes.reserve(words.size());
  for (const auto word : words) {
    texts.push_back(word.data());
    sizes.push_back(word.size());
  }
  if (redisAppendCommandArgv(context_.get(), static_cast<int>(words.size()), texts.data(), sizes.data()) != REDIS_OK)
    throw_broken(context_.get());
  ++pending_;
}

void RedisConnection::append(Script script, std::string_view key, std::initializer_list<std::string_view> arguments) {
  std::vector<std::string_view> words{"EVALSHA", digests_[static_cast<std::size_t>(script)], "1", key};
  words.insert(words.end(), arguments);
  append(words);
}

sys::Descriptor RedisConnection::twin() const { return sys::Descriptor(::fcntl(context_->fd, F_DUPFD_CLOEXEC, 0)); }

Reply RedisConnection::take() {
  void* got = nullptr;
  if (redisGetReply(context_.get(), &got) != REDIS_OK || !got) throw_broken(context_.get());
  --pending_;
  Reply reply(static_cast<redisReply*>(got));
  if (reply->type == REDIS_REPLY_ERROR) throw_reply({reply->str, reply->len});
  return reply;
}

RedisPool::Turn::Turn(RedisPool& p) : pool(p) {
  {
    Lock lock(pool.mu_);
    if (pool.in_use_ >= pool.options_.connections_max)
      throw Error(Code::exhausted, "too many connections to redis are in use");
    ++pool.in_use_;
    if (!pool.idle_.empty()) {
      connection = std::move(pool.idle_.back());
      pool.idle_.pop_back();
    }
  }
  if (connection) return;
  fresh = true;
  try {
    connection = std::make_unique<RedisConnection>(pool.options_, pool.purpose_);
  } catch (...) {
    Lock lock(pool.mu_);
    --pool.in_use_;
    throw;
  }
}

RedisPool::Turn::~Turn() {
  Lock lock(pool.mu_);
  --pool.in_use_;
  if (connection && connection->reusable()) pool.idle_.push_back(std::move(connection));
}

void RedisPool::Turn::renew() {
  {
    Lock lock(pool.mu_);
    pool.idle_.clear();
  }
  connection.reset();
  connection = std::make_unique<RedisConnection>(pool.options_, pool.purpose_);
  pool.probe_.reconnects.Increment();
}

}  // namespace falaj::online
