// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/tls.h"

#include <sys/stat.h>

#include <fmt/format.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "foundation/base/log.h"

namespace falaj::net {
namespace {

std::shared_ptr<asio::ssl::context> load(const TlsFiles& files) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX* raw = context->native_handle();
  SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION);
  SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // No resumption: a client certificate is then always checked against the CA of today.
  SSL_CTX_set_num_tickets(raw, 0);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(raw, SSL_MODE_RELEASE_BUFFERS);  // idle connections hold no record buffers
  const auto step = [](const char* what, const error_code& failed) {
    if (failed) throw Error(Code::invalid, fmt::format("load TLS {}: {}", what, failed.message()));
  };
  error_code failed;
  context->use_certificate_chain_file(files.certificate_file, failed);
  step("certificate", failed);
  context->use_private_key_file(files.key_file, asio::ssl::context::pem, failed);
  step("key", failed);
  if (SSL_CTX_check_private_key(raw) != 1) throw Error(Code::invalid, "load TLS key: it is not the certificate's");
  if (!files.client_ca_file.empty()) {
    context->load_verify_file(files.client_ca_file, failed);
    step("client CA", failed);
    context->set_verify_mode(asio::ssl::verify_peer, failed);
    step("client CA", failed);
  }
  return context;
}

}  // namespace

void check_tls(const TlsFiles& files) { load(files); }

TlsKeeper::TlsKeeper(TlsFiles files) : files_(std::move(files)), loaded_(stamps()), current_(load(files_)) {}

std::shared_ptr<asio::ssl::context> TlsKeeper::current() const {
  Lock lock(mu_);
  return current_;
}

TlsKeeper::Stamps TlsKeeper::stamps() const {
  Stamps out;
  const std::string* paths[] = {&files_.certificate_file, &files_.key_file, &files_.client_ca_file};
  for (std::size_t i = 0; i < out.size(); ++i) {
    struct stat info {};
    if (paths[i]->empty() || ::stat(paths[i]->c_str(), &info) != 0) continue;
    out[i] = {static_cast<std::int64_t>(info.st_ino), info.st_size,
              info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
  }
  return out;
}

void TlsKeeper::reload_if_changed() {
  const auto now = stamps();
  {
    Lock lock(mu_);
    if (now == loaded_) return;
    loaded_ = now;  // a broken file is reported once, not at every look
  }
  try {
    auto fresh = load(files_);
    log::info("tls_certificate_reloaded");
    Lock lock(mu_);
    current_ = std::move(fresh);
  } catch (const Error& error) {
    log::warn("tls_certificate_kept", {{"reason", error.what()}});
  }
}

std::optional<Digest> client_certificate(SSL* connection) {
  const std::unique_ptr<X509, decltype(&X509_free)> shown(SSL_get1_peer_certificate(connection), X509_free);
  if (!shown || SSL_get_verify_result(connection) != X509_V_OK) return std::nullopt;
  Digest digest;
  unsigned length = 0;
  if (X509_digest(shown.get(), EVP_sha256(), raw(std::span(digest.bytes)), &length) != 1) return std::nullopt;
  return digest;
}

}  // namespace falaj::net
