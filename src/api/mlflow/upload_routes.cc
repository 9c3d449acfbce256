// SPDX-License-Identifier: Apache-2.0
// Files in parts, and addresses to read files from. Clients put parts to, and read ranges from, addresses that we hand
// out, and send no credential there: those addresses are signed (api/link.h).
#include <fmt/format.h>

#include "api/link.h"
#include "api/mlflow/messages.h"
#include "api/mlflow/routes.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/track/uploads.h"

namespace falaj::api::mlflow {
namespace {

constexpr std::string_view kApi = "/api/2.0/mlflow-artifacts";
// A client gets the addresses of all parts at once and cannot ask for new ones: they hold for a slow upload.
constexpr std::int64_t kPartLinkUs = std::int64_t{6} * 3600 * 1'000'000;
constexpr std::int64_t kReadLinkUs = std::int64_t{15} * 60 * 1'000'000;  // clients get a new one when it is too old
static_assert(kPartLinkUs < track::kUploadLifeUs);

struct CreateIn {
  std::string path;
  std::int64_t num_parts = 0;
};
struct PartIn {
  std::int64_t part_number = 0;
  std::string etag, url;
};
struct CompleteIn {
  std::string path, upload_id;
  std::vector<PartIn> parts;
};
struct AbortIn {
  std::string path, upload_id;
};

}  // namespace
}  // namespace falaj::api::mlflow

namespace falaj {
using namespace api::mlflow;

template <>
struct Shape<CreateIn> {
  static constexpr std::string_view name = "MlflowCreateUpload";
  static Fields fields() {
    return {field("path", &CreateIn::path, "The file; only its last element counts.").required(),
            field("num_parts", &CreateIn::num_parts, "How many parts it has.").required()};
  }
};
template <>
struct Shape<PartIn> {
  static constexpr std::string_view name = "MlflowUploadedPart";
  static Fields fields() {
    return {field("part_number", &PartIn::part_number, "Its number, from 1.").required(),
            field("etag", &PartIn::etag, "What putting it answered.").required(),
            field("url", &PartIn::url, "Where it was put; not looked at.")};
  }
};
template <>
struct Shape<CompleteIn> {
  static constexpr std::string_view name = "MlflowCompleteUpload";
  static Fields fields() {
    return {field("path", &CompleteIn::path, "The file, as the upload was created with.").required(),
            field("upload_id", &CompleteIn::upload_id, "Which upload.").required(),
            field("parts", &CompleteIn::parts, "All of them, in order.").required()};
  }
};
template <>
struct Shape<AbortIn> {
  static constexpr std::string_view name = "MlflowAbortUpload";
  static Fields fields() {
    return {field("path", &AbortIn::path, "The file, as the upload was created with.").required(),
            field("upload_id", &AbortIn::upload_id, "Which upload.").required()};
  }
};
}  // namespace falaj

