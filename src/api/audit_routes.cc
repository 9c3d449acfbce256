// SPDX-License-Identifier: Apache-2.0
// the audit log

#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "foundation/base/text.h"
#include "governance/audit/verify.h"

namespace falaj::api {
namespace {

struct AuditQuery {
  std::string actor, verb, resource, outcome, cursor;
  std::int64_t from_us = 0, limit = 50;
  std::optional<std::int64_t> to_us;
};
struct RecordPage {
  std::vector<json::value> items;
  std::optional<std::string> next;
};
struct VerifyRequest {
  std::optional<json::value> head;
};
struct Verified {
  bool intact = false;
  std::int64_t records = 0;
  std::optional<std::int64_t> first_bad;
  std::optional<std::string> problem;
  std::string root;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<AuditQuery> {
  static constexpr std::string_view name = "AuditQuery";
  static Fields fields() {
    return {field("actor", &AuditQuery::actor, "Only of this actor."),
            field("verb", &AuditQuery::verb, "Only these acts; * stands for anything."),
            field("resource", &AuditQuery::resource, "Only at and below this resource."),
            field("outcome", &AuditQuery::outcome, "ok or denied."),
            field("from_us", &AuditQuery::from_us, "From this time on, in microseconds since 1970."),
            field("to_us", &AuditQuery::to_us, "Before this time."),
            field("cursor", &AuditQuery::cursor, "From the page before."),
            field("limit", &AuditQuery::limit, "Most records in a page.").range(1, 1000)};
  }
};
template <>
struct Shape<RecordPage> {
  static constexpr std::string_view name = "RecordPage";
  static Fields fields() {
    return {field("items", &RecordPage::items, "Records, newest first."),
            field("next", &RecordPage::next, "Give it as 'cursor' to get older ones; absent at the end.")};
  }
};
template <>
struct Shape<VerifyRequest> {
  static constexpr std::string_view name = "VerifyRequest";
  static Fields fields() {
    return {field("head", &VerifyRequest::head, "A head saved earlier: also prove that the log continues it.")};
  }
};
template <>
struct Shape<Verified> {
  static constexpr std::string_view name = "Verified";
  static Fields fields() {
    return {field("intact", &Verified::intact, "Whether everything is as it was written."),
            field("records", &Verified::records, "Records looked at."),
            field("first_bad", &Verified::first_bad, "The first record that was altered or is missing."),
            field("problem", &Verified::problem, "What is wrong with it."),
            field("root", &Verified::root, "Of the tree, as recomputed.")};
  }
};
}  // namespace falaj

namespace falaj::api {
namespace {

audit::Filter filter_of(const AuditQuery& in) {
  return {in.actor, in.verb, in.resource, in.outcome, in.from_us, in.to_us};
}

std::optional<std::int64_t> cursor_of(const AuditQuery& in) {
  if (in.cursor.empty()) return std::nullopt;
  const auto at = parse_int(in.cursor);
  if (!at) throw Error(Code::invalid, "cursor: not one that this route gave");
  return at;
}

bool wanted(const AuditQuery& in, const json::object& record) {
  const auto text = [&](const char* key) -> std::string_view { return record.at(key).as_string(); };
  const std::int64_t at = record.at("unix_us").to_number<std::int64_t>();
  return (in.actor.empty() || in.actor == text("actor")) && (in.verb.empty() || matches_glob(in.verb, text("verb"))) &&
         text("resource").starts_with(in.resource) && (in.outcome.empty() || in.outcome == text("outcome")) &&
         at >= in.from_us && (!in.to_us || at < *in.to_us);
}

// A thousand records at a time, so that an export of any length takes little memory.
net::BodySource export_source(Platform& platform, AuditQuery in) {
  constexpr std::int64_t kRecords = 1000;
  return [&platform, in = std::move(in), at = std::int64_t{0}, end = platform.audit.head().head.size]() mutable {
    Bytes out;
    while (out.empty() && at < end) {
      const std::int64_t until = std::min(at + kRecords, end);
      platform.audit.export_jsonl(at, until, [&](std::string_view line) {
        if (!wanted(in, parse_json(line).as_object())) return;
        const auto bytes = as_bytes(line);
        out.insert(out.end(), bytes.begin(), bytes.end());
        if (!line.ends_with('\n')) out.push_back(std::byte{'\n'});
      });
      at = until;
    }
    return out;
  };
}

}  // namespace

void add_audit_routes(Routes& routes, Platform& platform) {
  routes.add<AuditQuery, RecordPage>({Method::get, "/v1/audit", Permission::of("audit.read", "/"), BodyLimit::none(),
                                      Audit::read(), Place::worker, "Audit records, newest first."},
                                     [&platform](Call&, const AuditQuery& in) {
                                       const auto page = platform.audit.log(filter_of(in), cursor_of(in),
                                                                            static_cast<std::size_t>(in.limit));
                                       RecordPage out;
                                       for (const auto& record : page.records)
                                         out.items.push_back(audit::to_json(record));
                                       if (page.older) out.next = std::to_string(*page.older);
                                       return out;
                                     });
  routes.add<VerifyRequest, Verified>(
      {Method::post, "/v1/audit/verify", Permission::of("audit.verify", "/"), BodyLimit{64 * 1024}, Audit::read(),
       Place::worker, "Recompute every record, the tree and its signed heads; names the first altered record."},
      [&platform](Call&, const VerifyRequest& in) {
        audit::VerifyOptions options;
        if (in.head) {
          json::value head = *in.head;  // as /v1/audit/head gives it; whose key counts is decided here
          if (auto* object = head.if_object()) object->erase("public_key");
          options.earlier = audit::head_from_json(head);
        }
        const auto verdict = audit::verify(platform.database, platform.audit.public_key(), options);
        return Verified{verdict.intact, verdict.records, verdict.record,
                        verdict.why.empty() ? std::nullopt : std::optional(verdict.why),
                        verdict.head ? verdict.head->head.root.hex() : ""};
      });
  routes.add<Nothing, json::value>({Method::get, "/v1/audit/head", Permission::of("audit.read", "/"), BodyLimit::none(),
                                    Audit::read(), Place::worker, "The signed head of the log."},
                                   [&platform](Call&, const Nothing&) {
                                     auto head = audit::to_json(platform.audit.head());
                                     head["public_key"] = to_hex(platform.audit.public_key());
                                     return json::value(std::move(head));
                                   });
  routes.add<Nothing, json::value>(
      {Method::get, "/v1/audit/{record}/proof", Permission::of("audit.read", "/"), BodyLimit::none(), Audit::read(),
       Place::worker, "A proof, checkable without this server, that a record is in the log."},
      [&platform](Call& call, const Nothing&) {
        const auto sequence = parse_int(call.parameter("record"));
        if (!sequence) throw Error(Code::invalid, fmt::format("record: a number, not '{}'", call.parameter("record")));
        return json::value(platform.audit.prove(*sequence));
      });
  routes.add_stream<AuditQuery>(
      {Method::get, "/v1/audit/export", Permission::of("audit.export", "/"), BodyLimit::none(), Audit::read(),
       Place::worker, "Records as JSON lines, oldest first."},
      "application/jsonl", [&platform](Call&, const AuditQuery& in, net::Request&) {
        net::Response response;
        response.headers.add("Content-Type", "application/jsonl");
        response.body = net::StreamBody{export_source(platform, in), std::nullopt};
        return response;
      });
}

}  // namespace falaj::api
