// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the directory keeps besides credentials, described for its rows. The specs of resource kinds reuse Rule.

#include <string>
#include <vector>

#include "foundation/base/names.h"
#include "foundation/base/shape.h"
#include "governance/iam/policy.h"
#include "governance/iam/zone.h"

namespace falaj::iam {

struct Tenant {
  std::string name;
  std::vector<ZoneName> zones;     // where its bytes may be; the first is the default
  std::string isolation_min = {};  // its jobs start only where they are kept apart so far; "" = as the server says
  friend bool operator==(const Tenant&, const Tenant&) = default;
};

struct Project {
  std::string tenant, name;
  ZoneName zone;
  friend bool operator==(const Project&, const Project&) = default;
};

struct User {
  std::string tenant, name;  // no tenant = of the platform
  std::string full_name, email;
  bool disabled = false;
  friend bool operator==(const User&, const User&) = default;
};

struct Service {
  std::string tenant, name;
  bool disabled = false;
  friend bool operator==(const Service&, const Service&) = default;
};

struct Group {
  std::string tenant, name;
  std::vector<std::string> members;  // principals; groups do not nest
  friend bool operator==(const Group&, const Group&) = default;
};

// What a tenant or a project may use; absent = no limit of its own.
struct Quota {
  std::string tenant, name;  // who declared it: the level above what it limits
  Scope scope;               // what it limits
  std::optional<std::int64_t> blob_bytes, blob_objects, requests_per_second, concurrent_jobs;
  friend bool operator==(const Quota&, const Quota&) = default;
};

struct Certificate {
  std::string fingerprint;  // hex of the SHA-256 of its DER form
  std::string principal;
  friend bool operator==(const Certificate&, const Certificate&) = default;
};

struct Password {
  std::string principal;
  std::string hash;  // argon2id, as a PHC string
  friend bool operator==(const Password&, const Password&) = default;
};

// "ada" of the platform, "acme/ada" of a tenant: how roles, users and groups are named in one text.
std::string owned_name(std::string_view tenant, std::string_view name);

// The name an object has among those of its type.
inline std::string key_of(const Tenant& o) { return o.name; }
inline std::string key_of(const Project& o) { return owned_name(o.tenant, o.name); }
inline std::string key_of(const Zone& o) { return o.name.str(); }
inline std::string key_of(const User& o) { return owned_name(o.tenant, o.name); }
inline std::string key_of(const Service& o) { return owned_name(o.tenant, o.name); }
inline std::string key_of(const Group& o) { return owned_name(o.tenant, o.name); }
inline std::string key_of(const Quota& o) { return owned_name(o.tenant, o.name); }
inline std::string key_of(const Role& o) { return o.name; }
inline std::string key_of(const Binding& o) { return o.scope.str() + " " + o.name; }
inline std::string key_of(const TransferGrant& o) { return o.name; }
inline std::string key_of(const Certificate& o) { return o.fingerprint; }
inline std::string key_of(const Password& o) { return o.principal; }

// Lets described structs hold these.
void decode_one(Scope& out, const json::value& in, const Bounds& bounds, const std::string& path, Faults& faults);
void decode_one(Effect& out, const json::value& in, const Bounds& bounds, const std::string& path, Faults& faults);
inline json::value encode_one(const Scope& v) { return json::value(v.str()); }
inline json::value encode_one(Effect v) { return v == Effect::allow ? "allow" : "forbid"; }

inline constexpr std::string_view kEffects[] = {"allow", "forbid"};

// What an action or a pattern of one is made of.
bool is_action_pattern(std::string_view text);
inline constexpr std::string_view kActionRule = "an action such as blob.read, blob.*, *.list or *";

}  // namespace falaj::iam

