// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/certificate.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include "foundation/base/testing.h"
#include "foundation/crypto/openssl.h"

namespace falaj::crypto {
namespace {

constexpr std::int64_t kNow = 1'800'000'000;
constexpr std::int64_t kDay = 86'400;

X509Ptr parsed(const std::string& pem) {
  const Bio in(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  return X509Ptr(PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr));
}

void sk_X509_free_wrapped(STACK_OF(X509) * chain) { sk_X509_free(chain); }  // a macro has no address

struct Check {
  int purpose = X509_PURPOSE_SSL_SERVER;
  std::int64_t when = kNow;
  std::string host = {}, ip = {};
  std::string untrusted = {};  // a certificate sent along by the other side
};

// OpenSSL's own verdict; X509_V_OK or why not.
int verdict(const std::string& leaf_pem, const std::string& ca_pem, const Check& check) {
  const std::unique_ptr<X509_STORE, Freed<X509_STORE_free>> store(X509_STORE_new());
  const X509Ptr ca = parsed(ca_pem), leaf = parsed(leaf_pem);
  X509_STORE_add_cert(store.get(), ca.get());
  const std::unique_ptr<X509_STORE_CTX, Freed<X509_STORE_CTX_free>> ctx(X509_STORE_CTX_new());
  const std::unique_ptr<STACK_OF(X509), Freed<sk_X509_free_wrapped>> chain(sk_X509_new_null());
  const X509Ptr untrusted = parsed(check.untrusted);
  if (untrusted) sk_X509_push(chain.get(), untrusted.get());
  X509_STORE_CTX_init(ctx.get(), store.get(), leaf.get(), chain.get());
  X509_VERIFY_PARAM* param = X509_STORE_CTX_get0_param(ctx.get());
  X509_VERIFY_PARAM_set_purpose(param, check.purpose);
  X509_VERIFY_PARAM_set_time(param, check.when);
  X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_X509_STRICT | X509_V_FLAG_CHECK_SS_SIGNATURE);
  if (!check.host.empty()) X509_VERIFY_PARAM_set1_host(param, check.host.c_str(), 0);
  if (!check.ip.empty()) X509_VERIFY_PARAM_set1_ip_asc(param, check.ip.c_str());
  X509_verify_cert(ctx.get());
  return X509_STORE_CTX_get_error(ctx.get());
}

class Certificates : public testing::Test {
 protected:
  CertificateRequest request() const {
    CertificateRequest r;
    r.common_name = "control plane";
    r.dns_names = {"falaj.example", "localhost"};
    r.ip_addresses = {"127.0.0.1", "::1"};
    r.uris = {"spiffe://falaj/tenant/acme/agent/7"};
    r.not_before_unix_s = kNow - kDay;
    r.not_after_unix_s = kNow + kDay;
    r.server = true;
    return r;
  }
  const CertificatePair ca_ = make_ca("Falaj CA", kNow - 10 * kDay, kNow + 10 * kDay);
};

TEST_F(Certificates, SatisfyOpenSslsStrictChainCheck) {
  const CertificatePair leaf = issue(ca_, request());
  const auto check = [&](Check c) { return verdict(leaf.certificate_pem, ca_.certificate_pem, c); };
  EXPECT_EQ(check({}), X509_V_OK);
  EXPECT_EQ(check({.host = "falaj.example"}), X509_V_OK);
  EXPECT_EQ(check({.ip = "127.0.0.1"}), X509_V_OK);
  EXPECT_EQ(check({.ip = "::1"}), X509_V_OK);
  EXPECT_EQ(check({.host = "other.example"}), X509_V_ERR_HOSTNAME_MISMATCH);
  EXPECT_EQ(check({.ip = "127.0.0.2"}), X509_V_ERR_IP_ADDRESS_MISMATCH);
  EXPECT_EQ(check({.when = kNow + 2 * kDay}), X509_V_ERR_CERT_HAS_EXPIRED);
  EXPECT_EQ(check({.when = kNow - 2 * kDay}), X509_V_ERR_CERT_NOT_YET_VALID);
  EXPECT_EQ(check({.purpose = X509_PURPOSE_SSL_CLIENT}), X509_V_ERR_INVALID_PURPOSE);
}

TEST_F(Certificates, OfAClientAreNoServers) {
  CertificateRequest r = request();
  r.server = false;
  r.client = true;
  const std::string pem = issue(ca_, r).certificate_pem;
  EXPECT_EQ(verdict(pem, ca_.certificate_pem, {.purpose = X509_PURPOSE_SSL_CLIENT}), X509_V_OK);
  EXPECT_EQ(verdict(pem, ca_.certificate_pem, {}), X509_V_ERR_INVALID_PURPOSE);
  r.client = false;
  EXPECT_ERROR(issue(ca_, r), Code::invalid);
}

TEST_F(Certificates, OfAnotherCaAreRefused) {
  const CertificatePair other = make_ca("Falaj CA", kNow - kDay, kNow + kDay);
  EXPECT_NE(verdict(issue(ca_, request()).certificate_pem, other.certificate_pem, {}), X509_V_OK);
}

TEST_F(Certificates, ALeafCannotIssue) {
  const CertificatePair leaf = issue(ca_, request());
  CertificateRequest r = request();
  r.common_name = "forged";
  EXPECT_EQ(verdict(issue(leaf, r).certificate_pem, ca_.certificate_pem, {.untrusted = leaf.certificate_pem}),
            X509_V_ERR_INVALID_CA);
}

TEST_F(Certificates, AreReadBack) {
  const CertificateInfo info = read_certificate(issue(ca_, request()).certificate_pem);
  EXPECT_EQ(info.common_name, "control plane");
  EXPECT_EQ(info.dns_names, (std::vector<std::string>{"falaj.example", "localhost"}));
  EXPECT_EQ(info.uris, (std::vector<std::string>{"spiffe://falaj/tenant/acme/agent/7"}));
  EXPECT_EQ(info.not_before_unix_s, kNow - kDay);
  EXPECT_EQ(info.not_after_unix_s, kNow + kDay);
  EXPECT_NE(info.fingerprint, read_certificate(issue(ca_, request()).certificate_pem).fingerprint);
}

TEST_F(Certificates, TakeNamesLiterally) {
  CertificateRequest r = request();
  r.dns_names = {"a.example,DNS:evil.example"};
  EXPECT_EQ(read_certificate(issue(ca_, r).certificate_pem).dns_names, r.dns_names);
  r.ip_addresses = {"not an address"};
  EXPECT_ERROR(issue(ca_, r), Code::invalid);
  r = request();
  r.common_name = "";
  EXPECT_ERROR(issue(ca_, r), Code::invalid);
  r = request();
  r.not_after_unix_s = r.not_before_unix_s;
  EXPECT_ERROR(issue(ca_, r), Code::invalid);
}

TEST(Certificate, RefusesWhatIsNone) {
  EXPECT_ERROR(read_certificate(""), Code::invalid);
  EXPECT_ERROR(read_certificate("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), Code::invalid);
}

}  // namespace
}  // namespace falaj::crypto