namespace falaj::api::mlflow {
namespace {

using track::Where;

track::Uploads uploads_of(Platform& platform) { return {platform.database, platform.vault, platform.clock}; }

Permission linked_in_project(std::string_view action) {
  return Permission::by_link(
      action,
      [action](const PathParameters& parameters, const net::Head&, const iam::Identity& caller) -> Permission::Needed {
        return {std::string(action), where_of(parameters, caller).scope()};
      });
}

// By the name that this client called us by: the server answers to no name it does not know.
std::string base_of(const Platform& platform, const Call& call) {
  const auto scheme = platform.public_url.substr(0, platform.public_url.find("://"));
  const auto host = call.head().headers.find("Host");
  return host ? fmt::format("{}://{}", scheme, *host) : platform.public_url;
}

std::string path_in(const Where& where, std::string_view rest) {
  return fmt::format("/mlflow/{}/{}{}{}", where.tenant.str(), where.project.str(), kApi, rest);
}

// The directory of the address and the last element of the client's own path, on whichever system that is.
Target target_of_upload(Platform& platform, const Call& call, const Where& where, const std::string& local_path) {
  const auto slash = local_path.find_last_of("/\\");
  const auto file = slash == std::string::npos ? local_path : local_path.substr(slash + 1);
  if (file.empty()) throw Error(Code::invalid, "path: names no file");
  return target_of(platform, where, fmt::format("{}/{}", call.parameter("path"), file), true);
}

net::Response begin_upload(Platform& platform, Call& call, net::Request& request) {
  const auto in = read<CreateIn>(call, request, Method::post);
  const auto where = where_of(call.parameters(), call.caller());
  const auto target = target_of_upload(platform, call, where, in.path);
  if (call.caller().workload) {
    // Nobody keeps a job's credential, so nothing can be signed in its name. Clients then send the file as one.
    auto response = text_response(Text()
                                      .open('{')
                                      .key("error_code")
                                      .string("NOT_IMPLEMENTED")
                                      .key("message")
                                      .string("Multipart upload is not supported for the current artifact repository")
                                      .close('}')
                                      .take());
    response.status = 501;
    return response;
  }
  const auto id =
      uploads_of(platform).begin(where, target.root, in.num_parts, platform.random, call.act(target.resource));
  const auto base = base_of(platform, call);
  const auto expires = platform.clock.wall().count() + kPartLinkUs;
  Text out;
  out.open('{').key("upload_id").string(id).key("credentials").open('[');
  for (std::int64_t number = 1; number <= in.num_parts; ++number) {
    const auto path = path_in(where, fmt::format("/mpu/part/{}/{}", id, number));
    out.open('{').key("url").string(signed_link(platform, base, Method::put, path, call.caller().credential, expires));
    out.key("part_number").number(number).key("headers").open('{').close('}').close('}');
  }
  return text_response(out.close(']').close('}').take());
}

net::Response put_part(Platform& platform, Call& call, net::Request& request) {
  const auto where = where_of(call.parameters(), call.caller());
  const auto number = parse_int(call.parameter("number"));
  const auto etag = uploads_of(platform).put_part(
      where, call.parameter("upload"), number.value_or(0),
      [&](std::span<std::byte> out) { return request.body.read(out); }, call.act(where.scope().str()));
  auto response = text_response(std::string(kEmpty));
  response.headers.add("ETag", fmt::format("\"{}\"", etag));
  return response;
}

Declaration posts(std::string_view path, std::string_view verb, std::string_view summary) {
  return {Method::post, path, allowed_in_project("run.write"), kMessageMax, Audit::verb(verb), Place::worker, summary};
}

void add_parts(Routes& routes, Platform& platform) {
  routes.add_foreign(posts("/api/2.0/mlflow-artifacts/mpu/create/{path*}", "artifact.begin_upload",
                           "MLflow: begin a file in parts; answers an address for each part."),
                     schema_of<CreateIn>,
                     [&platform](Call& call, net::Request& request) { return begin_upload(platform, call, request); });
  routes.add_foreign({Method::put, "/api/2.0/mlflow-artifacts/mpu/part/{upload}/{number}",
                      linked_in_project("run.write"), BodyLimit{track::kPartBytesMax}, Audit::verb("artifact.put_part"),
                      Place::worker, "MLflow: store one part at the address that was handed out for it."},
                     nullptr,
                     [&platform](Call& call, net::Request& request) { return put_part(platform, call, request); });
  rpc<CompleteIn>(routes,
                  posts("/api/2.0/mlflow-artifacts/mpu/complete/{path*}", "artifact.put",
                        "MLflow: make a file of its parts. Durable when it answers."),
                  [&platform](Call& call, const Where& where, const CompleteIn& in) {
                    const auto target = target_of_upload(platform, call, where, in.path);
                    std::vector<track::UploadedPart> parts;
                    for (const auto& part : in.parts) parts.push_back({part.part_number, part.etag});
                    uploads_of(platform).complete(where, in.upload_id, target.root, parts, call.act(target.resource));
                    return std::string(kEmpty);
                  });
  rpc<AbortIn>(
      routes,
      posts("/api/2.0/mlflow-artifacts/mpu/abort/{path*}", "artifact.abort_upload", "MLflow: give up a file in parts."),
      [&platform](Call& call, const Where& where, const AbortIn& in) {
        const auto target = target_of_upload(platform, call, where, in.path);
        uploads_of(platform).abort(where, in.upload_id, target.root, call.act(target.resource));
        return std::string(kEmpty);
      });
}

void add_links(Routes& routes, Platform& platform) {
  routes.add_foreign(
      {Method::get, "/api/2.0/mlflow-artifacts/presigned/{path*}", allowed_in_project("run.read"), BodyLimit::none(),
       Audit::read(), Place::worker, "MLflow: an address from which one file can be read in ranges."},
      nullptr, [&platform](Call& call, net::Request&) {
        const auto where = where_of(call.parameters(), call.caller());
        const auto path = track::checked_artifact_path(call.parameter("path"));
        const auto entry = file_at(platform, where, path);
        // Without a size clients read it here, with their own credential.
        const bool job = call.caller().workload.has_value();
        Text out;
        out.open('{').key("url").string(signed_link(platform, base_of(platform, call), Method::get,
                                                    path_in(where, "/linked/" + path), call.caller().credential,
                                                    platform.clock.wall().count() + kReadLinkUs));
        out.key("headers").open('{').close('}');
        if (!job) out.key("file_size").number(static_cast<std::int64_t>(entry.bytes));
        return text_response(out.close('}').take());
      });
  routes.add_foreign({Method::get, "/api/2.0/mlflow-artifacts/linked/{path*}", linked_in_project("run.read"),
                      BodyLimit::none(), Audit::read(), Place::worker,
                      "MLflow: the bytes of the file that the address was handed out for; Range is understood."},
                     nullptr, [&platform](Call& call, net::Request&) {
                       const auto where = where_of(call.parameters(), call.caller());
                       return send_entry(platform, call, where, file_at(platform, where, call.parameter("path")));
                     });
}

}  // namespace

void add_upload_routes(Routes& routes, Platform& platform) {
  add_parts(routes, platform);
  add_links(routes, platform);
}

}  // namespace falaj::api::mlflow
