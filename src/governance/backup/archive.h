// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "foundation/base/bytes.h"
#include "foundation/crypto/aead.h"
#include "foundation/crypto/password.h"

namespace falaj::backup {

// A backup as a file: a sequence of typed parts inside one sealed stream under a key from a passphrase. A byte changed,
// lost, added or moved anywhere is found when it is read. docs/formats/backup.md has the layout.
enum class Part : std::uint8_t { about = 1, roots = 2, table = 3, row = 4, object = 5, piece = 6, end = 7, of_row = 8 };

inline constexpr std::size_t kPartBytesMax = 8 << 20;
inline constexpr std::size_t kPassphraseBytesMin = 12;

class ArchiveWriter {
 public:
  using Sink = std::function<void(BytesView)>;
  // Throws invalid for a passphrase that is too short.
  ArchiveWriter(std::string_view passphrase, Sink sink, crypto::PasswordCost cost = {});
  ~ArchiveWriter();
  void add(Part part, BytesView bytes);  // Requires: at most kPartBytesMax
  void finish();

 private:
  void flush();
  const Sink sink_;
  std::unique_ptr<crypto::Sealer> sealer_;
  Bytes waiting_;
};

class ArchiveReader {
 public:
  // Fills `out`, 0 at the end.
  using Source = std::function<std::size_t(std::span<std::byte> out)>;
  // Throws denied (a wrong passphrase), corrupt.
  ArchiveReader(std::string_view passphrase, Source source);
  ~ArchiveReader();

  struct Item {
    Part part;
    Bytes bytes;
  };
  // Nothing at the end, which is only reached when the whole file was read and verified.
  std::optional<Item> next();

 private:
  bool more();  // reads and opens the next piece of the file; false at its end
  const Source source_;
  std::unique_ptr<crypto::Opener> opener_;
  Bytes piece_, plain_;
  std::size_t at_ = 0;
  bool finished_ = false, opened_any_ = false;
};

}  // namespace falaj::backup
