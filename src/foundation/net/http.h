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

namespace falaj::net {

enum class Method { get, head, post, put, patch, del };
std::string_view name(Method method);
std::optional<Method> parse_method(std::string_view text);

// Header fields in order; names compare without case.
class Headers {
 public:
  void add(std::string name, std::string value) { fields_.emplace_back(std::move(name), std::move(value)); }
  void set(std::string name, std::string value);
  std::optional<std::string_view> find(std::string_view name) const;
  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

// Who is at the other end of the connection.
struct Peer {
  std::string address;                    // "127.0.0.1"
  bool tls = false;
  std::optional<Digest> certificate;      // SHA-256 of a client certificate that our CA signed
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

struct Request {
  Head head;
  BodyReader& body;
};

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

enum class Place {
  here,    // on the I/O thread: only for work in memory or one indexed read, never a write
  worker,  // on the worker pool: may block
};

// What is to happen with a request, decided from its head before a byte of the body is read.
struct Admission {
  std::optional<Response> refusal;  // set: answered at once, the body is not read
  std::uint64_t body_bytes_max = 0;
  Place place = Place::worker;
  std::function<Response(Request&)> handle;
};

// The program behind the server. Thread-safe.
class Service {
 public:
  virtual ~Service() = default;
  virtual Admission admit(const Head& head) = 0;  // on an I/O thread: must not block
  // Every finished exchange, for metrics and the access log.
  virtual void finished(const Head& head, int status, std::int64_t micros, std::uint64_t bytes_in, std::uint64_t bytes_out) = 0;
};

}  // namespace falaj::net
