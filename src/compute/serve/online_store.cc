// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/online_store.h"

#include <sys/stat.h>

#include "foundation/base/error.h"
#include "foundation/base/log.h"

namespace falaj::serve {
namespace {

constexpr std::size_t kOpenedBytes = std::size_t{16} << 20;  // of rows that were looked up lately
constexpr int kRedisTimeoutMs = 250;                         // requests of the same thread wait meanwhile

}  // namespace

OnlineStore::OnlineStore(std::string directory, Dialled* dialled)
    : directory_(std::move(directory)), file_(file_now()), dialled_(dialled) {
  if (file_ == File()) return;
  online::LmdbOptions options;
  options.opened_bytes = kOpenedBytes;
  try {
    files_ = online::read_lmdb(directory_, options);
  } catch (const Error& e) {
    log::warn("online_store_not_opened", {{"directory", directory_}, {"why", e.what()}});
  }
}

std::shared_ptr<online::Reader> OnlineStore::reader(const std::string& key_prefix) {
  if (key_prefix.empty()) return files_;
  if (!dialled_) return nullptr;
  if (!redis_.second || redis_.first != key_prefix) {
    online::RedisOptions options;
    options.key_prefix = key_prefix;
    options.timeout_ms = kRedisTimeoutMs;
    options.dial = [this] { return dialled_->dial(); };
    redis_ = {key_prefix, online::read_redis(options, metrics_)};
  }
  return redis_.second;
}

OnlineStore::File OnlineStore::file_now() const {
  struct stat info {};
  if (directory_.empty() || ::stat((directory_ + "/data.mdb").c_str(), &info) != 0) return {};
  return {info.st_dev, info.st_ino};
}

bool OnlineStore::was_replaced() const {
  const auto now = file_now();
  return now != File() && now != file_;
}

}  // namespace falaj::serve
