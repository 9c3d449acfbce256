// SPDX-License-Identifier: Apache-2.0
// login, whoami, tokens, passwords, certificates

#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "api/page.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "governance/iam/objects.h"

namespace falaj::api {
namespace {

struct Login {
  std::string user, password;
};
struct LoggedIn {
  std::string session;
  std::int64_t expires_us = 0;
};
struct WhoAmI {
  std::string principal, kind, tenant, credential, server;
  std::vector<std::string> groups, roles;
};
struct TokenRequest {
  std::string name;
  std::int64_t ttl_us = std::int64_t{30} * 24 * 3600 * 1'000'000;
  std::optional<std::string> principal;
  std::vector<iam::Restriction> restrictions;
};
struct TokenMade {
  std::string id, token, principal;
  std::int64_t expires_us = 0;
};
struct TokenQuery {
  std::optional<std::string> principal;
};
struct TokenRow {
  std::string id, principal, name, state;
  std::vector<iam::Restriction> restrictions;
  std::int64_t created_us = 0, expires_us = 0;
};
struct NewPassword {
  std::string password;
};
struct CertificateRow {
  std::string fingerprint, principal;
};

bool is_fingerprint(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;  // the structs above; only in this file

template <>
struct Shape<Login> {
  static constexpr std::string_view name = "Login";
  static Fields fields() {
    return {field("user", &Login::user, "NAME, or TENANT/NAME.").required().length(1, 128),
            field("password", &Login::password, "The password.").required().secret().length(1, 1024)};
  }
};
template <>
struct Shape<LoggedIn> {
  static constexpr std::string_view name = "LoggedIn";
  static Fields fields() {
    return {field("session", &LoggedIn::session, "Send it as the cookie falaj_session.").secret(),
            field("expires_us", &LoggedIn::expires_us, "When it ends, in microseconds since 1970.")};
  }
};
template <>
struct Shape<WhoAmI> {
  static constexpr std::string_view name = "WhoAmI";
  static Fields fields() {
    return {field("principal", &WhoAmI::principal, "Who the server takes the caller for."),
            field("kind", &WhoAmI::kind, "user, service, workload or certificate."),
            field("tenant", &WhoAmI::tenant, "The tenant it belongs to; empty for the platform's."),
            field("groups", &WhoAmI::groups, "Groups it is a member of."),
            field("roles", &WhoAmI::roles, "Roles it holds, each with its scope."),
            field("credential", &WhoAmI::credential, "Which credential was used."),
            field("server", &WhoAmI::server, "The server's address.")};
  }
};
template <>
struct Shape<TokenRequest> {
  static constexpr std::string_view name = "TokenRequest";
  static Fields fields() {
    return {
        field("name", &TokenRequest::name, "What the token is for.").required().length(1, 128),
        field("ttl", &TokenRequest::ttl_us, "How long it is valid.").duration().range(60'000'000, iam::kTokenLifeMaxUs),
        field("principal", &TokenRequest::principal, "Whose token; yours when absent."),
        field("restrictions", &TokenRequest::restrictions, "When given, each call must be admitted by one of them too.")
            .length(0, 32)};
  }
};
template <>
struct Shape<TokenMade> {
  static constexpr std::string_view name = "TokenMade";
  static Fields fields() {
    return {field("id", &TokenMade::id, "Its id, for revoking it."),
            field("token", &TokenMade::token, "The token. It is shown this once.").secret(),
            field("principal", &TokenMade::principal, "Whose it is."),
            field("expires_us", &TokenMade::expires_us, "When it ends.")};
  }
};
template <>
struct Shape<TokenQuery> {
  static constexpr std::string_view name = "TokenQuery";
  static Fields fields() { return {field("principal", &TokenQuery::principal, "Whose tokens; yours when absent.")}; }
};
template <>
struct Shape<TokenRow> {
  static constexpr std::string_view name = "Token";
  static Fields fields() {
    return {field("id", &TokenRow::id, "Its id."),
            field("principal", &TokenRow::principal, "Whose it is."),
            field("name", &TokenRow::name, "What it is for."),
            field("state", &TokenRow::state, "active, expired or revoked."),
            field("restrictions", &TokenRow::restrictions, "What it is restricted to."),
            field("created_us", &TokenRow::created_us, "When it was made."),
            field("expires_us", &TokenRow::expires_us, "When it ends.")};
  }
};
template <>
struct Shape<NewPassword> {
  static constexpr std::string_view name = "NewPassword";
  static Fields fields() {
    return {field("password", &NewPassword::password, "12 to 1024 bytes.").required().secret()};
  }
};
template <>
struct Shape<CertificateRow> {
  static constexpr std::string_view name = "Certificate";
  static Fields fields() {
    return {field("fingerprint", &CertificateRow::fingerprint, "SHA-256 of the certificate's DER form.")
                .required()
                .text({is_fingerprint, "64 hexadecimal digits in lower case"}),
            field("principal", &CertificateRow::principal, "Whom it stands for.").required()};
  }
};
}  // namespace falaj

namespace falaj::api {
namespace {

// Where the tokens, passwords and certificates of a principal are: what a permission over them is asked on.
iam::Scope home_of(const iam::Principal& principal) {
  return iam::Scope::of(principal.tenant, "", iam::name(principal.kind), principal.name);
}

// The same for a name that somebody typed: "" when nobody can have it.
std::string home_of_account(const std::string& account) {
  try {
    return home_of(iam::Principal::parse("user/" + account)).str();
  } catch (const Error&) {
    return "";
  }
}

// Your own need no permission; another's do.
void require_over(Call& call, const iam::Principal& principal, std::string_view action) {
  call.about(home_of(principal).str());
  if (principal.str() != call.caller().principal.str()) call.require(action, home_of(principal));
}

WhoAmI who_am_i(Platform& platform, const Call& call) {
  const auto& caller = call.caller();
  WhoAmI out{caller.principal.str(),
             std::string(iam::name(caller.principal.kind)),
             caller.principal.tenant,
             caller.credential,
             platform.public_url,
             caller.principal.groups,
             {}};
  std::vector<std::string> subjects = caller.principal.groups;
  subjects.push_back(caller.principal.str());
  for (const auto& binding : platform.directory.snapshot()->policy().bindings())
    for (const auto& subject : binding.subjects)
      if (std::find(subjects.begin(), subjects.end(), subject) != subjects.end())
        out.roles.push_back(fmt::format("{} at {}", binding.role, binding.scope.str()));
  return out;
}

TokenRow row_of_token(const iam::TokenInfo& token, std::int64_t now_us) {
  return {token.id.str(),     token.principal,
          token.name,         token.revoked_us ? "revoked" : token.expires_us <= now_us ? "expired" : "active",
          token.restrictions, token.created_us,
          token.expires_us};
}

iam::Principal principal_of(const Call& call, const std::optional<std::string>& name) {
  return name ? iam::Principal::parse(*name) : call.caller().principal;
}

void add_sessions(Routes& routes, Platform& platform) {
  routes.add<Login, LoggedIn>(
      {Method::post, "/v1/login", Permission::anyone(), kSmallBody, Audit::verb("session.create"), Place::worker,
       "Log in with a password; opens a session."},
      [&platform](Call& call, const Login& in) {
        call.about(home_of_account(in.user));
        const auto user = platform.directory.check_password(in.user, in.password);
        sql::Act act = call.act(home_of(user).str());
        act.actor = user.str();
        const auto issued =
            platform.database.write(act, [&](sql::Writer& w) { return platform.directory.open_session(w, user); });
        return LoggedIn{issued.text, issued.expires_us};
      });
  routes.add<Nothing, Nothing>(
      {Method::post, "/v1/logout", Permission::signed_in(), kSmallBody, Audit::verb("session.delete"), Place::worker,
       "End the session or revoke the token that this call carries."},
      [&platform](Call& call, const Nothing&) {
        const auto slash = call.caller().credential.find('/');
        const std::string kind = call.caller().credential.substr(0, slash),
                          id = call.caller().credential.substr(slash + 1);
        if (kind != "session" && kind != "token")
          throw Error(Code::invalid, fmt::format("a {} cannot be logged out", kind));
        call.write(home_of(call.caller().principal).str(), [&](sql::Writer& w) {
          if (kind == "session")
            platform.directory.close_session(w, iam::TokenId::parse(id));
          else
            platform.directory.revoke_token(w, iam::TokenId::parse(id));
        });
      });
  routes.add<Nothing, WhoAmI>({Method::get, "/v1/whoami", Permission::signed_in(), BodyLimit::none(), Audit::read(),
                               Place::here, "Who the server takes the caller for, and the roles it holds."},
                              [&platform](Call& call, const Nothing&) { return who_am_i(platform, call); });
}

void add_tokens(Routes& routes, Platform& platform) {
  routes.add<TokenRequest, TokenMade>(
      {Method::post, "/v1/tokens", Permission::signed_in(), kSmallBody, Audit::verb("token.create"), Place::worker,
       "Make an API token for yourself or, with token.create over it, for another principal."},
      [&platform](Call& call, const TokenRequest& in) {
        const auto principal = principal_of(call, in.principal);
        require_over(call, principal, "token.create");
        // A restricted token must not make one that is worth more than itself.
        if (!call.caller().restrictions.empty() && in.restrictions != call.caller().restrictions)
          throw Error(Code::denied, "a restricted token makes only tokens with the same restrictions");
        return call.write(home_of(principal).str(), [&](sql::Writer& w) {
          const auto issued = platform.directory.issue_token(w, {principal, in.name, in.restrictions, in.ttl_us});
          return TokenMade{issued.id.str(), issued.text, principal.str(), issued.expires_us};
        });
      });
  routes.add<TokenQuery, Page<TokenRow>>(
      {Method::get, "/v1/tokens", Permission::signed_in(), BodyLimit::none(), Audit::read(), Place::worker,
       "Tokens of yours or, with token.list over it, of another principal. Never the secrets."},
      [&platform](Call& call, const TokenQuery& in) {
        const auto principal = principal_of(call, in.principal);
        require_over(call, principal, "token.list");
        Page<TokenRow> page;
        const auto now_us = platform.clock.wall().count();
        for (const auto& token :
             platform.database.read([&](sql::Reader& r) { return platform.directory.tokens(r, principal); }))
          page.items.push_back(row_of_token(token, now_us));
        return page;
      });
  routes.add<TokenQuery, Nothing>(
      {Method::del, "/v1/tokens/{id}", Permission::signed_in(), BodyLimit::none(), Audit::verb("token.revoke"),
       Place::worker, "Revoke a token; it is worth nothing when this call returns."},
      [&platform](Call& call, const TokenQuery& in) {
        const auto principal = principal_of(call, in.principal);
        require_over(call, principal, "token.revoke");
        const auto id = iam::TokenId::parse(call.parameter("id"));
        const auto owned =
            platform.database.read([&](sql::Reader& r) { return platform.directory.tokens(r, principal); });
        if (std::none_of(owned.begin(), owned.end(), [&](const auto& t) { return t.id == id; }))
          throw Error(Code::not_found, fmt::format("{} has no token {}", principal.str(), id.str()));
        call.write("/token/" + id.str(), [&](sql::Writer& w) { platform.directory.revoke_token(w, id); });
      });
}

void add_passwords_and_certificates(Routes& routes, Platform& platform) {
  routes.add<NewPassword, Nothing>(
      {Method::post, "/v1/users/{name}/password", Permission::signed_in("{scope}"), kSmallBody,
       Audit::verb("password.set"), Place::worker,
       "Set the password of a user of the platform, or of the tenant that 'scope' names (yours, or with password.set "
       "over the user) and end the user's sessions."},
      [&platform](Call& call, const NewPassword& in) {
        const auto scope = call.scope();
        const std::string tenant = scope.tenant().empty() ? "" : std::string(scope.tenant()) + "/";
        const auto user = iam::Principal::parse("user/" + tenant + call.parameter("name"));
        require_over(call, user, "password.set");
        if (!platform.directory.snapshot()->active(user))
          throw Error(Code::not_found, fmt::format("no such user: {}", user.str()));
        const std::string hash = platform.directory.hash_new_password(in.password);
        call.write(home_of(user).str(), [&](sql::Writer& w) { platform.directory.set_password(w, user, hash); });
      });
  routes.add<CertificateRow, Nothing>(
      {Method::post, "/v1/certificates", Permission::of("certificate.create", "/"), kSmallBody,
       Audit::verb("certificate.create"), Place::worker, "Let a client certificate stand for a principal."},
      [&platform](Call& call, const CertificateRow& in) {
        const auto principal = iam::Principal::parse(in.principal);
        if (!platform.directory.snapshot()->active(principal))
          throw Error(Code::not_found, fmt::format("no such principal: {}", principal.str()));
        call.write("/certificate/" + in.fingerprint, [&](sql::Writer& w) {
          platform.directory.put(w, iam::Certificate{in.fingerprint, principal.str()});
          w.record({"/certificate/" + in.fingerprint, std::nullopt, crypto::sha256(canonical(encode(in)))});
        });
      });
  routes.add<Nothing, Page<CertificateRow>>(
      {Method::get, "/v1/certificates", Permission::of("certificate.list", "/"), BodyLimit::none(), Audit::read(),
       Place::here, "Client certificates and whom they stand for."},
      [&platform](Call&, const Nothing&) {
        Page<CertificateRow> page;
        for (const auto& [key, c] : platform.directory.snapshot()->all<iam::Certificate>())
          page.items.push_back({c.fingerprint, c.principal});
        return page;
      });
  routes.add<Nothing, Nothing>(
      {Method::del, "/v1/certificates/{fingerprint}", Permission::of("certificate.delete", "/"), BodyLimit::none(),
       Audit::verb("certificate.delete"), Place::worker, "Let a client certificate stand for nobody."},
      [&platform](Call& call, const Nothing&) {
        const auto& fingerprint = call.parameter("fingerprint");
        call.write("/certificate/" + fingerprint,
                   [&](sql::Writer& w) { platform.directory.remove<iam::Certificate>(w, fingerprint); });
      });
}

}  // namespace

void add_access_routes(Routes& routes, Platform& platform) {
  add_sessions(routes, platform);
  add_tokens(routes, platform);
  add_passwords_and_certificates(routes, platform);
}

}  // namespace falaj::api
