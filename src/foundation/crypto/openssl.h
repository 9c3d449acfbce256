// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to crypto: OpenSSL's objects with owners, and what is fetched from its providers once per process (a fetch
// takes locks and allocates, far longer than the hash of a small message).

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "foundation/base/bytes.h"
#include "foundation/base/error.h"

namespace falaj::crypto {

template <auto kFree>
struct Freed {
  template <class T>
  void operator()(T* p) const {
    kFree(p);
  }
};
using MdCtx = std::unique_ptr<EVP_MD_CTX, Freed<EVP_MD_CTX_free>>;
using CipherCtx = std::unique_ptr<EVP_CIPHER_CTX, Freed<EVP_CIPHER_CTX_free>>;
using Pkey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Bio = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using X509Ptr = std::unique_ptr<X509, Freed<X509_free>>;

const EVP_MD* sha256_algorithm();
const EVP_CIPHER* aes_256_gcm_algorithm();

// Throws internal unless OpenSSL said yes. Its error queue is emptied, so that the next call starts clean.
void must(bool ok, const char* doing);

// HMAC and HKDF (RFC 2104, RFC 5869) for keys and outputs of any length; the public functions fix both at 32 bytes.
Digest hmac_sha256(BytesView key, std::initializer_list<BytesView> parts);
void hkdf_sha256(BytesView key, BytesView salt, std::initializer_list<BytesView> info, std::span<std::byte> out);

}  // namespace falaj::crypto
