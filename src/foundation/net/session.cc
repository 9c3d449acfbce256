// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/session.h"

#include <poll.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/net/render.h"
#include "foundation/net/tls.h"

namespace falaj::net {
namespace {

constexpr std::size_t kInboxBytes = 4 * 1024;
constexpr std::size_t kChunkedReadBytes = 64 * 1024;
constexpr std::size_t kJoinBytesMax = 16 * 1024;    // shorter bodies are sent in one buffer with their head
constexpr std::uint64_t kDropBytesMax = 64 * 1024;  // rather than close, read and drop this much of an unwanted body
constexpr std::size_t kKeptBytesMax = 8 * 1024;     // of each buffer, between requests
constexpr std::size_t kKeptEntriesMax = 32;         // of parameters and fields
constexpr std::int64_t kLingerUs = 1'000'000;
constexpr int kClientGone = 499;  // in the access log only: nobody was there to answer

Patience full_patience(const ServerLimits& limits) {
  return {limits.body_wait_us, limits.body_wait_us, std::max<std::int64_t>(1, limits.body_bytes_per_second_min)};
}

// Counts a request in flight; `full` when it is one too many.
class InFlight {
 public:
  explicit InFlight(Shared& shared)
      : shared_(shared), full_(shared.requests.fetch_add(1) >= shared.limits.requests_max) {
    shared_.probe.requests.Increment();
  }
  ~InFlight() {
    shared_.requests.fetch_sub(1);
    shared_.probe.requests.Decrement();
  }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;
  bool full() const { return full_; }

