// SPDX-License-Identifier: Apache-2.0
#pragma once

// What HTTP is to the rest of the program: values and functions. No socket, no Boost.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/base/error.h"

namespace falaj::net {

enum class Method { get, head, post, put, patch, del };
std::string_view name(Method method);
std::optional<Method> parse_method(std::string_view text);

// Header fields in order; names compare without case. One allocation holds all their text, and `clear` keeps it: the
// server reads request after request into the same object.
class Headers {
 public:
  struct Field {
    std::string_view name, value;
  };
  class Iterator {
   public:
    Iterator(const Headers* owner, std::size_t at) : owner_(owner), at_(at) {}
    Field operator*() const { return owner_->field(at_); }
    Iterator& operator++() { return ++at_, *this; }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    const Headers* owner_;
    std::size_t at_;
  };

  // Throw invalid for a name that is not a token and for control characters: no value can end its line early.
  void add(std::string_view name, std::string_view value);
  void set(std::string_view name, std::string_view value);            // in place of every other of that name
  std::optional<std::string_view> find(std::string_view name) const;  // the first
  void clear() { text_.clear(), places_.clear(); }
  void reserve(std::size_t fields, std::size_t bytes) { places_.reserve(fields), text_.reserve(bytes); }
  std::size_t size() const { return places_.size(); }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, places_.size()}; }

 private:
  struct Place {
    std::uint32_t at, name, value;  // the value's bytes follow the name's
  };
  Field field(std::size_t i) const {
    const auto& p = places_[i];
    return {{text_.data() + p.at, p.name}, {text_.data() + p.at + p.name, p.value}};
  }
  std::string text_;
  std::vector<Place> places_;
};

// Who is at the other end of the connection.
struct Peer {
  std::string address;  // "127.0.0.1"
  bool tls = false;
  std::optional<Digest> certificate;  // SHA-256 of a client certificate that our CA signed
};

// A request's head: everything before the body. The path is percent-decoded once, has no "." or ".." elements, no
// empty elements but a trailing one, and no control characters; anything else was answered 400 before we saw it.
struct Head {
  Method method = Method::get;
  std::string path;
  std::vector<std::pair<std::string, std::string>> query;  // decoded, in order
  Headers headers;
  Peer peer;
  std::string request_id;  // ours; also on the response

  std::optional<std::string_view> parameter(std::string_view name) const;  // the first of that name in the query
};

// The body as it arrives. Used by one thread; blocks for more. Never hands out more than the admitted bytes:
// one byte past throws exhausted. Throws cancelled when the client went away, deadline when it was too slow.
class BodyReader {
 public:
  virtual ~BodyReader() = default;
  virtual std::size_t read(std::span<std::byte> out) = 0;  // 0 at the end
  virtual std::optional<std::uint64_t> size() const = 0;   // when the client said so
  std::string read_all();
};

// What passes at once between the network and a handler; a body no longer than this is read before the handler runs.
inline constexpr std::size_t kPieceBytes = 256 * 1024;

struct Request {
  Head head;
  BodyReader& body;
  bool must_not_wait = false;  // who would have to wait throws MustWait: Place::here_first
  // Whether nobody waits for the answer any more. For long work that then is in vain; thread-safe, and may be asked
  // until the whole answer was sent. Unset: it is not known.
  std::function<bool()> is_abandoned{};
};
// Nothing has happened yet: the request begins again on a worker. Never thrown where waiting is allowed.
struct MustWait {};

// Gives the next piece of a body, empty at the end. Runs on a worker thread, one call at a time.
using BodySource = std::function<Bytes()>;

struct StreamBody {
  BodySource next;
  std::optional<std::uint64_t> size;  // known: Content-Length; else chunked
};

struct Response {
  int status = 200;
  Headers headers;
  std::variant<std::string, StreamBody> body;
  bool close = false;  // end the connection after this response
};

// The error body of our API: {"error":{"code","message","request_id","details":[{"field","problem"}]}}.
Response error_response(int status, const Error& error, std::string_view request_id);

// Which part of `size` bytes the request's Range header asks for. 206 and one part; 416 and none; else 200 and all:
// several parts, other units and malformed ranges are ignored, as RFC 9110 allows. `headers` go on the response.
struct RangeReply {
  int status = 200;
  std::uint64_t offset = 0, length = 0;
  Headers headers;
};
RangeReply apply_range(const Head& head, std::uint64_t size);

enum class Place {
  here,        // on the I/O thread: only for work in memory or one indexed read, never a write; a body longer than
               // kPieceBytes is not held in memory, so such a request goes to a worker all the same
  here_first,  // on the I/O thread, and again on a worker when the handler finds that it would wait (MustWait)
  worker,      // on the worker pool: may block
  later,       // begun on the I/O thread and answered when the answer is there; the whole body is in memory
};

// The I/O thread that a request came on, for handlers that answer later.
class Loop {
 public:
  virtual ~Loop() = default;
  virtual std::size_t index() const = 0;  // 0 .. threads - 1
  // Runs `work` on this thread: post (thread-safe) after all that is ready now, `after` (this thread only) when the
  // time is over. `work` must not throw.
  virtual void post(std::function<void()> work) = 0;
  virtual void after(std::int64_t micros, std::function<void()> work) = 0;
};

// Answers a request that was begun. Called once, on the thread of its loop; perhaps before `begin` returns.
struct Response;
using Reply = std::function<void(Response&&)>;

// What is to happen with a request, decided from its head before a byte of the body is read.
struct Admission {
  std::optional<Response> refusal;  // set: answered at once, the body is not read
  std::uint64_t body_bytes_max = 0;
  Place place = Place::worker;
  std::function<Response(Request&)> handle;
  // For Place::later. Head and body stay until the reply, which must come: the connection waits for it.
  std::function<void(const Head&, std::string_view body, Loop&, Reply)> begin;
};

// The program behind the server. Thread-safe. Neither a handler nor these may throw: what does is logged and answered
// 500. A body that was too long, too slow or broken is answered by the server (413, 408, 400) whatever the handler
// says.
class Service {
 public:
  virtual ~Service() = default;
  virtual Admission admit(const Head& head) = 0;  // on an I/O thread: must not block
  // Every finished exchange, for metrics and the access log.
  virtual void finished(const Head& head, int status, std::int64_t micros, std::uint64_t bytes_in,
                        std::uint64_t bytes_out) = 0;
};

}  // namespace falaj::net
