// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/s3_backend.h"

#include <curl/curl.h>

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "storage/blob/s3_request.h"
#include "storage/blob/s3_xml.h"

namespace falaj::blob {

namespace {

constexpr std::size_t kGetBytesMax = std::size_t{1} << 30;
constexpr std::size_t kPageMax = 1000;  // S3's own

[[noreturn]] void unexpected(const char* doing, const S3Reply& reply) {
  const std::string code = element_text(as_text(reply.body), "Code").value_or("no code");
  throw Error(Code::unavailable, fmt::format("{}: S3 answered {} ({})", doing, reply.status, code.substr(0, 60)));
}

bool is_missing_key(const S3Reply& reply) {
  return reply.status == 404 && as_text(reply.body).find("NoSuchBucket") == std::string_view::npos;
}

std::string header(const S3Reply& reply, const std::string& name) {
  const auto it = reply.headers.find(name);
  return it == reply.headers.end() ? "" : it->second;
}

}  // namespace

struct S3Backend::Rep {
  S3Client client;

  std::string key_of(const std::string& name) const { return client.options().prefix + name; }

  void put_whole(const std::string& key, BytesView bytes) {
    const S3Reply reply = client.send({.method = "PUT", .key = key, .body = bytes});
    if (reply.status != 200) unexpected("put a blob", reply);
  }

  // Parts of a large one; the server joins them at the end, so nobody ever sees half of it.
  void put_in_parts(const std::string& key, BytesView bytes) {
    const S3Reply begun = client.send({.method = "POST", .key = key, .query = {{"uploads", ""}}});
    const auto upload = element_text(as_text(begun.body), "UploadId");
    if (begun.status != 200 || !upload) unexpected("begin a large blob", begun);
    try {
      std::string parts;
      for (int number = 1; !bytes.empty(); ++number) {
        const auto part = bytes.first(std::min(bytes.size(), client.options().part_bytes));
        bytes = bytes.subspan(part.size());
        const S3Reply reply = client.send({.method = "PUT",
                                           .key = key,
                                           .query = {{"partNumber", std::to_string(number)}, {"uploadId", *upload}},
                                           .body = part});
        if (reply.status != 200) unexpected("put a part of a large blob", reply);
        parts += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", number, header(reply, "etag"));
      }
      const std::string all = "<CompleteMultipartUpload>" + parts + "</CompleteMultipartUpload>";
      const S3Reply reply =
          client.send({.method = "POST", .key = key, .query = {{"uploadId", *upload}}, .body = as_bytes(all)});
      // A 200 may still carry an error: the server begins to answer before it has joined the parts.
      const bool joined = as_text(reply.body).find("<CompleteMultipartUploadResult") != std::string_view::npos;
      if (reply.status != 200 || !joined) unexpected("finish a large blob", reply);
    } catch (const Error&) {
      abandon(key, *upload);
      throw;
    }
  }

  void abandon(const std::string& key, const std::string& upload) {
    try {
      client.send({.method = "DELETE", .key = key, .query = {{"uploadId", upload}}});
    } catch (const Error&) {
      // The bucket's own rule for unfinished uploads will; what failed first is what matters.
    }
  }
};

S3Backend::S3Backend(S3Options options, const sys::Clock& clock, sys::Random& random)
    : rep_(new Rep{{std::move(options), clock, random}}) {}
S3Backend::~S3Backend() = default;

void S3Backend::make_bucket() {
  const S3Reply reply = rep_->client.send({.method = "PUT"});
  if (reply.status != 200 && reply.status != 409) unexpected("make a bucket", reply);
}

void S3Backend::put(const std::string& name, BytesView bytes, Durable, Existing existing) {
  check_blob_name(name);
  // Not atomic: two who put at once may both write. Whoever keeps what is there puts the same content.
  if (existing == Existing::keep && stat(name)) return;
  if (bytes.size() > rep_->client.options().multipart_bytes) {
    rep_->put_in_parts(rep_->key_of(name), bytes);
  } else {
    rep_->put_whole(rep_->key_of(name), bytes);
  }
}

Bytes S3Backend::get(const std::string& name, std::uint64_t offset, std::uint64_t length) {
  check_blob_name(name);
  S3Request request{.key = rep_->key_of(name)};
  const bool whole = offset == 0 && length == kToTheEnd;
  const std::uint64_t wanted = std::max<std::uint64_t>(length, 1);  // a range is never empty
  const std::uint64_t last = wanted > kToTheEnd - offset ? kToTheEnd : offset + wanted - 1;
  if (!whole) request.range = fmt::format("{}-{}", offset, last == kToTheEnd ? "" : std::to_string(last));
  request.reply_bytes_max =
      static_cast<std::size_t>(std::min<std::uint64_t>(kGetBytesMax, std::max<std::uint64_t>(wanted, 65'536)));
  S3Reply reply = rep_->client.send(request);
  if (is_missing_key(reply)) throw Error(Code::not_found, "no such blob");
  if (reply.status == 416) return {};  // beyond the end
  if (reply.status != (whole ? 200 : 206)) unexpected("get a blob", reply);
  if (reply.body.size() > length) reply.body.resize(length);
  return std::move(reply.body);
}

std::optional<BlobInfo> S3Backend::stat(const std::string& name) {
  check_blob_name(name);
  const S3Reply reply = rep_->client.send({.method = "HEAD", .key = rep_->key_of(name)});
  if (reply.status == 404) return std::nullopt;
  if (reply.status != 200) unexpected("look at a blob", reply);
  const auto bytes = parse_int(header(reply, "content-length"));
  const std::int64_t modified = curl_getdate(header(reply, "last-modified").c_str(), nullptr);
  if (!bytes || modified < 0) unexpected("look at a blob", reply);
  return BlobInfo{name, static_cast<std::uint64_t>(*bytes), modified * 1'000'000};
}

void S3Backend::remove(const std::string& name) {
  check_blob_name(name);
  const S3Reply reply = rep_->client.send({.method = "DELETE", .key = rep_->key_of(name)});
  if (reply.status != 204 && reply.status != 200 && !is_missing_key(reply)) unexpected("remove a blob", reply);
}

std::vector<BlobInfo> S3Backend::list(const std::string& prefix, const std::string& after, std::size_t limit) {
  check_blob_prefix(prefix);
  const std::string& own = rep_->client.options().prefix;
  std::vector<BlobInfo> found;
  for (std::string from = after; found.size() < limit;) {
    S3Request request;
    request.query = {{"list-type", "2"},
                     {"max-keys", std::to_string(std::min(limit - found.size(), kPageMax))},
                     {"prefix", own + prefix}};
    if (!from.empty()) request.query.emplace_back("start-after", own + from);
    const S3Reply reply = rep_->client.send(request);
    if (reply.status != 200) unexpected("list blobs", reply);
    S3Listing page = parse_listing(as_text(reply.body));
    for (auto& blob : page.blobs) {
      if (!blob.name.starts_with(own)) continue;
      blob.name.erase(0, own.size());
      from = blob.name;
      found.push_back(std::move(blob));
    }
    if (!page.truncated || page.blobs.empty()) break;
  }
  return found;
}

}  // namespace falaj::blob
