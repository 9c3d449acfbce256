// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/sim_files.h"

#include <algorithm>
#include <cstring>

#include "foundation/base/error.h"
#include "foundation/sys/path.h"

namespace falaj::sys {

class SimFiles::SimReadFile final : public ReadFile {
 public:
  explicit SimReadFile(Name content) : content_(std::move(content)) {}
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override {
    const auto& bytes = content_->bytes;
    if (offset >= bytes.size()) return 0;
    const std::size_t n = std::min(out.size(), bytes.size() - static_cast<std::size_t>(offset));
    if (n > 0) std::memcpy(out.data(), bytes.data() + offset, n);
    return n;
  }
  std::uint64_t size() const override { return content_->bytes.size(); }

 private:
  const Name content_;
};

class SimFiles::SimNewFile final : public NewFile {
 public:
  SimNewFile(SimFiles& files, std::uint64_t life) : files_(files), life_(life) {}
  void write(BytesView bytes) override {
    CHECK(content_, "a committed file does not change");
    content_->bytes.insert(content_->bytes.end(), bytes.begin(), bytes.end());
  }
  void commit(const std::string& path, Durable durable, Existing existing) override {
    CHECK(content_, "a file is committed once");
    files_.commit(path, content_, durable, existing, life_);
    content_.reset();
  }

 private:
  SimFiles& files_;
  const std::uint64_t life_;
  Name content_ = std::make_shared<Content>();
};

class SimFiles::SimScratchFile final : public ScratchFile {
 public:
  void write(std::uint64_t offset, BytesView bytes) override {
    Lock lock(mu_);
    bytes_.resize(std::max(bytes_.size(), static_cast<std::size_t>(offset) + bytes.size()));
    std::copy(bytes.begin(), bytes.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override {
    Lock lock(mu_);
    if (offset >= bytes_.size()) return 0;
    const std::size_t n = std::min(out.size(), bytes_.size() - static_cast<std::size_t>(offset));
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), n, out.begin());
    return n;
  }

