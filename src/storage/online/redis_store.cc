// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "foundation/base/error.h"
#include "storage/online/probe.h"
#include "storage/online/redis_connection.h"
#include "storage/online/store.h"

namespace falaj::online {

namespace {

constexpr std::size_t kPerRound = 1000;  // keys in one command, commands in one pipeline
constexpr std::size_t kBytesPerRound = 4 << 20;
constexpr int kRacesMax = 64;

// Unix milliseconds for PEXPIREAT, not before the time meant; "0" is never.
std::string expiry(std::int64_t expires_us) {
  return std::to_string(expires_us <= 0 ? 0 : expires_us / 1000 + (expires_us % 1000 != 0));
}

std::string_view text_of(const Bytes& bytes) { return as_text(bytes); }

// The keys of records: a prefix of our own, then the address.
class Keys {
 public:
  explicit Keys(std::string prefix) : prefix_(std::move(prefix)) {}
  const std::string& prefix() const { return prefix_; }
  std::string of(const Address& address) const { return prefix_ + std::string(as_text(address)); }
  // The address of a key, unless it is not one of ours.
  std::optional<Address> address(std::string_view key) const {
    if (key.size() != prefix_.size() + sizeof(Address) || key.substr(0, prefix_.size()) != prefix_) return std::nullopt;
    Address out;
    const auto bytes = as_bytes(key.substr(prefix_.size()));
    std::copy(bytes.begin(), bytes.end(), out.begin());
    return out;
  }
  // What SCAN matches all keys of a space by: every byte stands for itself.
  std::string pattern(const Space& space) const {
    std::string out;
    for (const char c : prefix_ + std::string(as_text(space.prefix()))) {
      out += '\\';
      out += c;
    }
    return out + "*";
  }

 private:
  const std::string prefix_;
};

// Asks for many records at once; the reply is an array with a text or nil for each.
Reply fetch(RedisPool& pool, std::span<const std::string> keys) {
  std::vector<std::string_view> words{"MGET"};
  words.insert(words.end(), keys.begin(), keys.end());
  auto reply = pool.with(RedisPool::Tries::again, [&](RedisConnection& connection) {
    connection.append(words);
    return connection.take();
  });
  if (reply->type != REDIS_REPLY_ARRAY || reply->elements != keys.size())
    throw Error(Code::unavailable, "redis: an answer of another kind");
  return reply;
}
std::optional<BytesView> record_of(const redisReply& reply, std::size_t i) {
  const auto& element = *reply.element[i];
  if (element.type != REDIS_REPLY_STRING) return std::nullopt;
  return bytes_of(element);
}

// Gives all keys of a space, some at a time, perhaps some of them twice.
template <class Each>
void scan(RedisPool& pool, const std::string& pattern, Each each) {
  std::string cursor = "0";
  do {
    const auto reply = pool.with(RedisPool::Tries::again, [&](RedisConnection& connection) {
      connection.append({"SCAN", cursor, "MATCH", pattern, "COUNT", "1000"});
      return connection.take();
    });
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
      throw Error(Code::unavailable, "redis: an answer of another kind");
    cursor = as_text(bytes_of(*reply->element[0]));
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < reply->element[1]->elements; ++i)
      keys.emplace_back(as_text(bytes_of(*reply->element[1]->element[i])));
    if (!keys.empty() && !each(keys)) return;
  } while (cursor != "0");
}

class RedisSnapshot final : public Snapshot {
 public:
  RedisSnapshot(RedisPool& pool, const Keys& keys) : pool_(pool), keys_(keys) {}

  void get(const Space& space, std::span<const BytesView> entity_keys, std::span<std::optional<Row>> out) override {
    CHECK(entity_keys.size() == out.size(), "there is a place for every row");
    Space::Opening opening(space);
    for (std::size_t at = 0; at < out.size(); at += kPerRound) {
      const auto n = std::min(kPerRound, out.size() - at);
      get_round(space, opening, entity_keys.subspan(at, n), out.subspan(at, n));
    }
  }

  void each(const Space& space, const std::function<bool(const Address&, const Row&)>& each) override {
    Space::Opening opening(space);
    Bytes opened;
    scan(pool_, keys_.pattern(space), [&](const std::vector<std::string>& keys) {
      const auto reply = fetch(pool_, keys);
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const auto address = keys_.address(keys[i]);
        const auto record = record_of(*reply, i);
        if (!address || !record) continue;
        opened.resize(Space::payload_size(*record));
        if (!each(*address, opening.open(*address, *record, opened.data()))) return false;
      }
      return true;
    });
  }

