// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/certificate.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <ctime>

#include "foundation/crypto/openssl.h"

namespace falaj::crypto {

namespace {

using GeneralNames = std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES_free>>;
using Asn1Octets = std::unique_ptr<ASN1_OCTET_STRING, Freed<ASN1_OCTET_STRING_free>>;

std::string text_of(BIO* bio) {
  const char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(size)};
}
std::string to_pem(X509* certificate) {
  const Bio out(BIO_new(BIO_s_mem()));
  must(out && PEM_write_bio_X509(out.get(), certificate) == 1, "write a certificate");
  return text_of(out.get());
}
std::string to_pem(EVP_PKEY* key) {
  const Bio out(BIO_new(BIO_s_secmem()));
  must(out && PEM_write_bio_PrivateKey(out.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1, "write a key");
  return text_of(out.get());
}

// A PEM reader that never asks a terminal for a passphrase.
int no_passphrase(char*, int, int, void*) { return -1; }

X509Ptr parse_certificate(const std::string& pem) {
  const Bio in(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  X509Ptr certificate(in ? PEM_read_bio_X509(in.get(), nullptr, no_passphrase, nullptr) : nullptr);
  if (!certificate) {
    ERR_clear_error();
    throw Error(Code::invalid, "read a certificate: not a PEM certificate");
  }
  return certificate;
}
Pkey parse_key(const std::string& pem) {
  const Bio in(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Pkey key(in ? PEM_read_bio_PrivateKey(in.get(), nullptr, no_passphrase, nullptr) : nullptr);
  if (!key) {
    ERR_clear_error();
    throw Error(Code::invalid, "read a private key: not a PEM key without passphrase");
  }
  return key;
}

void add_extension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX ctx;
  X509V3_set_ctx(&ctx, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &ctx, nid, value));
  must(extension && X509_add_ext(certificate, extension.get(), -1) == 1, "add an extension to a certificate");
}

// Built as values, not as OpenSSL's configuration text, where a comma in a name would start another name.
void add_name(GENERAL_NAMES* names, int type, BytesView value) {
  std::unique_ptr<GENERAL_NAME, Freed<GENERAL_NAME_free>> name(GENERAL_NAME_new());
  ASN1_STRING* text =
      type == GEN_IPADD ? static_cast<ASN1_STRING*>(ASN1_OCTET_STRING_new()) : ASN1_STRING_type_new(V_ASN1_IA5STRING);
  must(name && text, "name a certificate");
  GENERAL_NAME_set0_value(name.get(), type, text);
  must(ASN1_STRING_set(text, value.data(), static_cast<int>(value.size())) == 1, "name a certificate");
  must(sk_GENERAL_NAME_push(names, name.get()) > 0, "name a certificate");
  (void)name.release();
}

void add_names(X509* certificate, const CertificateRequest& request) {
  const GeneralNames names(GENERAL_NAMES_new());
  must(names != nullptr, "name a certificate");
  for (const auto& dns : request.dns_names) add_name(names.get(), GEN_DNS, as_bytes(dns));
  for (const auto& uri : request.uris) add_name(names.get(), GEN_URI, as_bytes(uri));
  for (const auto& ip : request.ip_addresses) {
    const Asn1Octets octets(a2i_IPADDRESS(ip.c_str()));
    if (!octets) {
      ERR_clear_error();
      throw Error(Code::invalid, "issue a certificate: not an IP address: " + ip);
    }
    const auto* data = reinterpret_cast<const std::byte*>(ASN1_STRING_get0_data(octets.get()));
    add_name(names.get(), GEN_IPADD, {data, static_cast<std::size_t>(ASN1_STRING_length(octets.get()))});
  }
  if (sk_GENERAL_NAME_num(names.get()) == 0) return;
  must(X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, 0) == 1, "name a certificate");
}

void set_common_name(X509_NAME* name, const std::string& common_name) {
  if (common_name.empty() || common_name.size() > 64) {
    throw Error(Code::invalid, "issue a certificate: a common name has 1 to 64 bytes");
  }
  must(X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8, raw(as_bytes(common_name)),
                                  static_cast<int>(common_name.size()), -1, 0) == 1,
       "name a certificate");
}

