// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/oci_layout.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "foundation/sys/descriptor.h"
#include "lifecycle/execute/local/small_file.h"
#include "lifecycle/execute/local/tar_reader.h"

namespace falaj::execute::local {
namespace {

constexpr std::size_t kDocumentBytesMax = 4 << 20;
constexpr std::int64_t kImageBytesMax = std::int64_t{64} << 30;
constexpr std::int64_t kEntriesMax = 4'000'000;
constexpr std::string_view kAlgorithm = "sha256:";

[[noreturn]] void fail_image(std::string_view doing) {
  const bool full = errno == ENOSPC || errno == EDQUOT;
  throw Error(full ? Code::exhausted : Code::unavailable,
              fmt::format("unpacking an image: {}: {}", doing, std::generic_category().message(errno)));
}

std::string blob_path(const std::string& directory, std::string_view digest) {
  if (!digest.starts_with(kAlgorithm)) throw Error(Code::invalid, "an image's digest is not of SHA-256");
  // Only what parses as a digest becomes part of a path.
  return fmt::format("{}/blobs/sha256/{}", directory, Digest::parse(digest.substr(kAlgorithm.size())).hex());
}

json::value document(const std::string& path, std::optional<Digest> expected) {
  std::error_code none;
  const auto size = std::filesystem::file_size(path, none);
  if (none || size > kDocumentBytesMax) throw Error(Code::invalid, "an image's description is missing, or too long");
  const std::string text = read_small(path);
  if (expected && crypto::sha256(text) != *expected)
    throw Error(Code::corrupt, "an image's description does not match its digest");
  return parse_json(text);
}

Digest digest_of(std::string_view text) { return Digest::parse(text.substr(std::min(kAlgorithm.size(), text.size()))); }

const json::array& list_in(const json::value& value, const char* key) {
  const auto* found = value.is_object() ? value.as_object().if_contains(key) : nullptr;
  if (!found || !found->is_array()) throw Error(Code::invalid, fmt::format("an image without {}", key));
  return found->as_array();
}

std::string text_in(const json::value& value, const char* key) {
  const auto* found = value.is_object() ? value.as_object().if_contains(key) : nullptr;
  return found && found->is_string() ? std::string(found->as_string()) : "";
}

bool fits_here(const json::value& descriptor) {
  const auto* platform = descriptor.is_object() ? descriptor.as_object().if_contains("platform") : nullptr;
  if (!platform) return true;
#if defined(__x86_64__)
  constexpr const char* kArchitecture = "amd64";
#else
  constexpr const char* kArchitecture = "arm64";
#endif
  return text_in(*platform, "architecture") == kArchitecture && text_in(*platform, "os") == "linux";
}

// A layer's bytes, hashed as they are read and decompressed as their first bytes say.
class Layer {
 public:
  Layer(const std::string& path, Digest expected)
      : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), expected_(expected), input_(1 << 16) {
    if (!file_) fail_image("opening a layer");
    refill();
    const auto magic = as_text(BytesView(input_).first(std::min<std::size_t>(available_, 4)));
    if (magic.starts_with("\x1f\x8b")) {
      CHECK(::inflateInit2(&gzip_, 15 + 16) == Z_OK, "no memory to decompress");
      is_gzip_ = true;
    } else if (magic == "\x28\xb5\x2f\xfd") {
      zstd_.reset(::ZSTD_createDStream());
    }
  }
  ~Layer() {
    if (is_gzip_) ::inflateEnd(&gzip_);
  }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  std::size_t read(std::span<std::byte> out) {
    std::size_t done = 0;
    while (done < out.size() && !ended_) {
      if (at_ == available_) refill();
      if (available_ == 0) break;
      const auto now = is_gzip_ ? inflate(out.subspan(done))
                       : zstd_  ? decompress(out.subspan(done))
                                : copy(out.subspan(done));
      done += now;
    }
    unpacked_ += static_cast<std::int64_t>(done);
    if (unpacked_ > kImageBytesMax) throw Error(Code::exhausted, "unpacking an image: larger than an image may be");
    return done;
  }

  void check_digest() {
    while (available_ > 0) refill();  // what follows the archive counts too
    if (hash_.finish() != expected_)
      throw Error(Code::corrupt, "unpacking an image: a layer does not match its digest");
  }