  void clear() override {
    replies_.clear();
    opened_.clear();
  }

 private:
  void get_round(const Space& space, Space::Opening& opening, std::span<const BytesView> entity_keys,
                 std::span<std::optional<Row>> out) {
    std::vector<Address> addresses;
    std::vector<std::string> keys;
    for (const auto entity_key : entity_keys)
      keys.push_back(keys_.of(addresses.emplace_back(space.address(entity_key))));
    replies_.push_back(fetch(pool_, keys));  // rows in the clear stay in it
    const auto& reply = *replies_.back();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      out[i].reset();
      const auto record = record_of(reply, i);
      if (!record) continue;
      const auto bytes = Space::payload_size(*record);
      if (bytes > 0) opened_.emplace_back(new std::byte[bytes]);
      out[i] = opening.open(addresses[i], *record, bytes > 0 ? opened_.back().get() : nullptr);
    }
  }

  RedisPool& pool_;
  const Keys& keys_;
  std::vector<Reply> replies_;
  std::vector<std::unique_ptr<std::byte[]>> opened_;
};

class RedisReader final : public Reader {
 public:
  RedisReader(const RedisOptions& options, Metrics& metrics)
      : probe_(metrics), pool_(options, RedisConnection::For::reading, probe_), keys_(options.key_prefix) {}
  std::unique_ptr<Snapshot> snapshot() override { return std::make_unique<RedisSnapshot>(pool_, keys_); }

 private:
  Probe probe_;
  RedisPool pool_;
  const Keys keys_;
};

class RedisStore final : public Store {
 public:
  RedisStore(const RedisOptions& options, Metrics& metrics)
      : probe_(metrics), pool_(options, RedisConnection::For::writing, probe_), keys_(options.key_prefix) {}

  std::string key_prefix() const override { return keys_.prefix(); }
  bool is_elsewhere() const override { return true; }

  std::unique_ptr<Snapshot> snapshot() override { return std::make_unique<RedisSnapshot>(pool_, keys_); }

  std::size_t put(const Space& space, std::span<const Write> writes) override {
    std::size_t stored = 0;
    Space::Sealing sealing(space);
    auto left = writes;
    while (!left.empty()) {
      std::vector<Sent> sent;
      for (std::size_t bytes = 0; !left.empty() && sent.size() < kPerRound && bytes < kBytesPerRound;) {
        const auto& write = left.front();
        const auto address = space.address(write.entity_key);
        auto& s = sent.emplace_back(Sent{keys_.of(address), {}, {}, expiry(write.expires_us)});
        sealing.append_record(s.record, address, write.row);
        bytes += s.record.size();
        left = left.subspan(1);
      }
      // Putting the same again changes nothing, so it may be tried again.
      stored += pool_.with(RedisPool::Tries::again, [&](RedisConnection& connection) {
        for (const auto& s : sent) connection.append(Script::put, s.key, {text_of(s.record), s.expires});
        return count_ones(connection, sent.size());
      });
    }
    probe_.rows_stored.Increment(static_cast<double>(stored));
    probe_.rows_late.Increment(static_cast<double>(writes.size() - stored));
    return stored;
  }

  void update(std::span<const Update> updates) override {
    for (const auto& [space, entity_keys, change] : updates) update_space(space, entity_keys, change);
  }

  std::size_t erase(const Space& space, std::span<const BytesView> entity_keys) override {
    std::size_t erased = 0;
    for (std::size_t at = 0; at < entity_keys.size(); at += kPerRound) {
      std::vector<std::string> keys;
      for (const auto entity_key : entity_keys.subspan(at, std::min(kPerRound, entity_keys.size() - at)))
        keys.push_back(keys_.of(space.address(entity_key)));
      erased += unlink(keys);
    }
    return erased;
  }

  std::size_t erase_before(const Space& space, std::int64_t event_us) override {
    std::size_t erased = 0;
    const auto event = event_order(event_us);
    scan(pool_, keys_.pattern(space), [&](const std::vector<std::string>& keys) {
      erased += event_us == kEnd ? unlink(keys) : pool_.with(RedisPool::Tries::again, [&](RedisConnection& connection) {
        for (const auto& key : keys) connection.append(Script::erase_before, key, {as_text(event)});
        return count_ones(connection, keys.size());
      });
      return true;
    });
    return erased;
  }