 private:
  mutable Mutex mu_;
  Bytes bytes_ GUARDED_BY(mu_);
};

std::unique_ptr<ReadFile> SimFiles::open(const std::string& path) {
  check_path(path);
  Lock lock(mu_);
  auto content = find(path);
  if (!content && directories_.contains(path)) throw Error(Code::invalid, "opening a file: not a file");
  if (!content) throw Error(Code::not_found, "opening a file: no such file");
  return std::make_unique<SimReadFile>(std::move(content));
}

std::unique_ptr<NewFile> SimFiles::create() {
  Lock lock(mu_);
  return std::make_unique<SimNewFile>(*this, life_);
}

std::unique_ptr<ScratchFile> SimFiles::scratch() { return std::make_unique<SimScratchFile>(); }

void SimFiles::commit(const std::string& path, Name content, NewFile::Durable durable, NewFile::Existing existing,
                      std::uint64_t life) {
  check_path(path);
  Lock lock(mu_);
  if (life != life_) throw Error(Code::unavailable, "naming a file: power was lost");
  if (const auto parent = split_name(path).first; !parent.empty()) make_directories_locked(parent);
  if (directories_.contains(path)) throw Error(Code::exists, "naming a file: a directory is in the way");
  auto& history = names_[path];
  if (history.empty()) history.push_back(nullptr);
  if (!history.back() || existing == NewFile::Existing::replace) {
    content->modified_us = clock_.wall().count();
    content->durable = existing == NewFile::Existing::replace;
    history.push_back(std::move(content));
  }
  if (durable == NewFile::Durable::now) settle(history);
}

void SimFiles::remove(const std::string& path) {
  check_path(path);
  Lock lock(mu_);
  if (find(path)) {
    names_[path].push_back(nullptr);
    return;
  }
  if (!directories_.contains(path)) throw Error(Code::not_found, "removing a file: no such file");
  const auto below = [&](const std::string& other) { return other.starts_with(path + "/"); };
  for (const auto& [name, history] : names_)
    if (history.back() && below(name)) throw Error(Code::exists, "removing a directory: not empty");
  for (const auto& [name, made] : directories_)
    if (below(name)) throw Error(Code::exists, "removing a directory: not empty");
  directories_.erase(path);
  removed_directories_.insert(path);
}

std::vector<FileInfo> SimFiles::list(const std::string& path) {
  if (!path.empty()) check_path(path);
  Lock lock(mu_);
  if (find(path)) throw Error(Code::invalid, "listing a directory: not a directory");
  if (!path.empty() && !directories_.contains(path))
    throw Error(Code::not_found, "listing a directory: no such directory");
  std::vector<FileInfo> out;
  const auto direct = [&](const std::string& name) { return split_name(name).first == path; };
  for (const auto& [name, history] : names_)
    if (history.back() && direct(name))
      out.push_back({split_name(name).second, history.back()->bytes.size(), history.back()->modified_us, false, false});
  for (const auto& [name, made] : directories_)
    if (direct(name)) out.push_back({split_name(name).second, 0, made, true});
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

std::optional<FileInfo> SimFiles::stat(const std::string& path) {
  check_path(path);
  Lock lock(mu_);
  if (const auto content = find(path))
    return FileInfo{split_name(path).second, content->bytes.size(), content->modified_us, false, false};
  if (const auto it = directories_.find(path); it != directories_.end())
    return FileInfo{split_name(path).second, 0, it->second, true, false};
  return std::nullopt;
}

void SimFiles::sync() {
  Lock lock(mu_);
  for (auto& [path, history] : names_) settle(history);
  std::erase_if(names_, [](const auto& entry) { return !entry.second.back(); });
  removed_directories_.clear();
}

void SimFiles::make_directories(const std::string& path) {
  check_path(path);
  Lock lock(mu_);
  make_directories_locked(path);
}

void SimFiles::crash() {
  Lock lock(mu_);
  ++life_;
  for (auto& [path, history] : names_) {
    Name survivor = history[random_.below(history.size())];
    if (survivor && !survivor->durable) {
      const std::size_t kept = random_.below(survivor->bytes.size() + 1);
      auto torn = std::make_shared<Content>(*survivor);  // readers from before keep what they see
      if (random_.below(2) == 0)
        torn->bytes.resize(kept);
      else
        std::fill(torn->bytes.begin() + static_cast<std::ptrdiff_t>(kept), torn->bytes.end(), std::byte{0});
      torn->durable = true;
      survivor = std::move(torn);
    }
    history = {std::move(survivor)};
  }
  std::erase_if(names_, [](const auto& entry) { return !entry.second.back(); });
  for (const auto& path : removed_directories_)
    if (random_.below(2) == 0) make_directories_locked(path);
  removed_directories_.clear();
  std::vector<std::string> files;  // a copy: making directories may change names_
  for (const auto& [path, history] : names_) files.push_back(path);
  for (const auto& path : files)
    if (const auto parent = split_name(path).first; !parent.empty()) make_directories_locked(parent);
}

SimFiles::Name SimFiles::find(const std::string& path) const {
  const auto it = names_.find(path);
  return it == names_.end() ? nullptr : it->second.back();
}

void SimFiles::make_directories_locked(const std::string& path) {
  for (std::size_t at = 0; at != std::string::npos;) {
    at = path.find('/', at + 1);
    const std::string directory = path.substr(0, at);
    if (find(directory)) throw Error(Code::invalid, "making a directory: a file is in the way");
    if (!directories_.emplace(directory, clock_.wall().count()).second) continue;
    removed_directories_.erase(directory);
    names_.erase(directory);  // syncing the parent also makes the removal of a file of that name last
  }
}

void SimFiles::settle(History& history) {
  if (history.back()) history.back()->durable = true;
  history.erase(history.begin(), history.end() - 1);
}

}  // namespace falaj::sys
