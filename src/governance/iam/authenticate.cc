// SPDX-License-Identifier: Apache-2.0
// The reading half of the Directory: who is it, may they. Nothing here touches the database.
#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "governance/iam/directory.h"

namespace falaj::iam {
namespace {

// One message for every reason, so that none of them tells an attacker how close they are.
[[noreturn]] void refuse() { throw Error(Code::unauthenticated, "credentials are missing, wrong, expired or revoked"); }

// The text after a scheme such as "Bearer", whose case does not matter; nothing for another scheme.
std::optional<std::string_view> after_scheme(std::string_view header, std::string_view scheme) {
  if (header.size() <= scheme.size() || header[scheme.size()] != ' ' ||
      lower(header.substr(0, scheme.size())) != scheme)
    return std::nullopt;
  return trim(header.substr(scheme.size()));
}

// Keeps the time of use without writing it for every call of a busy client.
void note_use(std::atomic<std::int64_t>& used_us, std::int64_t now_us) {
  constexpr std::int64_t kCoarseUs = 1'000'000;
  if (now_us - used_us.load(std::memory_order_relaxed) >= kCoarseUs) used_us.store(now_us, std::memory_order_relaxed);
}

template <class T>
std::vector<T> values_of(const Objects<T>& objects) {
  std::vector<T> out;
  out.reserve(objects.size());
  for (const auto& [key, object] : objects) out.push_back(object);
  return out;
}

}  // namespace

Snapshot::Snapshot(const State& state)
    : state_(state),
      policy_(values_of(all<Role>()), values_of(all<Binding>())),
      grants_(values_of(all<TransferGrant>())) {
  for (const auto& [key, group] : all<Group>())
    for (const auto& member : group.members) groups_of_[member].push_back("group/" + key);
}

bool Snapshot::active(const Principal& principal) const {
  const auto key = owned_name(principal.tenant, principal.name);
  switch (principal.kind) {
    case Principal::Kind::user: {
      const auto* user = find<User>(key);
      return user && !user->disabled;
    }
    case Principal::Kind::service: {
      const auto* service = find<Service>(key);
      return service && !service->disabled;
    }
    case Principal::Kind::certificate:
    case Principal::Kind::workload:
      return true;  // their credential is all there is of them
  }
  return false;
}

Principal Snapshot::with_groups(Principal principal) const {
  const auto found = groups_of_.find(principal.str());
  if (found != groups_of_.end()) principal.groups = found->second;
  return principal;
}

std::vector<Quota> Snapshot::quotas(const Scope& scope) const {
  std::vector<Quota> out;
  for (const auto& [key, quota] : all<Quota>())
    if (quota.scope.contains(scope)) out.push_back(quota);
  return out;
}

Identity Directory::by_secret(CredentialKind kind, std::string_view text) const {
  const auto given = parse_credential(kind, text);
  if (!given) refuse();
  const auto entry = credentials_.find(given->id);
  if (!entry || entry->row.kind != kind) refuse();
  const auto& row = entry->row;
  if (!crypto::equal_in_constant_time(crypto::sha256(BytesView(given->secret)).view(), row.secret_hash.view()))
    refuse();
  const auto now = now_us();
  auto identity = by_entry(*entry, now);
  note_use(entry->used_us, now);
  return identity;
}

Identity Directory::by_entry(const CredentialTable::Entry& entry, std::int64_t now) const {
  const auto& row = entry.row;
  if (now >= row.expires_us) refuse();
  if (row.kind == CredentialKind::session &&
      now - entry.used_us.load(std::memory_order_relaxed) >= options_.session_idle_us)
    refuse();
  const auto current = snapshot();
  if (!current->active(row.principal)) refuse();
  return {current->with_groups(row.principal),
          fmt::format("{}/{}", row.kind == CredentialKind::token ? "token" : "session", row.id.str()), row.restrictions,
          std::nullopt};
}

Identity Directory::standing_for(std::string_view credential) const {
  const auto slash = credential.find('/');
  if (slash == std::string_view::npos) refuse();
  const auto kind = credential.substr(0, slash), id = credential.substr(slash + 1);
  try {
    if (kind == "certificate") return by_certificate(Digest::parse(id));
    if (kind != "token" && kind != "session") refuse();
    const auto entry = credentials_.find(TokenId::parse(id));
    if (!entry || (entry->row.kind == CredentialKind::token) != (kind == "token")) refuse();
    return by_entry(*entry, now_us());
  } catch (const Error&) {
    refuse();  // also what is no id at all
  }
}

Identity Directory::by_header(std::string_view authorization) const {
  if (const auto basic = after_scheme(authorization, "basic")) {
    // Clients that only know Basic send the token as the password; the user name is for them, not for us.
    std::string pair;
    try {
      pair = as_text(from_base64(*basic));
    } catch (const Error&) {
      refuse();
    }
    const auto colon = pair.find(':');
    if (colon == std::string::npos) refuse();
    return by_secret(CredentialKind::token, std::string_view(pair).substr(colon + 1));
  }
  const auto bearer = after_scheme(authorization, "bearer");
  if (!bearer) refuse();
  if (!is_workload_token(*bearer)) return by_secret(CredentialKind::token, *bearer);
  auto claims = verify_workload(workload_key_, *bearer, now_us());
  if (!claims) refuse();
  Principal job{Principal::Kind::workload, claims->job, claims->tenant, {}};
  return {std::move(job), "workload/" + claims->job, {}, std::move(claims)};
}

Identity Directory::by_certificate(const Digest& fingerprint) const {
  const auto current = snapshot();
  const auto* certificate = current->find<Certificate>(fingerprint.hex());
  if (!certificate) refuse();
  const auto principal = Principal::parse(certificate->principal);
  if (!current->active(principal)) refuse();
  return {current->with_groups(principal), "certificate/" + fingerprint.hex(), {}, std::nullopt};
}

Identity Directory::authenticate(const Credentials& credentials) const {
  if (!credentials.authorization.empty()) return by_header(credentials.authorization);
  if (!credentials.session.empty()) return by_secret(CredentialKind::session, credentials.session);
  if (credentials.certificate) return by_certificate(*credentials.certificate);
  refuse();
}

std::vector<CredentialRow> Directory::token_rows() const {
  std::vector<CredentialRow> out;
  for (const auto& entry : credentials_.all())
    if (entry->row.kind == CredentialKind::token) out.push_back(entry->row);
  return out;
}

bool Directory::allows(const Identity& identity, std::string_view action, const Scope& resource) const {
  if (identity.workload) return permits(*identity.workload, action, resource);
  if (!admits(identity.restrictions, action, resource)) return false;
  return decide(snapshot()->policy(), identity.principal, action, resource).allowed;
}

void Directory::require(const Identity& identity, std::string_view action, const Scope& resource) const {
  if (identity.workload) {
    if (permits(*identity.workload, action, resource)) return;
    throw Error(Code::denied, fmt::format("the token of job {} does not name {} for {}", identity.workload->job,
                                          resource.str(), action));
  }
  if (!admits(identity.restrictions, action, resource))
    throw Error(Code::denied, fmt::format("{} is not valid for {} on {}", identity.credential, action, resource.str()));
  const auto current = snapshot();
  const auto decision = decide(current->policy(), identity.principal, action, resource);
  if (!decision.allowed) throw Error(Code::denied, explain(decision, identity.principal, action, resource));
}

std::string Directory::workload_token(WorkloadClaims claims, std::int64_t ttl_us) const {
  claims.issued_us = now_us();
  claims.expires_us = claims.issued_us + ttl_us;
  return sign_workload(workload_key_, claims);
}

std::string Directory::hash_new_password(std::string_view password) const {
  if (password.size() < kPasswordBytesMin || password.size() > kPasswordBytesMax)
    throw Error(Code::invalid, fmt::format("password must have {} to {} bytes, not {}", kPasswordBytesMin,
                                           kPasswordBytesMax, password.size()));
  return crypto::hash_password(password, options_.password_cost);
}

std::string Directory::dummy_hash() {
  {
    Lock lock(mu_);
    if (!dummy_hash_.empty()) return dummy_hash_;
  }
  auto made =
      crypto::hash_password("no account has this password", options_.password_cost);  // slow: not under the lock
  Lock lock(mu_);
  return dummy_hash_ = std::move(made);
}

Principal Directory::check_password(const std::string& account, std::string_view password) {
  if (account.size() > 200 || password.size() > kPasswordBytesMax) refuse();
  // The monotonic clock: setting the wall clock must not end the wait.
  if (const auto wait = throttle_.begin(account, clock_.now().count()); wait > 0)
    throw Error(Code::exhausted, fmt::format("too many failed logins: try again in {}", format_duration_us(wait)));
  const auto current = snapshot();
  const auto* user = current->find<User>(account);
  const auto* stored = user ? current->find<Password>("user/" + account) : nullptr;
  std::string hash;
  if (stored) {
    hash = stored->hash;
  } else {
    hash = dummy_hash();
  }
  const bool right = crypto::verify_password(password, hash) && stored && !user->disabled;
  if (!right) refuse();
  throttle_.succeeded(account);
  return {Principal::Kind::user, user->name, user->tenant, {}};
}

}  // namespace falaj::iam