namespace falaj {

template <class Tag>
void decode_one(Name<Tag>& out, const json::value& in, const Bounds& bounds, const std::string& path, Faults& faults) {
  Bounds named = bounds;
  if (!named.text.accepts) named.text = {is_name, kNameRule};
  shape::decode_one(out.value, in, named, path, faults);
}
template <class Tag>
json::value encode_one(const Name<Tag>& v) {
  return json::value(v.value);
}

template <class Tag>
struct shape::SchemaOf<Name<Tag>> : shape::SchemaOf<std::string> {};
template <>
struct shape::SchemaOf<iam::Scope> : shape::SchemaOf<std::string> {};
template <>
struct shape::SchemaOf<iam::Effect> {
  static json::object make(Bounds b, std::string_view help, json::object&) {
    b.one_of = iam::kEffects;
    return bounded({}, b, help, "string");
  }
};

template <>
struct Shape<iam::Tenant> {
  static constexpr std::string_view name = "DirectoryTenant";
  static Fields fields() {
    return {field("name", &iam::Tenant::name, ""), field("zones", &iam::Tenant::zones, ""),
            field("isolation_min", &iam::Tenant::isolation_min, "")};
  }
};
template <>
struct Shape<iam::Project> {
  static constexpr std::string_view name = "DirectoryProject";
  static Fields fields() {
    return {field("tenant", &iam::Project::tenant, ""), field("name", &iam::Project::name, ""),
            field("zone", &iam::Project::zone, "")};
  }
};
template <>
struct Shape<iam::Zone> {
  static constexpr std::string_view name = "DirectoryZone";
  static Fields fields() {
    return {field("name", &iam::Zone::name, ""), field("residency", &iam::Zone::residency, ""),
            field("backends", &iam::Zone::backends, "")};
  }
};
template <>
struct Shape<iam::User> {
  static constexpr std::string_view name = "DirectoryUser";
  static Fields fields() {
    return {field("tenant", &iam::User::tenant, ""), field("name", &iam::User::name, ""),
            field("fullName", &iam::User::full_name, ""), field("email", &iam::User::email, ""),
            field("disabled", &iam::User::disabled, "")};
  }
};
template <>
struct Shape<iam::Service> {
  static constexpr std::string_view name = "DirectoryService";
  static Fields fields() {
    return {field("tenant", &iam::Service::tenant, ""), field("name", &iam::Service::name, ""),
            field("disabled", &iam::Service::disabled, "")};
  }
};
template <>
struct Shape<iam::Group> {
  static constexpr std::string_view name = "DirectoryGroup";
  static Fields fields() {
    return {field("tenant", &iam::Group::tenant, ""), field("name", &iam::Group::name, ""),
            field("members", &iam::Group::members, "")};
  }
};
template <>
struct Shape<iam::Quota> {
  static constexpr std::string_view name = "DirectoryQuota";
  static Fields fields() {
    return {field("tenant", &iam::Quota::tenant, ""),
            field("name", &iam::Quota::name, ""),
            field("scope", &iam::Quota::scope, ""),
            field("blobBytes", &iam::Quota::blob_bytes, ""),
            field("blobObjects", &iam::Quota::blob_objects, ""),
            field("requestsPerSecond", &iam::Quota::requests_per_second, ""),
            field("concurrentJobs", &iam::Quota::concurrent_jobs, "")};
  }
};
template <>
struct Shape<iam::Certificate> {
  static constexpr std::string_view name = "DirectoryCertificate";
  static Fields fields() {
    return {field("fingerprint", &iam::Certificate::fingerprint, ""),
            field("principal", &iam::Certificate::principal, "")};
  }
};
template <>
struct Shape<iam::Password> {
  static constexpr std::string_view name = "DirectoryPassword";
  static Fields fields() {
    return {field("principal", &iam::Password::principal, ""), field("hash", &iam::Password::hash, "").secret()};
  }
};
template <>
struct Shape<iam::Rule> {
  static constexpr std::string_view name = "Rule";
  static Fields fields() {
    return {field("effect", &iam::Rule::effect, "allow, or forbid, which wins over every allow."),
            field("actions", &iam::Rule::actions, "What may be done: blob.read, blob.*, *.list, *.")
                .required()
                .length(1, 100)
                .text({iam::is_action_pattern, iam::kActionRule}),
            field("except", &iam::Rule::except, "Actions the rule does not speak of after all.")
                .length(0, 100)
                .text({iam::is_action_pattern, iam::kActionRule}),
            field("resources", &iam::Rule::resources, "Paths below the scope of the binding; '*' stands for anything.")
                .length(1, 100)};
  }
};
template <>
struct Shape<iam::Role> {
  static constexpr std::string_view name = "DirectoryRole";
  static Fields fields() { return {field("name", &iam::Role::name, ""), field("rules", &iam::Role::rules, "")}; }
};
template <>
struct Shape<iam::Binding> {
  static constexpr std::string_view name = "DirectoryBinding";
  static Fields fields() {
    return {field("name", &iam::Binding::name, ""), field("role", &iam::Binding::role, ""),
            field("subjects", &iam::Binding::subjects, ""), field("scope", &iam::Binding::scope, "")};
  }
};
template <>
struct Shape<iam::Restriction> {
  static constexpr std::string_view name = "Restriction";
  static Fields fields() {
    return {field("actions", &iam::Restriction::actions, "What the token may be used for.")
                .length(1, 100)
                .text({iam::is_action_pattern, iam::kActionRule}),
            field("scope", &iam::Restriction::scope, "Where: this scope and everything below it.")};
  }
};
template <>
struct Shape<iam::TransferGrant> {
  static constexpr std::string_view name = "DirectoryTransferGrant";
  static Fields fields() {
    return {field("name", &iam::TransferGrant::name, ""),
            field("from", &iam::TransferGrant::from, ""),
            field("to", &iam::TransferGrant::to, ""),
            field("scope", &iam::TransferGrant::scope, ""),
            field("resources", &iam::TransferGrant::resources, ""),
            field("reason", &iam::TransferGrant::reason, ""),
            field("grantedBy", &iam::TransferGrant::granted_by, ""),
            field("expiresUs", &iam::TransferGrant::expires_us, "")};
  }
};

}  // namespace falaj