 private:
  Shared& shared_;
  const bool full_;
};

}  // namespace

asio::mutable_buffer Inbox::space(std::size_t wanted) {
  if (begin_ > 0) {
    std::memmove(bytes_.get(), bytes_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (capacity_ == end_ || capacity_ < wanted) {
    const auto more = std::max({kInboxBytes, capacity_ * (capacity_ == end_ ? 2 : 1), wanted});
    auto bigger = std::make_unique_for_overwrite<char[]>(more);
    if (end_ > 0) std::memcpy(bigger.get(), bytes_.get(), end_);
    bytes_ = std::move(bigger);
    capacity_ = more;
  }
  return {bytes_.get() + end_, capacity_ - end_};
}

void Inbox::shrink() {
  if (empty() && capacity_ > kKeptBytesMax) *this = {};
}

void IoThread::after(std::int64_t micros, std::function<void()> work) {
  auto timer = std::make_unique<Timer>(context.get_executor(), std::chrono::microseconds(micros));
  auto& started = *timer;
  started.async_wait([timer = std::move(timer), work = std::move(work)](const error_code& cancelled) {
    if (!cancelled) work();
  });
}

Session::Session(Socket socket, std::shared_ptr<asio::ssl::context> tls, std::string address, Shared& shared,
                 IoThread& home)
    : shared_(shared),
      home_(home),
      slot_(home.sessions.size()),
      stream_(std::move(socket), std::move(tls)),
      descriptor_(stream_.descriptor()),
      signal_(stream_.executor()),
      scanner_(shared.limits.head_bytes_max) {
  home_.sessions.push_back(this);
  head_.peer.address = std::move(address);
  shared_.probe.connections.Increment();
}

Session::~Session() {
  home_.sessions[slot_] = home_.sessions.back();
  home_.sessions[slot_]->slot_ = slot_;
  home_.sessions.pop_back();
  shared_.probe.connections.Decrement();
  Lock lock(shared_.mu);
  if (--shared_.connections == 0) shared_.none_left.notify_all();
}

void Session::expire_if_due(std::int64_t now_us) {
  if (deadline_us_ == 0 || now_us < deadline_us_) return;
  expired_ = true;
  deadline_us_ = 0;
  stream_.cancel();
}

void Session::close_if_idle() {
  if (idle_) kill();
}

void Session::kill() {
  killed_ = true;
  stream_.close();
  if (pipe_) pipe_->fail(Code::cancelled, "the server is stopping");
}

// What has come and was not read yet, such as TLS's goodbye, does not hide that nothing more will. A client that only
// ended its own side counts as gone too, as it does for other servers.
bool Session::is_abandoned() const {
  pollfd socket{descriptor_, POLLRDHUP, 0};
  return killed_ || ::poll(&socket, 1, 0) > 0;
}

// Arguments of awaited calls are names or views throughout: g++ 12 destroys some temporaries there twice.
Task<void> Session::run(std::unique_ptr<Session> self) {
  if (!co_await self->begin()) co_return;
  auto next = Next::keep;
  while (next == Next::keep && !self->killed_) next = co_await self->exchange();
  if (next == Next::linger && !self->killed_) co_await self->linger();
}

Task<bool> Session::begin() {
  if (shared_.draining) co_return false;
  if (!stream_.secured()) co_return true;
  error_code failed;
  deadline_us_ = shared_.now_us() + shared_.limits.head_wait_us;
  co_await stream_.handshake(failed);
  deadline_us_ = 0;
  if (failed) {
    shared_.probe.refused_tls.Increment();
    co_return false;
  }
  head_.peer.tls = true;
  head_.peer.certificate = client_certificate(stream_.tls_handle());
  co_return true;
}

// False when there is no head to answer: the client left, or said nothing for too long.
Task<bool> Session::read_head() {
  scanner_.reset();
  error_code failed;
  for (;;) {
    if (!inbox_.empty() && scanner_.scan(inbox_.view()) != HeadScanner::State::more) co_return true;
    idle_ = inbox_.empty();
    if (idle_ && shared_.draining) co_return false;
    // The time for a head starts with its first byte, and more bytes do not start it again.
    if (idle_)
      deadline_us_ = shared_.now_us() + shared_.limits.idle_wait_us;
    else if (started_us_ == 0)
      started_us_ = shared_.now_us();
    if (!idle_) deadline_us_ = started_us_ + shared_.limits.head_wait_us;
    const auto n = co_await stream_.read_some(inbox_.space(0), failed);
    deadline_us_ = 0;
    idle_ = false;
    if (failed) co_return false;
    inbox_.commit(n);
  }
}

// A connection that once carried much and is now idle must not hold the memory for it. (Assigning an empty string would
// keep the old one's memory; exchanging it does not.)
void Session::release_memory() {
  if (body_text_.capacity() > kKeptBytesMax) std::exchange(body_text_, {});
  if (out_.capacity() > kKeptBytesMax) std::exchange(out_, {});
  if (head_.query.capacity() > kKeptEntriesMax) std::exchange(head_.query, {});
  if (head_.headers.size() > kKeptEntriesMax) std::exchange(head_.headers, {});
  std::exchange(response_, {});
  inbox_.shrink();
}

Task<Session::Next> Session::exchange() {
  release_memory();
  started_us_ = 0;
  sent_ = 0;
  expired_ = false;
  body_ = {};
  receiving_ = sending_ = full_patience(shared_.limits);
  message_ = {};
  head_.method = Method::get;
  head_.path.clear();
  if (!co_await read_head()) {
    if (!expired_ || inbox_.empty() || killed_) co_return Next::close;
    shared_.probe.refused_too_slow.Increment();
    head_.request_id = shared_.ids.next<RequestTag>().str();
    message_.keep_alive = false;
    response_ = refusal(408, Code::deadline, "the request's head took too long");
    co_return co_await respond();
  }
  started_us_ = shared_.now_us();
  head_.request_id = shared_.ids.next<RequestTag>().str();
  auto refused = scanner_.refused();
  if (!refused)
    refused = parse_head(inbox_.view().substr(0, scanner_.end()), shared_.limits.header_fields_max, head_, message_);
  if (refused) {
    shared_.probe.refused_malformed.Increment();
    response_ = refusal(refused->status, Code::invalid, refused->why);
    response_.close = true;
    co_return co_await respond();
  }
  inbox_.consume(scanner_.end());
  body_.kind = message_.body;
  body_.left = message_.length;
  body_.ended = body_.kind == BodyKind::none;
  body_.continue_owed = message_.expects_continue;

  const InFlight hold(shared_);
  Admission admission;
  if (hold.full()) {
    shared_.probe.refused_requests.Increment();
    admission.refusal = refusal(503, Code::exhausted, "too many requests at once");
    admission.refusal->headers.add("Retry-After", "1");
  } else if (auto misnamed = check_names()) {
    shared_.probe.refused_host.Increment();
    admission.refusal = std::move(misnamed);
  } else {
    admission = admit();
  }
  const auto next = co_await answer(admission);
  shared_.probe.bytes_in.Increment(static_cast<double>(body_.received));
  co_return next;
}

Admission Session::admit() noexcept {
  try {
    return shared_.service.admit(head_);
  } catch (const std::exception& error) {
    log::error("admission_failed", {{"path", head_.path}, {"what", error.what()}});
    Admission failed;
    failed.refusal = refusal(500, Code::internal, "internal error");
    return failed;
  }
}

std::optional<Response> Session::check_names() {
  if (!shared_.hosts.knows(host_of(message_.host))) return refusal(421, Code::invalid, "this server has another name");
  if (!message_.origin.empty() && !HostRule::same_origin(message_.origin, message_.host))
    return refusal(403, Code::denied, "pages of other origins may not call this server");
  return std::nullopt;
}

Task<Session::Next> Session::answer(Admission& admission) {
  if (admission.refusal) {
    response_ = std::move(*admission.refusal);
    co_return co_await respond();
  }
  body_.bytes_max = admission.body_bytes_max;
  if (body_.kind == BodyKind::length && body_.left > body_.bytes_max) body_.trouble = Trouble::too_large;
  if (body_.continue_owed && body_.trouble == Trouble::none) {
    body_.continue_owed = false;
    if (!co_await send("HTTP/1.1 100 Continue\r\n\r\n")) body_.trouble = Trouble::gone;
  }
  body_text_.clear();
  const bool later = admission.place == Place::later;
  if (!body_.ended) co_await collect_body(later ? body_.bytes_max + 1 : kPieceBytes);
  if (body_.trouble == Trouble::none) {
    if (later) {
      begin_later(admission);
      while (!replied_) co_await signal_.wait_for_next();
      compress(head_, response_);
    } else if (!body_.ended) {
      co_await run_streaming(admission);
    } else {
      MemoryBody body(body_text_);
      const bool here = admission.place != Place::worker && call(admission, body, admission.place == Place::here_first);
      if (!here) {
        body = MemoryBody(body_text_);
        co_await run_on_worker(shared_.workers, admission, body);
      }
    }
  }
  if (body_.trouble == Trouble::gone) co_return finish(kClientGone, Next::close);
  if (body_.trouble != Trouble::none) response_ = trouble_response();
  co_return co_await respond();
}

// Runs the handler, which makes response_, on whichever thread calls it. Moves the head there and back. False when it
// would have to wait and must not.
bool Session::call(const Admission& admission, BodyReader& body, bool must_not_wait) noexcept {
  Request request{std::move(head_), body, must_not_wait, [this] { return is_abandoned(); }};
  bool answered = true;
  try {
    response_ = admission.handle(request);
    compress(request.head, response_);
  } catch (const MustWait&) {
    answered = false;
  } catch (const std::exception& error) {
    if (!pipe_ || !pipe_->failed()) log::error("handler_failed", {{"path", request.head.path}, {"what", error.what()}});
    response_ = error_response(500, Error(Code::internal, "internal error"), request.head.request_id);
  }
  head_ = std::move(request.head);
  return answered;
}

Task<std::size_t> Session::receive(asio::mutable_buffer into) {
  error_code failed;
  const auto n = co_await stream_.read_some(into, failed);
  co_return failed ? 0 : n;
}

// The next bytes of the body; none when it has ended or body_.trouble says why there are no more.
Task<std::size_t> Session::read_body(std::span<std::byte> out) {
  while (!body_.ended && body_.trouble == Trouble::none) {
    std::size_t n = 0;
    const auto room = body_.kind == BodyKind::length ? std::min<std::uint64_t>(out.size(), body_.left) : out.size();
    if (body_.kind == BodyKind::chunked && !inbox_.empty()) {
      const auto step = body_.chunks.next(inbox_.view(), room);
      n = step.data.size();
      if (n > 0) std::memcpy(out.data(), step.data.data(), n);
      inbox_.consume(step.used);
      body_.ended = body_.chunks.ended();
      if (body_.chunks.malformed()) body_.trouble = Trouble::malformed;
    } else if (body_.kind == BodyKind::length && !inbox_.empty()) {
      n = std::min<std::size_t>(inbox_.view().size(), room);
      std::memcpy(out.data(), inbox_.view().data(), n);
      inbox_.consume(n);
    } else {
      const auto before = shared_.now_us();
      deadline_us_ = before + receiving_.left_us;
      const bool direct = body_.kind == BodyKind::length;
      asio::mutable_buffer into(out.data(), room);
      if (!direct) into = inbox_.space(kChunkedReadBytes);
      const auto got = co_await receive(into);
      deadline_us_ = 0;
      receiving_.spend(shared_.now_us() - before, got);
      if (got == 0) body_.trouble = expired_ ? Trouble::slow : Trouble::gone;
      if (direct)
        n = got;
      else
        inbox_.commit(got);
    }
    if (n == 0) continue;
    body_.received += n;
    if (body_.kind == BodyKind::length) body_.ended = (body_.left -= n) == 0;
    if (body_.received > body_.bytes_max) body_.trouble = Trouble::too_large;
    if (body_.trouble == Trouble::none) co_return n;
  }
  co_return 0;
}

// Reads the body into body_text_; nothing of one that is said to be longer than `most`, no more than that of another.
// Memory grows with what has come, never with what was announced.
Task<void> Session::collect_body(std::uint64_t most) {
  if (body_.kind == BodyKind::length && body_.left > most) co_return;
  std::size_t have = 0;
  while (!body_.ended && body_.trouble == Trouble::none && have < most) {
    if (have == body_text_.size()) {
      const auto grown = std::max<std::uint64_t>(have * 2, body_.kind == BodyKind::length ? kPieceBytes : 4096);
      body_text_.resize(std::min(grown, body_.kind == BodyKind::length ? have + body_.left : most));
    }
    have += co_await read_body(std::as_writable_bytes(std::span(body_text_).subspan(have)));
  }
  body_text_.resize(have);
}

void Session::wake() {
  asio::post(stream_.executor(), [this] { signal_.fire(); });
}

Task<void> Session::run_on_worker(WorkerPool& pool, const Admission& admission, BodyReader& body) {
  bool done = false;
  const auto work = [&] {
    call(admission, body, false);
    // The last touch from this thread: once `done` is seen, the coroutine goes on and what it captured is gone.
    asio::post(stream_.executor(), [this, &done] {
      done = true;
      if (cancel_read_on_wake_) stream_.cancel();
      signal_.fire();
    });
  };
  if (!pool.start(std::ref(work))) {
    response_ = refusal(503, Code::exhausted, "too many requests wait for a worker");
    co_return;
  }
  while (!done) {
    const auto space = pipe_ ? pipe_->space() : std::span<std::byte>();
    if (space.empty() || body_.ended || body_.trouble != Trouble::none) {
      co_await signal_.wait();
      continue;
    }
    cancel_read_on_wake_ = true;
    const auto n = co_await read_body(space);
    cancel_read_on_wake_ = false;
    if (done) {
      // The handler has seen enough and we stopped the read ourselves: no trouble of the client's.
      if (body_.trouble == Trouble::gone) body_.trouble = Trouble::none;
      break;
    }
    if (n > 0) pipe_->push(n);
    if (body_.ended) pipe_->end();
    if (body_.trouble != Trouble::none) fail_pipe();
  }
}

Task<void> Session::run_streaming(const Admission& admission) {
  std::optional<std::uint64_t> size;
  if (body_.kind == BodyKind::length) size = message_.length;
  pipe_.emplace(size, [this] { wake(); });
  if (!body_text_.empty()) {
    const auto space = pipe_->space();
    std::memcpy(space.data(), body_text_.data(), body_text_.size());
    pipe_->push(body_text_.size());
  }
  co_await run_on_worker(shared_.readers, admission, *pipe_);
  pipe_.reset();
}

void Session::begin_later(const Admission& admission) noexcept {
  replied_ = false;
  const auto reply = [this](Response&& response) {
    response_ = std::move(response);
    replied_ = true;
    signal_.fire();
  };
  try {
    admission.begin(head_, body_text_, home_, reply);
  } catch (const std::exception& error) {
    log::error("handler_failed", {{"path", head_.path}, {"what", error.what()}});
    if (!replied_) reply(refusal(500, Code::internal, "internal error"));
  }
}

void Session::fail_pipe() {
  switch (body_.trouble) {
    case Trouble::none:
      break;
    case Trouble::gone:
      pipe_->fail(Code::cancelled, "the client went away");
      break;
    case Trouble::slow:
      pipe_->fail(Code::deadline, "the body came too slowly");
      break;
    case Trouble::malformed:
      pipe_->fail(Code::invalid, "the body's chunks are malformed");
      break;
    case Trouble::too_large:
      pipe_->fail(Code::exhausted, "the body is longer than allowed");
      break;
  }
}

Response Session::refusal(int status, Code code, std::string_view why) {
  return error_response(status, Error(code, std::string(why)), head_.request_id);
}

Response Session::trouble_response() {
  auto& probe = shared_.probe;
  switch (body_.trouble) {
    case Trouble::slow:
      probe.refused_too_slow.Increment();
      return refusal(408, Code::deadline, "the body came too slowly");
    case Trouble::malformed:
      probe.refused_malformed.Increment();
      return refusal(400, Code::invalid, "the body's chunks are malformed");
    default:
      probe.refused_too_large.Increment();
      return refusal(413, Code::invalid, fmt::format("the body is longer than the {} bytes allowed", body_.bytes_max));
  }
}

Session::Next Session::finish(int status, Next next) {
  shared_.probe.bytes_out.Increment(static_cast<double>(sent_));
  shared_.service.finished(head_, status, shared_.now_us() - started_us_, body_.received, sent_);
  return next;
}

// Sends response_ and says what becomes of the connection.
Task<Session::Next> Session::respond() {
  // A body nobody read stands between us and the next request: a short one is read and dropped, else we close.
  const bool droppable = body_.ended || (body_.kind == BodyKind::length && body_.left <= kDropBytesMax &&
                                         !body_.continue_owed && body_.trouble == Trouble::none);
  auto* stream = std::get_if<StreamBody>(&response_.body);
  const bool until_close = stream && !stream->size && message_.http_1_0;
  const bool close = response_.close || !message_.keep_alive || !droppable || until_close || shared_.draining;
  const bool bare = head_.method == Method::head || !has_body(response_.status);
  out_.clear();
  render_head(response_, {head_.request_id, home_.date, close, !message_.http_1_0}, out_);
  std::string_view rest;
  if (!bare && !stream) {
    const auto& text = std::get<std::string>(response_.body);
    if (text.size() <= kJoinBytesMax)
      out_.append(text);
    else
      rest = text;
  }
  bool sent = co_await send(out_, rest);
  if (sent && !bare && stream) sent = co_await send_stream(*stream);
  const auto next = finish(response_.status, !sent ? Next::close : close ? Next::linger : Next::keep);
  if (next != Next::keep || body_.ended) co_return next;
  co_return co_await drop_rest_of_body();
}

Task<Session::Next> Session::drop_rest_of_body() {
  std::array<std::byte, 4096> dropped{};
  body_.bytes_max = ~std::uint64_t{0};
  while (!body_.ended && body_.trouble == Trouble::none) co_await read_body(dropped);
  co_return body_.ended ? Next::keep : Next::close;
}

// False when the client is gone or takes it too slowly.
Task<bool> Session::send(std::string_view first, std::string_view second) {
  error_code failed;
  while (!first.empty() || !second.empty()) {
    const std::array<asio::const_buffer, 2> buffers = {asio::buffer(first), asio::buffer(second)};
    const auto before = shared_.now_us();
    deadline_us_ = before + sending_.left_us;
    std::size_t n = 0;
    if (second.empty())
      n = co_await stream_.write_some(buffers[0], failed);
    else
      n = co_await stream_.write_some(buffers, failed);
    deadline_us_ = 0;
    if (failed) co_return false;
    sent_ += n;
    const auto from_first = std::min(n, first.size());
    first.remove_prefix(from_first);
    second.remove_prefix(n - from_first);
    if (!first.empty() || !second.empty()) sending_.spend(shared_.now_us() - before, n);
  }
  co_return true;
}

// The next piece is made by a worker while this one is sent.
Task<bool> Session::send_stream(StreamBody& body) {
  struct Fetch {
    Bytes piece;
    bool failed = false, done = false;
  } fetch;
  const auto work = [&] {
    try {
      fetch.piece = body.next();
    } catch (const std::exception& error) {
      log::warn("response_source_failed", {{"path", head_.path}, {"what", error.what()}});
      fetch.failed = true;
    }
    asio::post(stream_.executor(), [this, &fetch] {
      fetch.done = true;
      signal_.fire();
    });
  };
  std::uint64_t total = 0;
  bool sent = true;
  Bytes piece;
  const bool chunked = !body.size && !message_.http_1_0;
  for (bool first = true;; first = false) {
    fetch.done = false;
    if (!shared_.workers.start(std::ref(work))) co_return false;
    if (!first) {
      if (chunked) {
        const auto size = fmt::format("{:x}\r\n", piece.size());
        const auto text = as_text(piece);
        sent = co_await send(size, text);
        if (sent) sent = co_await send("\r\n");
      } else {
        sent = co_await send(as_text(piece));
      }
    }
    while (!fetch.done) co_await signal_.wait();
    if (fetch.failed || !sent) co_return false;
    piece = std::move(fetch.piece);
    total += piece.size();
    // Too few or too many bytes for the length promised: the client must not take them for the whole.
    if (body.size && (total > *body.size || (piece.empty() && total < *body.size))) co_return false;
    if (piece.empty()) break;
  }
  if (!chunked) co_return true;
  co_return co_await send("0\r\n\r\n");
}

// Closing with unread bytes in the socket resets it, and the reset may overtake our answer. So wait for the client's
// end to close, for a while, dropping what it still sends.
Task<void> Session::linger() {
  const auto until = shared_.now_us() + kLingerUs;
  error_code failed;
  deadline_us_ = until;
  if (stream_.secured()) co_await stream_.say_goodbye(failed);
  stream_.finish_sending();
  while (!killed_ && shared_.now_us() < until) {
    deadline_us_ = until;
    inbox_.consume(inbox_.view().size());
    const auto n = co_await stream_.read_raw(inbox_.space(kChunkedReadBytes), failed);
    if (failed || n == 0) co_return;
  }
}

}  // namespace falaj::net
