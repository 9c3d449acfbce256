// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <condition_variable>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "foundation/base/mutex.h"
#include "foundation/net/http.h"

namespace falaj::net {

// A body on its way from the I/O thread, which must never block, to a handler, which may. Two pieces: one is filled
// while the other is read, and a slow reader stops the filling, which stops the client.
class BodyPipe final : public BodyReader {
 public:
  // `wake` is called from the reading thread when the filling side has something to look at.
  BodyPipe(std::optional<std::uint64_t> size, std::function<void()> wake) : size_(size), wake_(std::move(wake)) {}

  // The filling side.
  std::span<std::byte> space();  // a free piece; empty when both are full
  void push(std::size_t bytes);  // that many of it are filled
  void end();
  void fail(Code code, const char* why);
  bool failed();

  std::size_t read(std::span<std::byte> out) override;
  std::optional<std::uint64_t> size() const override { return size_; }

 private:
  struct Piece {
    std::unique_ptr<std::byte[]> bytes = std::make_unique_for_overwrite<std::byte[]>(kPieceBytes);
    std::size_t at = 0, end = 0;
  };
  const std::optional<std::uint64_t> size_;
  const std::function<void()> wake_;

  Mutex mu_;  // guards everything below, but not the bytes of a piece, which belong to one side at a time
  std::condition_variable changed_;
  std::array<Piece, 2> pieces_ GUARDED_BY(mu_);
  std::size_t filled_ GUARDED_BY(mu_) = 0;   // pieces pushed so far
  std::size_t emptied_ GUARDED_BY(mu_) = 0;  // pieces read to their end so far
  bool ended_ GUARDED_BY(mu_) = false;
  std::optional<Error> failure_ GUARDED_BY(mu_);
};

// A body that has arrived whole.
class MemoryBody final : public BodyReader {
 public:
  explicit MemoryBody(std::string_view bytes) : size_(bytes.size()), left_(as_bytes(bytes)) {}
  std::size_t read(std::span<std::byte> out) override;
  std::optional<std::uint64_t> size() const override { return size_; }

 private:
  std::uint64_t size_;
  BytesView left_;
};

}  // namespace falaj::net