 private:
  struct Sent {
    std::string key;
    Bytes old, record;
    std::string expires;
    std::size_t index = 0;
  };

  void update_space(const Space& space, std::span<const BytesView> entity_keys, const Change& change) {
    for (std::size_t at = 0; at < entity_keys.size(); at += kPerRound) {
      std::vector<std::size_t> left;  // indices that others have raced us to
      for (std::size_t i = at; i < std::min(entity_keys.size(), at + kPerRound); ++i) left.push_back(i);
      for (int races = 0; !left.empty(); ++races) {
        if (races == kRacesMax) throw Error(Code::conflict, "online update: others changed the same rows all the time");
        left = update_round(space, entity_keys, left, change);
      }
    }
  }

  static std::size_t count_ones(RedisConnection& connection, std::size_t replies) {
    std::size_t ones = 0;
    for (std::size_t i = 0; i < replies; ++i) ones += connection.take()->integer == 1;
    return ones;
  }

  std::size_t unlink(const std::vector<std::string>& keys) {
    std::vector<std::string_view> words{"UNLINK"};
    words.insert(words.end(), keys.begin(), keys.end());
    return pool_.with(RedisPool::Tries::again, [&](RedisConnection& connection) {
      connection.append(words);
      return static_cast<std::size_t>(connection.take()->integer);
    });
  }

  // Reads, changes and swaps; returns whom others changed in between.
  std::vector<std::size_t> update_round(const Space& space, std::span<const BytesView> entity_keys,
                                        const std::vector<std::size_t>& indices, const Change& change) {
    std::vector<Address> addresses;
    std::vector<std::string> keys;
    for (const auto i : indices) keys.push_back(keys_.of(addresses.emplace_back(space.address(entity_keys[i]))));
    const auto reply = fetch(pool_, keys);
    std::vector<Sent> sent;
    {
      Space::Opening opening(space);
      Space::Sealing sealing(space);
      Bytes opened;
      for (std::size_t n = 0; n < indices.size(); ++n) {
        std::optional<Row> old;
        const auto record = record_of(*reply, n);
        if (record) {
          opened.resize(Space::payload_size(*record));
          old = opening.open(addresses[n], *record, opened.data());
        }
        const auto changed = change(indices[n], old);
        if (!changed) continue;
        auto& s = sent.emplace_back(Sent{keys[n], {}, {}, expiry(changed->expires_us), indices[n]});
        if (record) s.old.assign(record->begin(), record->end());
        sealing.append_record(s.record, addresses[n], {changed->event_us, changed->created_us, changed->payload});
      }
    }
    // Whether a swap whose answer was lost happened cannot be told, and a change made twice would count twice.
    return pool_.with(RedisPool::Tries::once, [&](RedisConnection& connection) {
      for (const auto& s : sent) connection.append(Script::swap, s.key, {text_of(s.old), text_of(s.record), s.expires});
      std::vector<std::size_t> raced;
      for (const auto& s : sent)
        if (connection.take()->integer != 1) raced.push_back(s.index);
      return raced;
    });
  }

  Probe probe_;
  RedisPool pool_;
  const Keys keys_;
};

// hiredis writes to sockets without MSG_NOSIGNAL: a server that went away would end the process.
void bear_broken_pipes() {
  struct sigaction now {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

std::unique_ptr<Store> open_redis(const RedisOptions& options, Metrics& metrics) {
  bear_broken_pipes();
  return std::make_unique<RedisStore>(options, metrics);
}

std::unique_ptr<Reader> read_redis(const RedisOptions& options, Metrics& metrics) {
  bear_broken_pipes();
  return std::make_unique<RedisReader>(options, metrics);
}

sys::Descriptor dial_redis(const RedisOptions& options) {
  bear_broken_pipes();
  RedisConnection connection(options, RedisConnection::For::reading);
  connection.append({"PING"});
  connection.take();  // it answers, and to us
  auto twin = connection.twin();
  if (!twin) throw Error(Code::exhausted, "redis: no descriptor is left for a connection");
  return twin;
}

}  // namespace falaj::online
