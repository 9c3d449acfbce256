// SPDX-License-Identifier: Apache-2.0
// blobs and keys

#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "api/page.h"

namespace falaj::api {
namespace {

struct PutQuery {
  std::string name;
  std::optional<std::string> zone;
};
struct BatchQuery {
  std::optional<std::string> zone;
};
struct BlobQuery {
  std::string name;
};
struct BlobListQuery {
  std::string prefix, cursor;
  std::int64_t limit = kPageItems;
};
struct BlobRow {
  std::string name, address, zone, content, created_by;
  std::int64_t bytes = 0, stored_bytes = 0, created_us = 0;
  std::vector<std::string> pins;
};
struct BatchStored {
  std::int64_t files = 0, bytes = 0, stored_bytes = 0;
};
struct PinRequest {
  std::string name, reason;
};
struct Collected {
  std::int64_t objects = 0, bytes = 0, kept = 0;
  std::vector<std::string> missing;
};
struct Scrubbed {
  std::int64_t objects = 0, bytes = 0;
  std::vector<std::string> damaged;
};
struct KeyRow {
  std::string level, zone, tenant, state;
  std::int64_t version = 0;
};
struct RotateRequest {
  std::string level, zone, tenant;
};
struct RotatedKey {
  std::string level;
  std::int64_t version = 0, rewrapped = 0;
};

constexpr std::string_view kKeyLevels[] = {"root", "zone", "tenant"};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<PutQuery> {
  static constexpr std::string_view name = "PutQuery";
  static Fields fields() {
    return {field("name", &PutQuery::name, "The name to give it.").required().length(1, vault::kNameBytesMax),
            field("zone", &PutQuery::zone, "Residency zone; the project's when absent.")};
  }
};
template <>
struct Shape<BatchQuery> {
  static constexpr std::string_view name = "BatchQuery";
  static Fields fields() { return {field("zone", &BatchQuery::zone, "Residency zone; the project's when absent.")}; }
};
template <>
struct Shape<BlobQuery> {
  static constexpr std::string_view name = "BlobQuery";
  static Fields fields() {
    return {field("name", &BlobQuery::name, "Its name.").required().length(1, vault::kNameBytesMax)};
  }
};
template <>
struct Shape<BlobListQuery> {
  static constexpr std::string_view name = "BlobListQuery";
  static Fields fields() {
    return {field("prefix", &BlobListQuery::prefix, "Only names that begin so."),
            field("cursor", &BlobListQuery::cursor, "From the page before."),
            field("limit", &BlobListQuery::limit, "Most items in a page.").range(1, kPageItemsMax)};
  }
};
template <>
struct Shape<BlobRow> {
  static constexpr std::string_view name = "Blob";
  static Fields fields() {
    return {field("name", &BlobRow::name, "Its name in the project."),
            field("address", &BlobRow::address, "Of its content, under the tenant's key."),
            field("zone", &BlobRow::zone, "Where its bytes are."),
            field("bytes", &BlobRow::bytes, "Its length."),
            field("stored_bytes", &BlobRow::stored_bytes, "What storing it took just now; 0 for known content."),
            field("content", &BlobRow::content, "Digest of the content, the same for every tenant."),
            field("created_us", &BlobRow::created_us, "When."),
            field("created_by", &BlobRow::created_by, "By whom."),
            field("pins", &BlobRow::pins, "Reasons for which it is kept.")};
  }
};
template <>
struct Shape<BatchStored> {
  [[maybe_unused]] static constexpr std::string_view name = "BatchStored";
  static Fields fields() {
    return {field("files", &BatchStored::files, "How many."), field("bytes", &BatchStored::bytes, "In all."),
            field("stored_bytes", &BatchStored::stored_bytes, "What storing them took.")};
  }
};
template <>
struct Shape<PinRequest> {
  static constexpr std::string_view name = "PinRequest";
  static Fields fields() {
    return {field("name", &PinRequest::name, "Its name; to unpin also its address.")
                .required()
                .length(1, vault::kNameBytesMax),
            field("reason", &PinRequest::reason, "Why it is kept.").required().length(1, 256)};
  }
};
template <>
struct Shape<Collected> {
  static constexpr std::string_view name = "Collected";
  static Fields fields() {
    return {field("objects", &Collected::objects, "Deleted."), field("bytes", &Collected::bytes, "Reclaimed."),
            field("kept", &Collected::kept, "Objects that something names or pins."),
            field("missing", &Collected::missing, "Addresses that are named but not there.")};
  }
};
template <>
struct Shape<Scrubbed> {
  static constexpr std::string_view name = "Scrubbed";
  static Fields fields() {
    return {field("objects", &Scrubbed::objects, "Stored blocks read."), field("bytes", &Scrubbed::bytes, "Read."),
            field("damaged", &Scrubbed::damaged, "Blocks that are not what was written.")};
  }
};
template <>
struct Shape<KeyRow> {
  static constexpr std::string_view name = "Key";
  static Fields fields() {
    return {field("level", &KeyRow::level, "zone, tenant or address."), field("zone", &KeyRow::zone, "Its zone."),
            field("tenant", &KeyRow::tenant, "Its tenant."), field("version", &KeyRow::version, "Its version."),
            field("state", &KeyRow::state, "active, retired or destroyed.")};
  }
};
template <>
struct Shape<RotateRequest> {
  static constexpr std::string_view name = "RotateRequest";
  static Fields fields() {
    return {field("level", &RotateRequest::level, "Which key.").required().one_of(kKeyLevels),
            field("zone", &RotateRequest::zone, "For zone and tenant."),
            field("tenant", &RotateRequest::tenant, "For tenant.")};
  }
};
template <>
struct Shape<RotatedKey> {
  static constexpr std::string_view name = "RotatedKey";
  static Fields fields() {
    return {field("level", &RotatedKey::level, "Which key."),
            field("version", &RotatedKey::version, "Of the new key; 0 for the root."),
            field("rewrapped", &RotatedKey::rewrapped, "Keys below it that were wrapped again.")};
  }
};
}  // namespace falaj

namespace falaj::api {
namespace {

constexpr BodyLimit kBlobBody{std::uint64_t{1} << 44};

vault::Where where_of(const iam::Scope& scope) {
  if (scope.project().empty() || !scope.kind().empty())
    throw Error(Code::invalid, fmt::format("scope: must be a project, such as /t/acme/p/flights, not {}", scope.str()));
  return {TenantName::parse(scope.tenant()), ProjectName::parse(scope.project())};
}

vault::Where where_of(const Call& call) { return where_of(call.scope()); }

iam::Scope scope_of_blob(const vault::Where& where, std::string_view name) {
  return iam::Scope::of(where.tenant.str(), where.project.str(), "blob", name);
}

// Asked of the one blob that the query names, so that rules about some names of a project hold.
Permission on_one_blob(std::string_view action) {
  return Permission::by(action, [action](const PathParameters&, const net::Head& head, const iam::Identity&) {
    const auto where = where_of(iam::Scope::parse(head.parameter("scope").value_or("/")));
    const auto name = head.parameter("name");
    if (!name) throw Error(Code::invalid, "name: required");
    return Permission::Needed{std::string(action), scope_of_blob(where, *name)};
  });
}

// Names that begin with '@' are files of runs and models, which have their own calls, permissions and rules.
void refuse_owned(std::string_view name) {
  if (name.starts_with('@'))
    throw Error(Code::invalid, fmt::format("name: those beginning with '@' belong to runs and models: '{}'", name));
}

std::optional<ZoneName> zone_of(const std::optional<std::string>& text) {
  return text ? std::optional(ZoneName::parse(*text)) : std::nullopt;
}

BlobRow row_of_blob(const vault::Entry& e) {
  return {e.name,
          e.address.hex(),
          e.zone.str(),
          e.content.hex(),
          e.created_by,
          static_cast<std::int64_t>(e.bytes),
          static_cast<std::int64_t>(e.new_bytes),
          e.created_us,
          e.pins};
}

// Reads a batch: for each file its name (u32 length, bytes), its size (u64), its bytes.
class BatchReader {
 public:
  explicit BatchReader(net::BodyReader& body) : body_(body) {}

