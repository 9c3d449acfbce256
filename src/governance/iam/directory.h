// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "foundation/base/mutex.h"
#include "foundation/crypto/key.h"
#include "foundation/crypto/password.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "governance/iam/credentials.h"
#include "governance/iam/objects.h"
#include "governance/iam/policy.h"
#include "governance/iam/throttle.h"
#include "governance/iam/workload.h"
#include "storage/sql/database.h"

namespace falaj::iam {

// What a caller presents. If several are given the first of them decides alone: a bad token does not fall back to a
// cookie.
struct Credentials {
  std::string_view authorization;     // "Bearer <token>", or "Basic" with a token as the password
  std::string_view session;           // the session cookie
  std::optional<Digest> certificate;  // of the client's TLS certificate, already verified against our CA
};

// A caller we know.
struct Identity {
  Principal principal;
  std::string credential;                 // "token/01h...", "session/01h...", "certificate/ab12...", "workload/train-7"
  std::vector<Restriction> restrictions;  // of the token
  std::optional<WorkloadClaims> workload;  // when it is a job: then this decides and no role does
};

// Everything the directory keeps but credentials, by key_of.
template <class T>
using Objects = std::map<std::string, T>;
using State = std::tuple<Objects<Tenant>, Objects<Project>, Objects<Zone>, Objects<User>, Objects<Service>,
                         Objects<Group>, Objects<Quota>, Objects<Role>, Objects<Binding>, Objects<TransferGrant>,
                         Objects<Certificate>, Objects<Password>>;

// The directory at one moment. Immutable.
class Snapshot {
 public:
  explicit Snapshot(const State& state);

  template <class T>
  const Objects<T>& all() const {
    return std::get<Objects<T>>(state_);
  }
  template <class T>
  const T* find(const std::string& key) const {  // null when there is none
    const auto found = all<T>().find(key);
    return found == all<T>().end() ? nullptr : &found->second;
  }
  const Policy& policy() const { return policy_; }
  const std::vector<TransferGrant>& transfer_grants() const { return grants_; }
  bool active(const Principal& principal) const;  // known and not disabled
  Principal with_groups(Principal principal) const;
  // The quotas that hold for a scope: its own and those of the scopes above it.
  std::vector<Quota> quotas(const Scope& scope) const;

 private:
  State state_;
  Policy policy_;
  std::vector<TransferGrant> grants_;
  std::unordered_map<std::string, std::vector<std::string>> groups_of_;  // by principal
};

struct NewToken {
  Principal principal;
  std::string name;                       // what it is for
  std::vector<Restriction> restrictions;  // none = worth as much as its principal
  std::int64_t ttl_us = 0;
};
inline constexpr std::int64_t kTokenLifeMaxUs = std::int64_t{366} * 24 * 3600 * 1'000'000;

// The only time the secret is seen.
struct Issued {
  TokenId id;
  std::string text;
  std::int64_t expires_us = 0;
};

struct TokenInfo {
  TokenId id;
  std::string principal, name;
  std::vector<Restriction> restrictions;
  std::int64_t created_us = 0, expires_us = 0;
  std::optional<std::int64_t> used_us, revoked_us;
};

struct DirectoryOptions {
  crypto::PasswordCost password_cost;
  std::int64_t session_idle_us = std::int64_t{15} * 60 * 1'000'000;
  std::int64_t session_life_us = std::int64_t{12} * 3600 * 1'000'000;
};
inline constexpr std::size_t kPasswordBytesMin = 12, kPasswordBytesMax = 1024;

// Who there is and what they may do. Thread-safe. Answers come from memory; every change goes through a sql::Writer, so
// that it is recorded with the rest of the caller's write, and holds for everybody when that write returns.
class Directory {
 public:
  static std::span<const sql::Migration> migrations();

  // Loads everything. Requires: the migrations are applied. `workload_key` signs the tokens of jobs.
  Directory(sql::Database& database, const sys::Clock& clock, sys::Random& random, const crypto::Key& workload_key,
            DirectoryOptions options = {});

