// SPDX-License-Identifier: Apache-2.0
// One JSON line for each claim about the blob store: what we reach, what it is compared with, the ratio and the goal.
//   blob_bench [directory on the disk to measure]
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include <fmt/format.h>

#include "foundation/crypto/aead.h"
#include "foundation/crypto/hash.h"
#include "storage/blob/directory_backend.h"
#include "storage/blob/memory_backend.h"
#include "storage/blob/store.h"
#include "storage/blob/testing.h"

namespace falaj::blob {
namespace {

constexpr std::size_t kMiB = 1 << 20;
const TenantName kTenant{"bench"};
const ZoneName kZone{"here"};
const sys::RealClock kClock;

double seconds_of(const std::function<void()>& work) {
  const auto begin = kClock.now();
  work();
  return std::chrono::duration<double>(kClock.now() - begin).count();
}

// The shorter of a few runs: what the machine can do, not what else it was doing.
double best_seconds_of(int runs, const std::function<void()>& work) {
  double best = 1e9;
  for (int i = 0; i < runs; ++i) best = std::min(best, seconds_of(work));
  return best;
}

void say(const std::string& claim, double ours, const std::string& unit, const std::string& against, double limit,
         double ratio, double goal) {
  fmt::print(
      R"({{"claim": "{}", "ours": {:.4g}, "unit": "{}", "against": "{}", "limit": {:.4g}, "ratio": {:.4g}, "goal": {:.4g}, "better": "{}"}})"
      "\n",
      claim, ours, unit, against, limit, ratio, goal, unit == "MB/s" ? "higher" : "lower");
  std::fflush(stdout);
}

// SHA-256 and AES-256-GCM over the same bytes in pieces of a chunk, on so many threads: no store that hashes and
// encrypts can be faster.
double hash_and_encrypt_mb_s(unsigned threads, std::size_t bytes_each) {
  const double seconds = best_seconds_of(3, [&] {
    std::vector<std::thread> running;
    for (unsigned t = 0; t < threads; ++t) {
      running.emplace_back([&, t] {
        const Bytes chunk = random_bytes(kMiB, t);
        const crypto::Key key = crypto::Key::random();
        Bytes sealed;
        for (std::size_t done = 0; done < bytes_each; done += chunk.size()) {
          (void)crypto::sha256(chunk);
          sealed.clear();
          crypto::seal_onto(sealed, key, {}, chunk);
        }
      });
    }
    for (auto& thread : running) thread.join();
  });
  return static_cast<double>(threads) * static_cast<double>(bytes_each) / 1e6 / seconds;
}

// A source that gives parts one after the other; what it costs to make the bytes is not ours to measure.
Source parts_of(std::vector<BytesView> parts) {
  return [parts = std::move(parts), at = std::size_t{0}](std::span<std::byte> out) mutable {
    while (at < parts.size() && parts[at].empty()) ++at;
    if (at == parts.size()) return std::size_t{0};
    const std::size_t n = std::min(out.size(), parts[at].size());
    std::memcpy(out.data(), parts[at].data(), n);
    parts[at] = parts[at].subspan(n);
    return n;
  };
}

// Takes what it is given and forgets it, but for sizes: leaves only the store's own work to measure.
class NullBackend final : public Backend {
 public:
  void put(const std::string&, BytesView, Durable, Existing) override {}
  Bytes get(const std::string&, std::uint64_t, std::uint64_t) override { return {}; }
  std::optional<BlobInfo> stat(const std::string&) override { return std::nullopt; }
  void remove(const std::string&) override {}
  std::vector<BlobInfo> list(const std::string&, const std::string&, std::size_t) override { return {}; }
  void sync() override {}
};

double read_through(Store& store, const Address& address) {
  return seconds_of([&] {
    const auto reader = store.get({kTenant, kZone}, address);
    while (!reader->next().empty()) {
    }
  });
}

void throughput(const std::string& directory) {
  const Bytes content = random_bytes(512 * kMiB, 1);
  const double megabytes = static_cast<double>(content.size()) / 1e6;
  FixedKeys keys;
  Metrics metrics;
  for (const unsigned threads : {1U, 2U}) {
    const double limit = hash_and_encrypt_mb_s(threads, 512 * kMiB);
    const std::string against = fmt::format("SHA-256 + AES-256-GCM of this machine, {} thread(s)", threads);
    const StoreOptions options{.threads = threads - 1};
    NullBackend null;
    Store to_nowhere(kZone, null, keys, kClock, metrics, options);
    const double to_nowhere_s = best_seconds_of(3, [&] { to_nowhere.put(kTenant, source_of(content)); });
    say(fmt::format("put, {} thread(s), without a disk", threads), megabytes / to_nowhere_s, "MB/s", against, limit,
        megabytes / to_nowhere_s / limit, 0.5);

    const auto files = sys::open_files(directory + "/put" + std::to_string(threads));
    DirectoryBackend backend(*files);
    Store store(kZone, backend, keys, kClock, metrics, options);
    Address address;
    const double put_s = seconds_of([&] { address = store.put(kTenant, source_of(content)).info.address; });
    double write_s = 0;
    {
      const auto raw = sys::open_files(directory + "/raw" + std::to_string(threads));
      write_s = seconds_of([&] {
        auto file = raw->create();
        for (std::size_t at = 0; at < content.size(); at += kMiB) file->write(BytesView(content).subspan(at, kMiB));
        file->commit("raw", sys::NewFile::Durable::now, sys::NewFile::Existing::keep);
      });
    }
    say(fmt::format("put, {} thread(s), durable on this disk", threads), megabytes / put_s, "MB/s",
        "writing and syncing the same bytes to one file", megabytes / write_s, write_s / put_s, 0.5);
    const double get_s = std::min(read_through(store, address), read_through(store, address));
    say(fmt::format("get, {} thread(s), from the page cache", threads), megabytes / get_s, "MB/s", against, limit,
        megabytes / get_s / limit, 0.5);
    const double again_s = seconds_of([&] { store.put(kTenant, source_of(content)); });
    say(fmt::format("put of known content, {} thread(s)", threads), megabytes / again_s, "MB/s", against, limit,
        megabytes / again_s / limit, 0.5);
  }
}

void deduplication() {
  const Bytes content = random_bytes(1024 * kMiB, 2), more = random_bytes(content.size() / 100, 3);
  const BytesView half = BytesView(content).first(content.size() / 2), rest = BytesView(content).subspan(half.size());
  FixedKeys keys;
  Metrics metrics;
  MemoryBackend backend(kClock);
  Store store(kZone, backend, keys, kClock, metrics);
  store.put(kTenant, source_of(content));
  const auto share = [&](std::vector<BytesView> parts) {
    const Stored stored = store.put(kTenant, parts_of(std::move(parts)));
    return static_cast<double>(stored.new_bytes) / static_cast<double>(stored.info.size);
  };
  const Bytes other = random_bytes(more.size(), 6);
  const double appended = share({content, more}), inserted = share({half, other, rest});
  say("1 GiB with 1 % appended: share newly stored", appended, "share", "the 1 % itself", 0.01, appended / 0.01, 3);
  say("1 GiB with 1 % inserted in the middle: share newly stored", inserted, "share", "the 1 % itself", 0.01,
      inserted / 0.01, 3);
}

void small_files(const std::string& directory) {
  constexpr std::size_t kCount = 100'000;
  const Bytes content = random_bytes(kCount + 2048, 4);
  std::vector<Source> sources;
  for (std::size_t i = 0; i < kCount; ++i) sources.push_back(source_of(BytesView(content).subspan(i, 1024 + i % 1024)));
  FixedKeys keys;
  Metrics metrics;
  const auto files = sys::open_files(directory + "/small");
  DirectoryBackend backend(*files);
  Store store(kZone, backend, keys, kClock, metrics);
  const double ours = seconds_of([&] { store.put_many(kTenant, sources); });
  // The same number of plain files, named and synced the same way.
  const auto raw = sys::open_files(directory + "/small-raw");
  const double plain = seconds_of([&] {
    for (std::size_t i = 0; i < kCount; ++i) {
      auto file = raw->create();
      file->write(BytesView(content).subspan(i, 1024 + i % 1024));
      file->commit(fmt::format("{:02x}/{:08x}", i % 256, i), sys::NewFile::Durable::at_sync,
                   sys::NewFile::Existing::keep);
    }
    raw->sync();
  });
  say("100,000 small files in one durable batch", ours, "s", "the same files in clear, one sync", plain, ours / plain,
      60 / plain);
}

long resident_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

void memory(const std::string& directory) {
  FixedKeys keys;
  Metrics metrics;
  const auto files = sys::open_files(directory + "/stream");
  DirectoryBackend backend(*files);
  Store store(kZone, backend, keys, kClock, metrics);
  const Address address = store.put(kTenant, random_source(1024 * kMiB, 5)).info.address;
  read_through(store, address);
  const double mib = static_cast<double>(resident_kib()) / 1024;
  say("1 GiB streamed in and out: largest resident size", mib, "MiB", "the object itself", 1024, mib / 1024, 0.1);
}

}  // namespace
}  // namespace falaj::blob

int main(int argc, char** argv) {
  using namespace falaj;
  const sys::TempDir temp;
  const std::string directory = argc > 1 ? argv[1] : temp.path();
  blob::memory(directory);  // first: the largest resident size is that of the whole process
  blob::throughput(directory);
  blob::deduplication();
  blob::small_files(directory);
}
