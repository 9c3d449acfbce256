// SPDX-License-Identifier: Apache-2.0
#include "compute/protocol/grpc_call.h"

#include <utility>

#include <fmt/format.h>

#include "compute/protocol/coding.h"
#include "compute/protocol/grpc_codec.h"
#include "compute/protocol/grpc_peer.h"
#include "foundation/base/log.h"
#include "foundation/net/codes.h"

namespace falaj::protocol {
namespace {

constexpr std::size_t kStreamDepthMax = 64;  // requests of one stream under way; past it nothing more is read

grpc::Status status_of(const Error& error) {
  return {static_cast<grpc::StatusCode>(net::row_of(error.code()).grpc), error.what()};
}

BytesView view(const grpc::Slice& slice) { return std::as_bytes(std::span(slice.begin(), slice.size())); }

grpc::ByteBuffer buffer_of(const grpc::Slice& slice) { return {&slice, 1}; }

grpc::Slice slice_of(const EncodedInfer& encoded) {
  const grpc::Slice slice(encoded.size());
  encoded.write(reinterpret_cast<std::byte*>(const_cast<std::uint8_t*>(slice.begin())));
  return slice;
}

// A message may come packed, and says so by how it begins: no message of the protocol begins with a field of such a
// tag.
std::optional<Coding> packing_of(BytesView message) {
  if (message.size() < 2) return std::nullopt;
  const auto first = static_cast<unsigned>(message[0]), second = static_cast<unsigned>(message[1]);
  if (first == 0x1f && second == 0x8b) return Coding::gzip;
  if (first == 0x78 && (first << 8 | second) % 31 == 0) return Coding::deflate;
  return std::nullopt;
}

// A message in one piece: as it came when it came in one. Unpacked here, not by gRPC, which would do so without a
// limit.
grpc::Slice whole(const grpc::ByteBuffer& buffer, std::size_t bytes_max) {
  grpc::Slice slice;
  if (buffer.TrySingleSlice(&slice).ok()) return slice;
  if (!buffer.DumpToSingleSlice(&slice).ok()) throw Error(Code::invalid, "the message cannot be read");
  const auto packing = packing_of(view(slice));
  return packing ? grpc::Slice(unpacked(as_text(view(slice)), *packing, bytes_max)) : slice;
}

// Whatever else than an Error is thrown is a bug; the caller is not told what it says.
Error as_error(const std::exception& thrown) {
  if (const auto* error = dynamic_cast<const Error*>(&thrown)) return *error;
  log::error("handler_failed", {{"what", thrown.what()}});
  return {Code::internal, "internal error"};
}

bool is_whole_error(const net::Headers& headers) { return headers.find("triton_grpc_error") == "true"; }

}  // namespace

GrpcShared::GrpcShared(const GrpcLimits& of, Inference& inference, const sys::Clock& clock, sys::Ids& ids,
                       Metrics& metrics)
    : limits(of), inference(inference), clock(clock), ids(ids) {
  for (const auto& method : grpc_methods()) {
    const Labels labels{{"call", std::string(method.call)}};
    auto& probe = probes_.emplace_back();
    probe.seconds = &metrics.histogram("falaj_protocol_grpc_seconds", "From the beginning of a call to its end.",
                                       Metrics::seconds_buckets(), labels);
    for (std::size_t code = 0; code < probe.by_code.size(); ++code) {
      auto with_code = labels;
      with_code["code"] = std::to_string(code);
      probe.by_code[code] = &metrics.counter("falaj_protocol_grpc_calls_total", "Calls that ended.", with_code);
    }
  }
}

void GrpcShared::count(const GrpcMethod& method, const grpc::Status& status, std::int64_t micros) {
  auto& probe = probes_[static_cast<std::size_t>(&method - grpc_methods().data())];
  probe.seconds->Observe(static_cast<double>(micros) / 1e6);
  probe.by_code[static_cast<std::size_t>(status.error_code())]->Increment();
}

void GrpcCall::await(GrpcShared& shared, GrpcLoop& loop) {
  if (!shared.accepting) return;
  auto* call = new GrpcCall(shared, loop);  // deletes itself when gRPC hands back its last operation
  shared.service.RequestCall(&call->context_, &call->stream_, &loop.events(), &loop.events(), &call->accepted_);
}

GrpcCall::GrpcCall(GrpcShared& shared, GrpcLoop& loop) : shared_(shared), loop_(loop) {
  Lock lock(shared_.mu);
  ++shared_.objects;
}

GrpcCall::~GrpcCall() {
  if (counted_) --shared_.under_way;
  Lock lock(shared_.mu);
  if (--shared_.objects == 0) shared_.none_left.notify_all();
}

void GrpcCall::accepted(bool ok) {
  if (!ok) {  // the server stops
    delete this;
    return;
  }
  await(shared_, loop_);
  begun_us_ = shared_.clock.now().count();
  method_ = find_grpc_method(context_.method());
  if (!method_) return finish({grpc::StatusCode::UNIMPLEMENTED, "no such call: " + context_.method()});
  counted_ = true;
  if (++shared_.under_way > shared_.limits.calls_max)
    return finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many calls at once"});
  try {
    begin();
  } catch (const std::exception& thrown) {
    finish(status_of(as_error(thrown)));
  }
}

void GrpcCall::begin() {
  for (const auto& [key, value] : context_.client_metadata()) {
    const std::string_view name(key.data(), key.size());
    if (!name.ends_with("-bin")) headers_.add(name, {value.data(), value.size()});
  }
  peer_ = peer_of(context_.peer(), *context_.auth_context());
  request_id_ = shared_.ids.next<RequestTag>().str();
  if (!method_->open) shared_.inference.admit(caller());
  reading_ = true;
  stream_.Read(&incoming_, &received_);
}

Caller GrpcCall::caller() const { return {&headers_, &peer_, request_id_}; }

void GrpcCall::received(bool ok) {
  reading_ = false;
  if (is_stream()) {
    all_read_ |= !ok;
    if (ok && !finishing_) infer();
    return go_on();
  }
  if (!ok) return finish({grpc::StatusCode::INVALID_ARGUMENT, "the call has no message"});
  try {
    if (method_->kind == GrpcMethod::Kind::infer) return infer();
    const auto message = whole(incoming_, shared_.limits.message_bytes_max);
    send(grpc::Slice(method_->answer(shared_.inference, caller(), view(message))));
  } catch (const std::exception& thrown) {
    finish(status_of(as_error(thrown)));
  }
}

void GrpcCall::infer() {
  auto question = std::make_shared<Question>();
  ++asking_;
  try {
    question->message = whole(incoming_, shared_.limits.message_bytes_max);
    incoming_.Clear();
    question->asked = decode_model_infer(view(question->message));
    auto ask = std::exchange(question->asked.ask, {});
    question->model = ask.model;
    question->version = ask.version;
    if (const auto left = micros_left(context_.raw_deadline()); left && (ask.timeout_us == 0 || *left < ask.timeout_us))
      ask.timeout_us = *left;
    shared_.inference.infer(caller(), std::move(ask), loop_,
                            [this, question](Outcome&& outcome) { answer(*question, std::move(outcome)); });
  } catch (const std::exception& thrown) {
    fail(*question, as_error(thrown));
  }
}

void GrpcCall::answer(const Question& question, Outcome&& outcome) {
  try {
    if (const auto* error = std::get_if<Error>(&outcome)) throw *error;
    auto& answer = std::get<Answer>(outcome);
    if (!answer.prediction_id.empty()) {
      if (is_stream())
        answer.parameters[kPredictionId] = answer.prediction_id;
      else
        context_.AddInitialMetadata(kPredictionHeader, answer.prediction_id);
    }
    auto message = slice_of(EncodedInfer(question.asked, std::move(answer), is_stream()));
    --asking_;
    send(std::move(message));
  } catch (const std::exception& thrown) {
    fail(question, as_error(thrown));
  }
}

void GrpcCall::fail(const Question& question, const Error& error) {
  --asking_;
  if (!is_stream() || is_whole_error(headers_)) return finish(status_of(error));
  send(grpc::Slice(encode_stream_failure(question.model, question.version, question.asked.id, error.what())));
}

void GrpcCall::send(grpc::Slice message) {
  if (is_stream()) {
    if (!gone_ && !finishing_) outgoing_.push_back(std::move(message));
    return go_on();
  }
  finishing_ = true;
  stream_.WriteAndFinish(buffer_of(message), grpc::WriteOptions(), grpc::Status::OK, &finished_);
}

void GrpcCall::finish(const grpc::Status& status) {
  if (finishing_) return go_on();
  finishing_ = true;
  outgoing_.clear();
  status_ = status;
  if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ||
      status.error_code() == grpc::StatusCode::UNAVAILABLE)
    context_.AddTrailingMetadata("grpc-retry-pushback-ms", "1000");
  if (writing_) return;  // gRPC takes one of them at a time
  stream_.Finish(status_, &finished_);
}

void GrpcCall::go_on() {
  if (ended_) {
    if (asking_ == 0 && !reading_ && !writing_) delete this;
    return;
  }
  if (finishing_) return;
  if (!writing_ && !outgoing_.empty()) {
    writing_ = true;
    stream_.Write(buffer_of(outgoing_.front()), &written_);
  }
  if (!reading_ && !all_read_ && asking_ + outgoing_.size() < kStreamDepthMax) {
    reading_ = true;
    stream_.Read(&incoming_, &received_);
  }
  if (all_read_ && !writing_ && outgoing_.empty() && asking_ == 0) finish(grpc::Status::OK);
}

void GrpcCall::written(bool ok) {
  writing_ = false;
  if (finishing_) {
    stream_.Finish(status_, &finished_);
    return;
  }
  outgoing_.pop_front();
  if (!ok) {  // nobody is there to read the others
    gone_ = true;
    outgoing_.clear();
  }
  go_on();
}

void GrpcCall::finished(bool) {
  ended_ = true;
  if (method_) shared_.count(*method_, status_, shared_.clock.now().count() - begun_us_);
  go_on();
}

}  // namespace falaj::protocol