  // ---- who is it, may they
  // Throws unauthenticated, always with the same message.
  Identity authenticate(const Credentials& credentials) const;
  // Whom a credential that Identity names stands for now, without its secret: for addresses that were signed in its
  // name. Throws unauthenticated once it is revoked, expired or idle, and for a job's, which nobody keeps.
  Identity standing_for(std::string_view credential) const;
  bool allows(const Identity& identity, std::string_view action, const Scope& resource) const;
  // Throws denied and says which role is missing or forbids.
  void require(const Identity& identity, std::string_view action, const Scope& resource) const;
  std::shared_ptr<const Snapshot> snapshot() const;

  // ---- declared objects; T is one of State. Existence of what they refer to is the caller's to check.
  template <class T>
  void put(sql::Writer& writer, const T& object);
  // Throws not_found. A removed user or service takes its credentials along, so the next of that name has none of them.
  template <class T>
  void remove(sql::Writer& writer, const std::string& key);

  // ---- credentials
  Issued issue_token(sql::Writer& writer, const NewToken& token);  // throws invalid, not_found
  void revoke_token(sql::Writer& writer, const TokenId& id);       // throws not_found; idempotent otherwise
  std::vector<TokenInfo> tokens(sql::Reader& reader, const Principal& principal) const;
  std::vector<CredentialRow> token_rows() const;  // of all live tokens: for who checks them elsewhere
  std::string workload_token(WorkloadClaims claims, std::int64_t ttl_us) const;  // fills in the times

  // Checks a password; `account` is "ada" or "acme/ada". Throws unauthenticated, or exhausted while the account is
  // slowed down. Takes as long for an account that does not exist.
  Principal check_password(const std::string& account, std::string_view password);
  Issued open_session(sql::Writer& writer, const Principal& user);
  void close_session(sql::Writer& writer, const TokenId& id);  // idempotent
  // Slow by design, so outside of the write; throws invalid when too short or too long.
  std::string hash_new_password(std::string_view password) const;
  void set_password(sql::Writer& writer, const Principal& user, const std::string& hash);  // ends the user's sessions

  // The first start: the user `admin` with every right, and a token for it. Nothing when it was done before.
  // `keep` stores the token before any of it is committed: a kill in between repeats both instead of losing the token.
  std::optional<Issued> bootstrap(std::int64_t token_ttl_us, const std::function<void(const Issued&)>& keep = {});

  // ---- upkeep, now and then: writes when credentials were last used; deletes those long dead. Returns rows changed.
  std::int64_t flush_usage(sql::Writer& writer) const;
  std::int64_t purge(sql::Writer& writer);

 private:
  std::int64_t now_us() const { return clock_.wall().count(); }
  Issued issue(sql::Writer& writer, CredentialKind kind, const Principal& principal, const std::string& name,
               std::vector<Restriction> restrictions, std::int64_t ttl_us);
  void drop_credentials(sql::Writer& writer, const std::string& principal, bool tokens_too);
  void load();
  std::string dummy_hash();  // to check against where there is no account
  Identity by_secret(CredentialKind kind, std::string_view text) const;
  Identity by_entry(const CredentialTable::Entry& entry, std::int64_t now) const;
  Identity by_header(std::string_view authorization) const;
  Identity by_certificate(const Digest& fingerprint) const;

  sql::Database& database_;
  const sys::Clock& clock_;
  sys::Random& random_;
  mutable sys::Ids ids_;
  const crypto::Key workload_key_;
  const DirectoryOptions options_;
  Throttle throttle_;
  CredentialTable credentials_;

  mutable Mutex mu_;  // guards everything below
  State state_ GUARDED_BY(mu_);
  mutable std::shared_ptr<const Snapshot> published_ GUARDED_BY(mu_);  // null = made anew for the next who asks
  std::string dummy_hash_ GUARDED_BY(mu_);
};

}  // namespace falaj::iam
