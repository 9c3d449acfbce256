// SPDX-License-Identifier: Apache-2.0
#include "api/call.h"

#include <fmt/format.h>

#include "foundation/base/text.h"
#include "foundation/crypto/aead.h"
#include "foundation/crypto/hash.h"

namespace falaj::api {
namespace {

constexpr std::size_t kIdempotencyKeyBytesMax = 128;
constexpr std::int64_t kAnswerLifeUs = std::int64_t{24} * 3600 * 1'000'000;

std::string seal_context(const std::string& actor, const std::string& key) {
  return fmt::format("answer\n{}\n{}", actor, key);
}

}  // namespace

std::span<const sql::Migration> migrations() {
  static constexpr sql::Migration kMigrations[] = {
      {1, "api",
       "CREATE TABLE api_answer (actor TEXT NOT NULL, idempotency_key TEXT NOT NULL, request BYTEA NOT NULL, "
       "answer BYTEA NOT NULL, created_us BIGINT NOT NULL, PRIMARY KEY (actor, idempotency_key));"
       "CREATE INDEX api_answer_created ON api_answer (created_us)"},
  };
  return kMigrations;
}

const iam::Identity& Call::caller() const {
  CHECK(caller_, "a route for anyone asked who calls");
  return *caller_;
}

std::string Call::actor() const { return caller_ ? caller_->principal.str() : "anyone"; }

const std::string& Call::parameter(std::string_view name) const {
  const auto found = parameters_.find(name);
  CHECK(found != parameters_.end(), "a handler asked for a parameter that its path does not have");
  return found->second;
}

iam::Scope Call::scope() const { return iam::Scope::parse(head_.parameter("scope").value_or("/")); }

bool Call::allows(std::string_view action, const iam::Scope& resource) const {
  return caller_ && platform_.directory.allows(*caller_, action, resource);
}
void Call::require(std::string_view action, const iam::Scope& resource) const {
  platform_.directory.require(caller(), action, resource);
}

resource::Authorise authorise(const Call& call) {
  return [&call](std::string_view action, const iam::Scope& scope) -> std::optional<std::string> {
    if (call.allows(action, scope)) return std::nullopt;
    return fmt::format("no role grants {} on {} to {}", action, scope.str(), call.actor());
  };
}

sql::Act Call::act(std::string resource) const {
  return {actor(), std::string(route_.audit.verb()), std::move(resource), head_.request_id};
}

sql::Act Call::denied_act() const {
  const auto verb = route_.audit.verb().empty() ? route_.path : route_.audit.verb();
  return {actor(), std::string(verb), about_.empty() ? head_.path : about_, head_.request_id};
}

std::string Call::idempotency_key() const {
  const auto key = head_.headers.find("Idempotency-Key");
  if (!key) return "";
  if (key->empty() || key->size() > kIdempotencyKeyBytesMax)
    throw Error(Code::invalid,
                fmt::format("Idempotency-Key must have 1 to {} bytes, not {}", kIdempotencyKeyBytesMax, key->size()));
  return std::string(*key);
}

void Call::note_body(std::string_view text) {
  if (head_.headers.find("Idempotency-Key")) body_digest_ = crypto::sha256(as_bytes(text));
}

Digest Call::request_digest() const {
  ByteWriter out;
  out.text(net::name(head_.method));
  out.text(head_.path);
  out.u32(static_cast<std::uint32_t>(head_.query.size()));
  for (const auto& [key, value] : head_.query) {
    out.text(key);
    out.text(value);
  }
  out.raw(body_digest_.view());
  return crypto::sha256(out.bytes());
}

std::optional<json::value> Call::earlier_answer(const std::string& key) {
  const std::string who = actor();
  const Digest request = request_digest();
  return platform_.database.read([&](sql::Reader& reader) {
    return reader.first("SELECT request, answer FROM api_answer WHERE actor = ? AND idempotency_key = ?", {who, key},
                        [&](const sql::Row& row) {
                          if (row.digest(0) != request)
                            throw Error(Code::conflict, "this Idempotency-Key was used for another request");
                          return parse_json(as_text(
                              crypto::open(platform_.answer_key, as_bytes(seal_context(who, key)), row.bytes(1))));
                        });
  });
}

void Call::remember_answer(sql::Writer& writer, const std::string& key, const json::value& answer) {
  const std::string who = actor();
  const Digest request = request_digest();
  const Bytes sealed =
      crypto::seal(platform_.answer_key, as_bytes(seal_context(who, key)), as_bytes(json::serialize(answer)));
  writer.execute("INSERT INTO api_answer (actor, idempotency_key, request, answer, created_us) VALUES (?, ?, ?, ?, ?)",
                 {who, key, request.view(), BytesView(sealed), platform_.clock.wall().count()});
}

std::int64_t forget_old_answers(Platform& platform) {
  const std::int64_t before = platform.clock.wall().count() - kAnswerLifeUs;
  const bool any = platform.database.read([&](sql::Reader& reader) {
    return reader
        .first("SELECT 1 FROM api_answer WHERE created_us < ? LIMIT 1", {before}, [](const sql::Row&) { return true; })
        .has_value();
  });
  if (!any) return 0;
  return platform.database.write({"system/upkeep", "answer.forget", "/", ""}, [&](sql::Writer& writer) {
    return writer.execute("DELETE FROM api_answer WHERE created_us < ?", {before});
  });
}

}  // namespace falaj::api