 private:
  void refill() {
    ssize_t n = 0;
    while ((n = ::read(file_.get(), input_.data(), input_.size())) < 0 && errno == EINTR) {
    }
    if (n < 0) fail_image("reading a layer");
    at_ = 0;
    available_ = static_cast<std::size_t>(n);
    hash_.update(BytesView(input_).first(available_));
  }
  std::size_t copy(std::span<std::byte> out) {
    const auto now = std::min(out.size(), available_ - at_);
    std::copy_n(input_.begin() + static_cast<std::ptrdiff_t>(at_), now, out.begin());
    at_ += now;
    return now;
  }
  std::size_t inflate(std::span<std::byte> out) {
    gzip_.next_in = raw(input_) + at_;
    gzip_.avail_in = static_cast<unsigned>(available_ - at_);
    gzip_.next_out = raw(out);
    gzip_.avail_out = static_cast<unsigned>(std::min<std::size_t>(out.size(), 1 << 30));
    const int result = ::inflate(&gzip_, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END)
      throw Error(Code::corrupt, "unpacking an image: a layer's compression");
    at_ = available_ - gzip_.avail_in;
    const auto made = static_cast<std::size_t>(gzip_.next_out - raw(out));
    if (result == Z_STREAM_END && ::inflateReset(&gzip_) != Z_OK) ended_ = true;  // another may follow
    return made;
  }
  std::size_t decompress(std::span<std::byte> out) {
    ZSTD_inBuffer from{input_.data(), available_, at_};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    if (::ZSTD_isError(::ZSTD_decompressStream(zstd_.get(), &to, &from)))
      throw Error(Code::corrupt, "unpacking an image: a layer's compression");
    at_ = from.pos;
    return to.pos;
  }

