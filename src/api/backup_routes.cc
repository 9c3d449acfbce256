// SPDX-License-Identifier: Apache-2.0
// backup

#include "api/call.h"
#include "foundation/base/log.h"
#include "foundation/base/produced.h"
#include "governance/backup/backup.h"

namespace falaj::api {
namespace {

struct BackupRequest {
  std::string passphrase, blobs = "copy";
};
constexpr std::string_view kBlobChoices[] = {"copy", "reference"};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<BackupRequest> {
  static constexpr std::string_view name = "BackupRequest";
  static Fields fields() {
    return {field("passphrase", &BackupRequest::passphrase, "Protects the keys inside the backup.")
                .required()
                .secret()
                .length(backup::kPassphraseBytesMin, 1024),
            field("blobs", &BackupRequest::blobs, "copy them, or only refer to them.").one_of(kBlobChoices)};
  }
};
}  // namespace falaj

namespace falaj::api {

void add_backup_routes(Routes& routes, Platform& platform) {
  routes.add_download<BackupRequest>(
      {Method::post, "/v1/backup", Permission::of("backup.create", "/"), BodyLimit{64 * 1024},
       Audit::verb("backup.create"), Place::worker,
       "A consistent snapshot of everything while the server goes on, as one sealed file."},
      "application/octet-stream", [&platform](Call& call, const BackupRequest& in) {
        platform.database.write(call.act("/"), [](sql::Writer&) {});  // on record before the first byte leaves
        const auto blobs = in.blobs == "copy" ? backup::Blobs::copy : backup::Blobs::reference;
        auto produced = std::make_shared<Produced>([&platform, blobs, passphrase = in.passphrase](const auto& sink) {
          const auto totals = backup::take(platform.database, platform.vault, platform.keys, passphrase, blobs,
                                           platform.clock.wall().count(), sink);
          log::info("backup_taken",
                    {{"rows", totals.rows}, {"objects", totals.objects}, {"bytes", totals.object_bytes}});
        });
        net::Response response;
        response.headers.add("Content-Type", "application/octet-stream");
        response.body = net::StreamBody{[produced] { return produced->next(); }, std::nullopt};
        return response;
      });
}

}  // namespace falaj::api
