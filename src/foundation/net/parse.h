// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bytes to requests: pure functions, stricter than RFC 9112 asks. Whatever two parsers could read differently (folded
// lines, bare line feeds, two lengths, a length and a coding) is refused, because a proxy before us may read it the
// other way and take a part of one request for the next.

#include <cstdint>
#include <optional>
#include <string_view>

#include "foundation/net/http.h"

namespace falaj::net {

inline constexpr std::size_t kRequestLineBytesMax = 8 * 1024;

// Why a request is answered without being looked at further. The connection ends after it.
struct Refused {
  int status;
  std::string_view why;
};

// Finds the end of a head in bytes that arrive in pieces, looking at each byte once.
class HeadScanner {
 public:
  enum class State { more, complete, refused };
  explicit HeadScanner(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  // Requires: `bytes` begins where the last call's did, and that call said `more`.
  State scan(std::string_view bytes);
  std::size_t end() const { return at_; }  // after `complete`: just past the empty line
  std::optional<Refused> refused() const { return refused_; }
  void reset() { at_ = line_ = 0, refused_.reset(); }

 private:
  State refuse(int status, std::string_view why) { return refused_ = Refused{status, why}, State::refused; }
  std::size_t bytes_max_;
  std::size_t at_ = 0;    // first byte not looked at
  std::size_t line_ = 0;  // where the line it is in began
  std::optional<Refused> refused_;
};

enum class BodyKind { none, length, chunked };

// What a head says about the bytes around it rather than about what is asked.
struct Message {
  BodyKind body = BodyKind::none;
  std::uint64_t length = 0;
  bool keep_alive = true;
  bool expects_continue = false;
  bool http_1_0 = false;
  std::string_view host;    // points into the head's headers
  std::string_view origin;  // likewise; "" when absent
};

// Reads one complete head (up to and with its empty line) into `head`, whose memory is used again. Sets only what the
// client decides: not peer, not request_id.
std::optional<Refused> parse_head(std::string_view bytes, std::size_t fields_max, Head& head, Message& message);

// "example.org:80" or "[::1]:80" without the port; empty when malformed.
std::string_view host_of(std::string_view authority);

// Takes the chunked coding off a body that arrives in pieces. Trailers are checked and dropped.
class ChunkDecoder {
 public:
  struct Step {
    std::size_t used;       // bytes of the input that are done with
    std::string_view data;  // those of them that belong to the body
  };
  // Up to `data_max` bytes of the body. Uses all input unless data is full, the body has ended or is malformed.
  Step next(std::string_view in, std::size_t data_max);
  bool ended() const { return state_ == State::ended; }
  bool malformed() const { return state_ == State::malformed; }

 private:
  enum class State {
    size_first,
    size,
    extension,
    size_lf,
    data,
    data_cr,
    data_lf,
    trailer_first,
    trailer,
    trailer_lf,
    last_lf,
    ended,
    malformed
  };
  void take(char c);
  void take_size(char c);
  void end_size_line();
  bool spend(std::size_t bytes);

  State state_ = State::size_first;
  std::uint64_t left_ = 0;    // of the current chunk
  unsigned digits_ = 0;       // of the current size
  std::size_t overhead_ = 0;  // bytes of extensions and trailers, which nobody asked for
};

}  // namespace falaj::net
