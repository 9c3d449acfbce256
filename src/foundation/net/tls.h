// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "foundation/base/mutex.h"
#include "foundation/net/asio.h"
#include "foundation/net/server.h"

namespace falaj::net {

// The certificate that new connections get, read again when its files change. Thread-safe.
class TlsKeeper {
 public:
  explicit TlsKeeper(TlsFiles files);  // throws invalid when they cannot be used
  std::shared_ptr<asio::ssl::context> current() const;
  // Looks at the files. New ones that cannot be used are warned of, and the old certificate stays.
  void reload_if_changed();

 private:
  struct Stamp {
    std::int64_t inode = 0, bytes = 0, modified_ns = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  using Stamps = std::array<Stamp, 3>;
  Stamps stamps() const;

  const TlsFiles files_;
  mutable Mutex mu_;  // guards everything below
  Stamps loaded_ GUARDED_BY(mu_);
  std::shared_ptr<asio::ssl::context> current_ GUARDED_BY(mu_);
};

// SHA-256 of the certificate the client showed, which was verified against our CA.
std::optional<Digest> client_certificate(SSL* connection);

}  // namespace falaj::net