  std::optional<vault::NewFile> next() {
    while (left_ > 0) skip();
    std::byte first[4];
    const std::size_t got = body_.read(first);
    if (got == 0) return std::nullopt;
    read_exactly(std::span(first).subspan(got));
    const std::uint32_t name_bytes = ByteReader(first).u32();
    if (name_bytes == 0 || name_bytes > vault::kNameBytesMax)
      throw Error(Code::invalid,
                  fmt::format("batch: a name has 1 to {} bytes, not {}", vault::kNameBytesMax, name_bytes));
    Bytes head(name_bytes + 8);
    read_exactly(head);
    vault::NewFile file;
    file.name = as_text(BytesView(head).first(name_bytes));
    file.bytes = left_ = ByteReader(BytesView(head).subspan(name_bytes)).u64();
    file.source = [this](std::span<std::byte> out) -> std::size_t {
      if (left_ == 0) return 0;
      const std::size_t n = body_.read(out.first(std::min<std::uint64_t>(out.size(), left_)));
      if (n == 0) throw Error(Code::invalid, "batch: ends inside of a file");
      left_ -= n;
      return n;
    };
    return file;
  }

 private:
  void read_exactly(std::span<std::byte> out) {
    while (!out.empty()) {
      const std::size_t n = body_.read(out);
      if (n == 0) throw Error(Code::invalid, "batch: ends inside of a name");
      out = out.subspan(n);
    }
  }
  void skip() {
    std::byte unwanted[4096];
    const std::size_t n = body_.read(std::span(unwanted).first(std::min<std::uint64_t>(sizeof unwanted, left_)));
    if (n == 0) throw Error(Code::invalid, "batch: ends inside of a file");
    left_ -= n;
  }
  net::BodyReader& body_;
  std::uint64_t left_ = 0;
};

net::Response send_blob(Platform& platform, const Call& call, const std::string& name) {
  const auto where = where_of(call);
  const auto entry = platform.vault.info(where, name);
  const auto range = net::apply_range(call.head(), entry.bytes);
  net::Response response;
  response.status = range.status;
  for (const auto [key, value] : range.headers) response.headers.add(key, value);
  response.headers.add("Content-Type", "application/octet-stream");
  response.headers.add("ETag", fmt::format("\"{}\"", entry.address.hex()));
  if (range.status == 416) return response;
  std::shared_ptr<blob::ObjectReader> reader = platform.vault.open(where, entry, range.offset, range.length);
  response.body = net::StreamBody{[reader] { return reader->next(); }, range.length};
  return response;
}

void add_storing(Routes& routes, Platform& platform) {
  routes.add_stream<PutQuery>(
      {Method::post, "/v1/blobs", on_one_blob("blob.create"), kBlobBody, Audit::verb("blob.create"), Place::worker,
       "Store the body under a name. Durable when it answers."},
      "", [&platform](Call& call, const PutQuery& in, net::Request& request) {
        refuse_owned(in.name);
        const auto where = where_of(call);
        const auto entry = platform.vault.put(
            where, zone_of(in.zone), in.name, [&](std::span<std::byte> out) { return request.body.read(out); },
            call.act(scope_of_blob(where, in.name).str()));
        return detail::json_response(encode(row_of_blob(entry)));
      });
  routes.add_stream<BatchQuery>(
      {Method::post, "/v1/blobs/batch", Permission::of("blob.create", "{scope}"), kBlobBody, Audit::verb("blob.create"),
       Place::worker,
       "Store many files with one durable answer: for each its name (u32 length, bytes), its size (u64), its bytes; "
       "little-endian."},
      "", [&platform](Call& call, const BatchQuery& in, net::Request& request) {
        const auto where = where_of(call);
        BatchReader reader(request.body);
        const auto next = [&] {
          auto file = reader.next();
          if (file) refuse_owned(file->name);
          if (file) call.require("blob.create", scope_of_blob(where, file->name));
          return file;
        };
        const auto batch = platform.vault.put_many(where, zone_of(in.zone), next, call.act(where.scope().str()));
        return detail::json_response(
            encode(BatchStored{static_cast<std::int64_t>(batch.files), static_cast<std::int64_t>(batch.bytes),
                               static_cast<std::int64_t>(batch.new_bytes)}));
      });
  routes.add<BlobQuery, Nothing>(
      {Method::del, "/v1/blobs", on_one_blob("blob.delete"), BodyLimit::none(), Audit::verb("blob.delete"),
       Place::worker, "Forget a name; its bytes go at the next collection unless something else keeps them."},
      [&platform](Call& call, const BlobQuery& in) {
        refuse_owned(in.name);
        const auto where = where_of(call);
        platform.vault.remove(where, in.name, call.act(scope_of_blob(where, in.name).str()));
      });
}

void add_blob_reading(Routes& routes, Platform& platform) {
  routes.add<BlobListQuery, Page<BlobRow>>(
      {Method::get, "/v1/blobs", Permission::of("blob.list", "{scope}"), BodyLimit::none(), Audit::read(),
       Place::worker, "Names in a project, in order."},
      [&platform](Call& call, const BlobListQuery& in) {
        Page<BlobRow> page;
        for (const auto& entry :
             platform.vault.list(where_of(call), in.prefix, in.cursor, static_cast<std::size_t>(in.limit)))
          page.items.push_back(row_of_blob(entry));
        if (static_cast<std::int64_t>(page.items.size()) == in.limit) page.next = page.items.back().name;
        return page;
      });
  routes.add<BlobQuery, BlobRow>({Method::get, "/v1/blobs/info", on_one_blob("blob.read"), BodyLimit::none(),
                                  Audit::read(), Place::worker, "What is known of a name."},
                                 [&platform](Call& call, const BlobQuery& in) {
                                   return row_of_blob(platform.vault.info(where_of(call), in.name));
                                 });
  routes.add_stream<BlobQuery>(
      {Method::get, "/v1/blobs/content", on_one_blob("blob.read"), BodyLimit::none(), Audit::read(), Place::worker,
       "The bytes of a name, verified as they are sent; Range is understood."},
      "application/octet-stream",
      [&platform](Call& call, const BlobQuery& in, net::Request&) { return send_blob(platform, call, in.name); });
}

void add_keeping(Routes& routes, Platform& platform) {
  routes.add<PinRequest, Nothing>(
      {Method::post, "/v1/blobs/pin", Permission::of("blob.pin", "{scope}"), kSmallBody, Audit::verb("blob.pin"),
       Place::worker, "Keep the bytes of a name even when the name is removed."},
      [&platform](Call& call, const PinRequest& in) {
        const auto where = where_of(call);
        call.require("blob.pin", scope_of_blob(where, in.name));
        platform.vault.pin(where, in.name, in.reason, call.act(where.scope().str()));
      });
  routes.add<PinRequest, Nothing>({Method::post, "/v1/blobs/unpin", Permission::of("blob.pin", "{scope}"), kSmallBody,
                                   Audit::verb("blob.unpin"), Place::worker, "Undo a pin."},
                                  [&platform](Call& call, const PinRequest& in) {
                                    const auto where = where_of(call);
                                    call.require("blob.pin", scope_of_blob(where, in.name));
                                    platform.vault.unpin(where, in.name, in.reason, call.act(where.scope().str()));
                                  });
  routes.add<Nothing, Collected>(
      {Method::post, "/v1/blobs/gc", Permission::of("blob.gc", "/"), kSmallBody, Audit::verb("blob.gc"), Place::worker,
       "Delete bytes that nothing names or pins, once older than the grace time."},
      [&platform](Call& call, const Nothing&) {
        const auto r = platform.vault.collect(call.act("/"));
        return Collected{static_cast<std::int64_t>(r.objects), static_cast<std::int64_t>(r.bytes),
                         static_cast<std::int64_t>(r.kept), r.missing};
      });
  routes.add<Nothing, Scrubbed>(
      {Method::post, "/v1/blobs/scrub", Permission::of("blob.scrub", "/"), kSmallBody, Audit::read(), Place::worker,
       "Read everything stored and verify it."},
      [&platform](Call&, const Nothing&) {
        const auto r = platform.vault.scrub();
        return Scrubbed{static_cast<std::int64_t>(r.objects), static_cast<std::int64_t>(r.bytes), r.damaged};
      });
}

RotatedKey rotate(Platform& platform, Call& call, const RotateRequest& in) {
  vault::Rotated rotated;
  if (in.level == "root") {
    rotated = platform.keys.rotate_root(call.act("/"));
  } else if (in.level == "zone") {
    rotated = platform.keys.rotate_zone(ZoneName::parse(in.zone), call.act("/zone/" + in.zone));
  } else {
    rotated = platform.keys.rotate_tenant(ZoneName::parse(in.zone), TenantName::parse(in.tenant),
                                          call.act("/t/" + in.tenant));
  }
  return {in.level, static_cast<std::int64_t>(rotated.version), rotated.rewrapped};
}

void add_keys(Routes& routes, Platform& platform) {
  routes.add<Nothing, Page<KeyRow>>(
      {Method::get, "/v1/keys", Permission::of("key.list", "/"), BodyLimit::none(), Audit::read(), Place::here,
       "Keys and their versions, never the keys."},
      [&platform](Call&, const Nothing&) {
        Page<KeyRow> page;
        for (const auto& k : platform.keys.list())
          page.items.push_back({k.level, k.zone, k.tenant, k.state, std::int64_t{k.version}});
        return page;
      });
  routes.add<RotateRequest, RotatedKey>(
      {Method::post, "/v1/keys/rotate", Permission::of("key.rotate", "/"), kSmallBody, Audit::verb("key.rotate"),
       Place::worker, "Make a new key at a level; what it protects stays readable and is not rewritten."},
      [&platform](Call& call, const RotateRequest& in) { return rotate(platform, call, in); });
}

}  // namespace

void add_blob_routes(Routes& routes, Platform& platform) {
  add_storing(routes, platform);
  add_blob_reading(routes, platform);
  add_keeping(routes, platform);
  add_keys(routes, platform);
}

}  // namespace falaj::api
