// SPDX-License-Identifier: Apache-2.0
#include "governance/audit/record.h"

#include <algorithm>

#include "foundation/base/error.h"
#include "governance/audit/json_form.h"

namespace falaj::audit {

namespace {

constexpr std::uint8_t kRecordVersion = 1;
constexpr std::string_view kHeadPurpose = "falaj audit head 1";

template <std::size_t N>
std::array<std::byte, N> fixed(BytesView bytes, const char* what) {
  std::array<std::byte, N> out;
  if (bytes.size() != N) throw Error(Code::invalid, std::string("has the wrong length: ") + what);
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return out;
}

std::optional<std::string> hex(const std::optional<Digest>& digest) {
  return digest ? std::optional(digest->hex()) : std::nullopt;
}
std::optional<Digest> digest(const std::optional<std::string>& hex) {
  return hex ? std::optional(Digest::parse(*hex)) : std::nullopt;
}

Bytes message(const Head& head) {
  ByteWriter out;
  out.text(kHeadPurpose);
  out.u64(static_cast<std::uint64_t>(head.size));
  out.raw(head.root.view());
  out.u64(static_cast<std::uint64_t>(head.unix_us));
  return out.take();
}

}  // namespace

Bytes encode_effects(std::span<const sql::Effect> effects) {
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(effects.size()));
  for (const auto& effect : effects) {
    out.text(effect.resource);
    out.u8(static_cast<std::uint8_t>((effect.before ? 1 : 0) | (effect.after ? 2 : 0)));
    if (effect.before) out.raw(effect.before->view());
    if (effect.after) out.raw(effect.after->view());
  }
  return out.take();
}

std::vector<sql::Effect> decode_effects(BytesView bytes) {
  ByteReader in(bytes);
  std::vector<sql::Effect> effects;
  const auto take = [&] {
    Digest d;
    const auto raw = in.raw(d.bytes.size());
    std::copy(raw.begin(), raw.end(), d.bytes.begin());
    return d;
  };
  for (auto left = in.u32(); left > 0; --left) {
    sql::Effect effect;
    effect.resource = in.text();
    const auto present = in.u8();
    if (present > 3) throw Error(Code::corrupt, "an audit record's effects cannot be read");
    if (present & 1) effect.before = take();
    if (present & 2) effect.after = take();
    effects.push_back(std::move(effect));
  }
  in.expect_end();
  return effects;
}

Bytes encode(const Record& record) {
  ByteWriter out;
  out.u8(kRecordVersion);
  out.u64(static_cast<std::uint64_t>(record.sequence));
  out.u64(static_cast<std::uint64_t>(record.unix_us));
  for (const auto* text : {&record.actor, &record.verb, &record.resource, &record.request_id, &record.outcome})
    out.text(*text);
  out.blob(encode_effects(record.effects));
  out.text(record.details);
  return out.take();
}

json::object to_json(const Record& record) {
  RecordJson out{record.sequence,   record.unix_us, record.actor, record.verb,   record.resource,
                 record.request_id, record.outcome, {},           record.details};
  for (const auto& e : record.effects) out.effects.push_back({e.resource, hex(e.before), hex(e.after)});
  return falaj::encode(out).as_object();
}

Record record_from_json(const json::value& value) {
  auto in = decode<RecordJson>(value, "read audit record");
  Record record{in.sequence,
                in.unix_us,
                std::move(in.actor),
                std::move(in.verb),
                std::move(in.resource),
                std::move(in.request_id),
                std::move(in.outcome),
                {},
                std::move(in.details)};
  for (auto& e : in.effects) record.effects.push_back({std::move(e.resource), digest(e.before), digest(e.after)});
  return record;
}

SignedHead sign(const Head& head, const crypto::Signer& signer) { return {head, signer.sign(message(head))}; }

bool is_genuine(const SignedHead& head, const crypto::PublicKey& key) {
  return crypto::verify(key, message(head.head), head.signature);
}

json::object to_json(const SignedHead& head) {
  return falaj::encode(HeadJson{head.head.size, head.head.root.hex(), head.head.unix_us, to_hex(head.signature)})
      .as_object();
}

SignedHead head_from_json(const json::value& value) {
  const auto in = decode<HeadJson>(value, "read audit head");
  return {{in.size, Digest::parse(in.root), in.unix_us}, parse_signature(from_hex(in.signature))};
}

crypto::Signature parse_signature(BytesView bytes) { return fixed<64>(bytes, "a signature"); }
crypto::PublicKey parse_public_key(std::string_view hex) { return fixed<32>(from_hex(hex), "a public key"); }

}  // namespace falaj::audit