// Everything a CA's and a leaf's certificate share; extensions and signature are still missing.
X509Ptr draft(const std::string& common_name, EVP_PKEY* key, std::int64_t not_before, std::int64_t not_after) {
  if (not_after <= not_before) throw Error(Code::invalid, "issue a certificate: it would end before it begins");
  X509Ptr certificate(X509_new());
  must(certificate && X509_set_version(certificate.get(), X509_VERSION_3) == 1, "make a certificate");
  unsigned char serial[16];
  must(RAND_bytes(serial, sizeof serial) == 1, "make a serial number");
  serial[0] = static_cast<unsigned char>((serial[0] & 0x7f) | 0x40);  // positive, and always of the same length
  const std::unique_ptr<BIGNUM, Freed<BN_free>> number(BN_bin2bn(serial, sizeof serial, nullptr));
  must(number && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate.get())), "make a serial number");
  must(ASN1_TIME_set(X509_getm_notBefore(certificate.get()), not_before) &&
           ASN1_TIME_set(X509_getm_notAfter(certificate.get()), not_after),
       "date a certificate");
  must(X509_set_pubkey(certificate.get(), key) == 1, "make a certificate");
  set_common_name(X509_get_subject_name(certificate.get()), common_name);
  return certificate;
}

Pkey new_key() {
  Pkey key(EVP_EC_gen("P-256"));
  must(key != nullptr, "make a P-256 key");
  return key;
}

std::int64_t unix_seconds(const ASN1_TIME* time) {
  std::tm parts{};
  must(ASN1_TIME_to_tm(time, &parts) == 1, "read a certificate's dates");
  return timegm(&parts);
}

std::string text_of(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<std::size_t>(ASN1_STRING_length(text))};
}

}  // namespace

CertificatePair make_ca(const std::string& common_name, std::int64_t not_before_unix_s, std::int64_t not_after_unix_s) {
  const Pkey key = new_key();
  const X509Ptr ca = draft(common_name, key.get(), not_before_unix_s, not_after_unix_s);
  must(X509_set_issuer_name(ca.get(), X509_get_subject_name(ca.get())) == 1, "make a CA");
  add_extension(ca.get(), ca.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  add_extension(ca.get(), ca.get(), NID_key_usage, "critical,keyCertSign,cRLSign");
  add_extension(ca.get(), ca.get(), NID_subject_key_identifier, "hash");
  must(X509_sign(ca.get(), key.get(), sha256_algorithm()) > 0, "sign a CA");
  return {to_pem(ca.get()), to_pem(key.get())};
}

CertificatePair issue(const CertificatePair& ca, const CertificateRequest& request) {
  const X509Ptr issuer = parse_certificate(ca.certificate_pem);
  const Pkey issuer_key = parse_key(ca.key_pem);
  const Pkey key = new_key();
  const X509Ptr leaf = draft(request.common_name, key.get(), request.not_before_unix_s, request.not_after_unix_s);
  must(X509_set_issuer_name(leaf.get(), X509_get_subject_name(issuer.get())) == 1, "issue a certificate");
  add_extension(leaf.get(), issuer.get(), NID_basic_constraints, "critical,CA:FALSE");
  add_extension(leaf.get(), issuer.get(), NID_key_usage, "critical,digitalSignature");
  if (!request.server && !request.client) throw Error(Code::invalid, "issue a certificate: neither server nor client");
  const char* usage = !request.client ? "serverAuth" : request.server ? "serverAuth,clientAuth" : "clientAuth";
  add_extension(leaf.get(), issuer.get(), NID_ext_key_usage, usage);
  add_extension(leaf.get(), issuer.get(), NID_subject_key_identifier, "hash");
  add_extension(leaf.get(), issuer.get(), NID_authority_key_identifier, "keyid:always");
  add_names(leaf.get(), request);
  must(X509_sign(leaf.get(), issuer_key.get(), sha256_algorithm()) > 0, "sign a certificate");
  return {to_pem(leaf.get()), to_pem(key.get())};
}

CertificateInfo read_certificate(const std::string& pem) {
  const X509Ptr certificate = parse_certificate(pem);
  CertificateInfo info;
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  if (const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1); at >= 0) {
    info.common_name = text_of(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
  }
  const GeneralNames names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    int type = 0;
    const auto* value =
        static_cast<const ASN1_STRING*>(GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names.get(), i), &type));
    if (type == GEN_DNS) info.dns_names.push_back(text_of(value));
    if (type == GEN_URI) info.uris.push_back(text_of(value));
  }
  info.not_before_unix_s = unix_seconds(X509_get0_notBefore(certificate.get()));
  info.not_after_unix_s = unix_seconds(X509_get0_notAfter(certificate.get()));
  unsigned int size = 0;
  must(X509_digest(certificate.get(), sha256_algorithm(), raw(info.fingerprint.bytes), &size) == 1 && size == 32,
       "fingerprint a certificate");
  return info;
}

}  // namespace falaj::crypto
