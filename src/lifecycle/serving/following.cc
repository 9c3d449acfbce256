// SPDX-License-Identifier: Apache-2.0
// what happens beside making plans: files of versions are read for the first time, and followers told of new plans

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/serving/endpoints.h"

namespace falaj::serving {
namespace {

constexpr sys::Micros kLook{100'000};         // how often followers' plan is looked at
constexpr sys::Micros kReadAgain{5'000'000};  // what could not be read
constexpr std::size_t kFollowersMax = 2'000;

}  // namespace

std::optional<std::string> Endpoints::known_hash(const Digest& content) const {
  return parts_.database.read([&](sql::Reader& r) {
    return r.first("SELECT sha256 FROM serving_file WHERE content = ?", {content.hex()},
                   [](const sql::Row& row) { return std::string(row.text(0)); });
  });
}

// While a version's file is read for the first time the endpoint goes on as it was, whole: shares and features that
// were meant for the new version are not for the old one. After a start of ours what was recorded tells how it was.
void Endpoints::keep_as_it_was(traffic::Endpoint endpoint, Making& making) {
  making.made.awaited.insert(iam::Scope::of(endpoint.tenant, endpoint.project, "endpoint", endpoint.name).str());
  const auto recorded = last_recorded(endpoint);
  bool is_there = false;
  {
    Lock lock(mu_);
    for (const auto& before : current_.plan ? current_.plan->endpoints : std::vector<traffic::Endpoint>()) {
      if (traffic::full_name(before) != traffic::full_name(endpoint)) continue;
      endpoint = before;
      is_there = true;
      break;
    }
    if (is_there && endpoint.features)
      for (const auto& view : endpoint.features->views)
        if (const auto space = spaces_.find(view.space); space != spaces_.end()) making.spaces.insert(*space);
  }
  if (!is_there && recorded == "none") return;
  if (!is_there) endpoint.variants = decode<std::vector<traffic::Variant>>(parse_json(recorded), "what was served");
  const Where where{TenantName::parse(endpoint.tenant), ProjectName::parse(endpoint.project)};
  std::erase_if(endpoint.variants, [&](const traffic::Variant& variant) REQUIRES(making_) {
    try {
      const auto found = file_of(where, parts_.models.version(where, variant.model, variant.version), making);
      if (found.file && !endpoint.stopped) add_model(*found.file, making);
      return !found.file;
    } catch (const Error&) {
      return true;  // it is gone
    }
  });
  if (!endpoint.variants.empty()) making.plan.endpoints.push_back(std::move(endpoint));
}

// The SHA-256 of a file; nothing when there is no time for it any more.
std::optional<std::string> Endpoints::hash_of(const Where& where, const vault::Entry& file) {
  crypto::Sha256 hash;
  const auto reader = parts_.vault.open(where, file, 0, file.bytes);
  for (Bytes piece = reader->next(); !piece.empty(); piece = reader->next()) {
    hash.update(piece);
    Lock lock(mu_);
    if (stopping_) return std::nullopt;
  }
  return hash.finish().hex();
}

std::optional<std::string> Endpoints::next_to_read() {
  for (const auto& [content, file] : unread_)
    if (!unreadable_.contains(content)) return content;
  return std::nullopt;
}

void Endpoints::read_files() {
  for (;;) {
    std::string content;
    std::pair<Where, vault::Entry> file;
    {
      Lock lock(mu_);
      while (!stopping_ && !next_to_read()) {
        if (unreadable_.empty()) {
          lock.wait(changed_);
          continue;
        }
        lock.wait_for(changed_, kReadAgain);
        if (parts_.clock.now() >= read_again_) unreadable_.clear();
      }
      if (stopping_) return;
      content = *next_to_read();
      file = unread_.at(content);
    }
    std::string trouble;
    try {
      const auto sha256 = hash_of(file.first, file.second);
      if (!sha256) return;
      const sql::Act act{"system/serving", "endpoint.read_file", file.first.scope().str(), ""};
      parts_.database.write(act, [&](sql::Writer& w) {
        w.execute("INSERT INTO serving_file(content, sha256) VALUES (?, ?) ON CONFLICT DO NOTHING", {content, *sha256});
      });
    } catch (const Error& e) {
      trouble = e.what();
      log::warn("model_not_read", {{"file", file.second.name}, {"why", trouble}});
    }
    Lock lock(mu_);
    ++reads_;
    unread_.erase(content);
    if (!trouble.empty()) {
      unreadable_[content] = trouble;
      read_again_ = parts_.clock.now() + kReadAgain;
    }
    changed_.notify_all();
  }
}

void Endpoints::follow(std::string after, std::int64_t wait_us, Then then) {
  Lock lock(mu_);
  if (followers_.size() >= kFollowersMax)
    throw Error(Code::exhausted, fmt::format("more than {} programs follow the serving plan", kFollowersMax));
  followers_.push_back({std::move(after), parts_.clock.now() + sys::Micros(wait_us), std::move(then)});
  changed_.notify_all();
}

void Endpoints::stop() {
  Lock lock(mu_);
  stopping_ = true;
  changed_.notify_all();
}

// One thread looks for all of them.
void Endpoints::tell_followers() {
  for (;;) {
    {
      Lock lock(mu_);
      while (!ending_ && followers_.empty()) lock.wait(changed_);
      if (followers_.empty()) return;
    }
    Current now;
    std::optional<Error> failed;
    try {
      now = current();
    } catch (const Error& e) {
      failed.emplace(e);
    }
    std::vector<Follower> due;
    {
      Lock lock(mu_);
      const auto at = parts_.clock.now();
      const bool all = stopping_ || failed;
      for (auto& follower : followers_)
        if (all || follower.after != now.fingerprint || follower.until <= at) due.push_back(std::move(follower));
      std::erase_if(followers_, [](const Follower& follower) { return !follower.then; });
      if (due.empty()) lock.wait_for(changed_, kLook);
    }
    for (const auto& follower : due) follower.then(now, failed ? &*failed : nullptr);
  }
}

}  // namespace falaj::serving
