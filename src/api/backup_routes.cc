// SPDX-License-Identifier: Apache-2.0
// backup

#include <condition_variable>
#include <exception>
#include <thread>

#include "api/call.h"
#include "foundation/base/log.h"
#include "foundation/base/mutex.h"
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
  static constexpr auto fields =
      std::make_tuple(field("passphrase", &BackupRequest::passphrase, "Protects the keys inside the backup.")
                          .required()
                          .secret()
                          .length(backup::kPassphraseBytesMin, 1024),
                      field("blobs", &BackupRequest::blobs, "copy them, or only refer to them.").one_of(kBlobChoices));
};
}  // namespace falaj

namespace falaj::api {
namespace {

// A thread that produces bytes and a caller that takes them, at most a few pieces apart. The producer holds a snapshot
// of the database for as long as it runs, which a function asked piece by piece could not.
class Produced {
 public:
  explicit Produced(std::function<void(const std::function<void(BytesView)>&)> produce)
      : thread_([this, produce = std::move(produce)] {
          std::exception_ptr failure;
          try {
            produce([this](BytesView piece) { put(piece); });
          } catch (...) {
            failure = std::current_exception();
          }
          Lock lock(mu_);
          ended_ = true;
          failure_ = failure;
          changed_.notify_all();
        }) {}
  ~Produced() {
    {
      Lock lock(mu_);
      abandoned_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  // Empty at the end; throws what the producer threw.
  Bytes next() {
    Lock lock(mu_);
    while (waiting_.empty() && !ended_) lock.wait(changed_);
    if (waiting_.empty() && failure_) std::rethrow_exception(failure_);
    Bytes out = std::exchange(waiting_, {});
    changed_.notify_all();
    return out;
  }

 private:
  static constexpr std::size_t kWaitingBytesMax = 4 << 20;

  void put(BytesView piece) {
    Lock lock(mu_);
    while (waiting_.size() >= kWaitingBytesMax && !abandoned_) lock.wait(changed_);
    if (abandoned_) throw Error(Code::cancelled, "nobody waits for the backup any more");
    waiting_.insert(waiting_.end(), piece.begin(), piece.end());
    changed_.notify_all();
  }

  Mutex mu_;
  std::condition_variable changed_;
  Bytes waiting_ GUARDED_BY(mu_);
  bool ended_ GUARDED_BY(mu_) = false, abandoned_ GUARDED_BY(mu_) = false;
  std::exception_ptr failure_ GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace

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
