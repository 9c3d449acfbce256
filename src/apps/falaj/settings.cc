// SPDX-License-Identifier: Apache-2.0
#include "apps/falaj/settings.h"

#include <fmt/format.h>

#include "foundation/base/text.h"
#include "foundation/config/secret.h"
#include "foundation/sys/net.h"

namespace falaj {
namespace app {

bool Endpoint::loopback() const {
  if (host == "localhost") return true;
  try {
    return sys::Address::parse(host).is_loopback();
  } catch (const Error&) {
    return false;
  }
}

Endpoint parse_endpoint(const std::string& text) {
  const auto colon = text.rfind(':');
  const auto port = colon == std::string::npos ? std::nullopt : parse_int(std::string_view(text).substr(colon + 1));
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (!port || *port < 0 || *port > 65535 || host.empty())
    throw Error(Code::invalid, fmt::format("listen: must be HOST:PORT, such as 127.0.0.1:8470, not '{}'", text));
  return {host, static_cast<std::uint16_t>(*port)};
}

std::vector<std::string> other_variables() {
  return {"FALAJ_URL", "FALAJ_TOKEN", "FALAJ_CONFIG", "FALAJ_TENANT", "FALAJ_PROJECT", "FALAJ_CA_FILE"};
}

}  // namespace app

void Shape<app::Settings>::check(const app::Settings& s, Faults& faults) {
  if (s.tls.certificate_file.empty() != s.tls.key_file.empty())
    faults.push_back({"tls", "certificate_file and key_file go together"});
  if (!s.tls.client_ca_file.empty() && s.tls.certificate_file.empty())
    faults.push_back({"tls.client_ca_file", "client certificates need TLS: set certificate_file and key_file"});
  try {
    const auto endpoint = app::parse_endpoint(s.listen);
    if (!endpoint.loopback() && s.tls.certificate_file.empty())
      faults.push_back(
          {"listen",
           fmt::format(
               "{} is reachable from other machines, so TLS is required: set tls.certificate_file and tls.key_file",
               s.listen)});
  } catch (const Error& e) {
    faults.push_back({"listen", e.what()});
  }
  const auto reference = [&](const std::string& key, const std::string& value) {
    if (!value.empty() && !config::is_secret_reference(value))
      faults.push_back({key, "must say where the secret is, file:PATH or env:NAME, not the secret itself"});
  };
  reference("database.postgresql", s.database.postgresql);
  reference("keys.passphrase", s.keys.passphrase);
  reference("online.redis_password", s.online.redis_password);
  for (std::size_t i = 0; i < s.blobs.stores.size(); ++i) {
    const auto& store = s.blobs.stores[i];
    const auto path = fmt::format("blobs.stores[{}]", i);
    if (store.kind == "directory" && store.path.empty())
      faults.push_back({path + ".path", "required for kind directory"});
    if (store.kind == "s3" && (store.endpoint.empty() || store.bucket.empty()))
      faults.push_back({path, "kind s3 needs endpoint and bucket"});
    reference(path + ".access_key", store.access_key);
    reference(path + ".secret_key", store.secret_key);
  }
  Faults of_slurm;
  Shape<execute::slurm::Settings>::check(s.slurm, of_slurm);
  for (auto& fault : of_slurm) faults.push_back({"slurm." + fault.where, std::move(fault.what)});
}

}  // namespace falaj