  struct FreeStream {
    void operator()(ZSTD_DStream* stream) const { ::ZSTD_freeDStream(stream); }
  };
  const sys::Descriptor file_;
  const Digest expected_;
  crypto::Sha256 hash_;
  Bytes input_;
  std::size_t at_ = 0, available_ = 0;
  std::int64_t unpacked_ = 0;
  bool is_gzip_ = false, ended_ = false;
  z_stream gzip_{};
  std::unique_ptr<ZSTD_DStream, FreeStream> zstd_;
};

// Puts entries below a directory. Every path is looked up as if that were the root, links and all.
class Unpacking {
 public:
  explicit Unpacking(const std::string& target) : root_(::open(target.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (!root_) fail_image("its directory");
  }

  void put(const TarEntry& entry, TarReader& archive) {
    if (++entries_ > kEntriesMax) throw Error(Code::exhausted, "unpacking an image: more files than an image may have");
    const auto [above, name] = parted(entry.path);
    if (name.empty()) return;  // the root itself
    const sys::Descriptor parent = directory(above);
    if (name.starts_with(".wh.")) return hide(parent.get(), name);
    switch (entry.kind) {
      case TarEntry::Kind::directory:
        return put_directory(parent.get(), name, entry.mode);
      case TarEntry::Kind::file:
        return put_file(parent.get(), name, entry.mode, archive);
      case TarEntry::Kind::link:
        clear(parent.get(), name);
        if (::symlinkat(entry.target.c_str(), parent.get(), name.c_str()) != 0) fail_image("a link");
        return;
      case TarEntry::Kind::hard_link:
        return put_hard_link(parent.get(), name, entry.target);
      case TarEntry::Kind::other:
        return;
    }
  }

 private:
  struct Parted {
    std::string above, name;
  };
  static Parted parted(std::string_view path) {
    std::vector<std::string> elements;
    for (const auto element : split(path, '/')) {
      if (element.empty() || element == ".") continue;
      if (element == ".." || element.find('\0') != std::string_view::npos || element.size() > 255)
        throw Error(Code::corrupt, "unpacking an image: a name that leads out of it");
      elements.emplace_back(element);
    }
    if (elements.empty()) return {};
    std::string name = std::move(elements.back());
    elements.pop_back();
    return {join(elements, "/"), std::move(name)};
  }

  int open_in(const std::string& path, int flags) const {
    open_how how{};
    how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
    how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
    return static_cast<int>(::syscall(SYS_openat2, root_.get(), path.empty() ? "." : path.c_str(), &how, sizeof how));
  }

  // Archives may leave out directories that hold their files.
  sys::Descriptor directory(const std::string& path) const {
    sys::Descriptor found(open_in(path, O_RDONLY | O_DIRECTORY));
    if (found || errno != ENOENT) {
      if (!found) fail_image("a directory");
      return found;
    }
    const auto [above, name] = parted(path);
    const sys::Descriptor parent = directory(above);
    if (::mkdirat(parent.get(), name.c_str(), 0755) != 0) fail_image("a directory");
    found = sys::Descriptor(open_in(path, O_RDONLY | O_DIRECTORY));
    if (!found) fail_image("a directory");
    return found;
  }

  static void clear(int parent, const std::string& name) {
    if (::unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return;
    if (errno != EISDIR && errno != EPERM) fail_image("replacing a file");
    std::error_code none;  // by the descriptor: no name of the image is looked up
    std::filesystem::remove_all(fmt::format("/proc/self/fd/{}/{}", parent, name), none);
  }

  static void hide(int parent, const std::string& name) {
    if (name != ".wh..wh..opq") return clear(parent, name.substr(4));
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/self/fd/{}", parent), none))
      clear(parent, entry.path().filename());
  }

  static void put_directory(int parent, const std::string& name, unsigned mode) {
    struct stat there {};
    const bool exists = ::fstatat(parent, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0;
    if (exists && !S_ISDIR(there.st_mode)) clear(parent, name);
    if ((!exists || !S_ISDIR(there.st_mode)) && ::mkdirat(parent, name.c_str(), 0755) != 0) fail_image("a directory");
    // Whoever unpacks must get on, and whoever runs in it is somebody else.
    if (::fchmodat(parent, name.c_str(), mode | 0700, 0) != 0) fail_image("a directory's mode");
  }

  static void put_file(int parent, const std::string& name, unsigned mode, TarReader& archive) {
    clear(parent, name);
    const sys::Descriptor file(
        ::openat(parent, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file) fail_image("a file");
    archive.read([&](BytesView part) {
      while (!part.empty()) {
        const auto n = ::write(file.get(), part.data(), part.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail_image("writing a file");
        part = part.subspan(static_cast<std::size_t>(n));
      }
    });
    if (::fchmod(file.get(), mode) != 0) fail_image("a file's mode");
  }

  void put_hard_link(int parent, const std::string& name, const std::string& target) const {
    const auto [above, old] = parted(target);
    const sys::Descriptor from = directory(above);
    clear(parent, name);
    if (::linkat(from.get(), old.c_str(), parent, name.c_str(), 0) != 0) fail_image("a second name of a file");
  }

  const sys::Descriptor root_;
  std::int64_t entries_ = 0;
};

}  // namespace

bool is_oci_layout(const std::string& directory) { return ::access((directory + "/oci-layout").c_str(), F_OK) == 0; }

OciImage read_oci_layout(const std::string& directory) {
  std::string digest;
  json::value described = document(directory + "/index.json", std::nullopt);
  // An index may name indexes; more than a few are nobody's image.
  for (int depth = 0; depth < 4; ++depth) {
    if (described.is_object() && described.as_object().contains("layers")) break;
    const auto& manifests = list_in(described, "manifests");
    const auto chosen = std::find_if(manifests.begin(), manifests.end(), fits_here);
    if (chosen == manifests.end()) throw Error(Code::invalid, "an image for another kind of machine");
    digest = text_in(*chosen, "digest");
    described = document(blob_path(directory, digest), digest_of(digest));
  }
  OciImage image{digest_of(digest).hex(), {}};
  for (const auto& layer : list_in(described, "layers")) image.layers.push_back(text_in(layer, "digest"));
  return image;
}

void unpack(const std::string& directory, const OciImage& image, const std::string& target) {
  Unpacking unpacking(target);
  for (const auto& digest : image.layers) {
    Layer layer(blob_path(directory, digest), digest_of(digest));
    TarReader archive([&](std::span<std::byte> out) { return layer.read(out); });
    while (const auto entry = archive.next()) unpacking.put(*entry, archive);
    layer.check_digest();
  }
}

}  // namespace falaj::execute::local
