// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/body_pipe.h"

#include <algorithm>
#include <cstring>

namespace falaj::net {

std::span<std::byte> BodyPipe::space() {
  Lock lock(mu_);
  if (filled_ - emptied_ == pieces_.size()) return {};
  return {pieces_[filled_ % pieces_.size()].bytes.get(), kPieceBytes};
}

void BodyPipe::push(std::size_t bytes) {
  Lock lock(mu_);
  auto& piece = pieces_[filled_++ % pieces_.size()];
  piece.at = 0;
  piece.end = bytes;
  changed_.notify_one();
}

void BodyPipe::end() {
  Lock lock(mu_);
  ended_ = true;
  changed_.notify_one();
}

void BodyPipe::fail(Code code, const char* why) {
  Lock lock(mu_);
  if (!ended_ && !failure_) failure_.emplace(code, why);
  changed_.notify_one();
}

bool BodyPipe::failed() {
  Lock lock(mu_);
  return failure_.has_value();
}

std::size_t BodyPipe::read(std::span<std::byte> out) {
  if (out.empty()) return 0;
  Piece* piece = nullptr;
  {
    Lock lock(mu_);
    while (filled_ == emptied_ && !ended_ && !failure_) lock.wait(changed_);
    if (filled_ == emptied_ || failure_) {
      if (failure_) throw Error(*failure_);
      return 0;
    }
    piece = &pieces_[emptied_ % pieces_.size()];
  }
  const auto n = std::min(out.size(), piece->end - piece->at);
  std::memcpy(out.data(), piece->bytes.get() + piece->at, n);
  piece->at += n;
  if (piece->at < piece->end) return n;
  {
    Lock lock(mu_);
    ++emptied_;
  }
  wake_();
  return n;
}

std::size_t MemoryBody::read(std::span<std::byte> out) {
  const auto n = std::min(out.size(), left_.size());
  if (n > 0) std::memcpy(out.data(), left_.data(), n);
  left_ = left_.subspan(n);
  return n;
}

}  // namespace falaj::net
