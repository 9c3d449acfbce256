// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/tls.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <fstream>

#include "foundation/base/testing.h"
#include "foundation/crypto/certificate.h"
#include "foundation/net/client.h"
#include "foundation/net/testing.h"
#include "foundation/sys/testing.h"

namespace falaj::net {
namespace {

void write_file(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::trunc) << text; }

// A CA, a server's and a client's certificate, as files.
struct Pki {
  std::int64_t now = sys::RealClock().wall().count() / 1'000'000;
  sys::TempDir dir;
  crypto::CertificatePair ca = crypto::make_ca("test CA", now - 60, now + 3600);
  crypto::CertificatePair other_ca = crypto::make_ca("other CA", now - 60, now + 3600);
  TlsFiles files{dir / "server.pem", dir / "server.key", ""};

  Pki() {
    write_file(dir / "ca.pem", ca.certificate_pem);
    write_file(dir / "other_ca.pem", other_ca.certificate_pem);
    renew();
  }
  crypto::CertificatePair issue(const crypto::CertificatePair& by, bool server) const {
    crypto::CertificateRequest request;
    request.common_name = server ? "server" : "client";
    request.dns_names = {"localhost"};
    request.ip_addresses = {"127.0.0.1"};
    request.not_before_unix_s = now - 60;
    request.not_after_unix_s = now + 3600;
    (server ? request.server : request.client) = true;
    return crypto::issue(by, request);
  }
  Digest renew() {
    const auto pair = issue(ca, true);
    write_file(files.certificate_file, pair.certificate_pem);
    write_file(files.key_file, pair.key_pem);
    return crypto::read_certificate(pair.certificate_pem).fingerprint;
  }
  ClientOptions trusting() const {
    ClientOptions options;
    options.ca_file = dir / "ca.pem";
    return options;
  }
};

struct TlsTest : testing::Test {
  Pki pki;
  static Admission say_peer(const Head&) {
    return run(Place::worker, 10 << 20, [](Request& request) {
      const auto& peer = request.head.peer;
      return text_response(200, std::string(peer.tls ? "tls " : "plain ") +
                                    (peer.certificate ? peer.certificate->hex() : "nobody") +
                                    std::to_string(request.body.read_all().size()));
    });
  }
  static ClientRequest ask(const TestServer& test, const std::string& host = "127.0.0.1") {
    ClientRequest request;
    request.url = "https://" + host + ":" + std::to_string(test.port()) + "/";
    return request;
  }
};

TEST_F(TlsTest, AnswersThoseWhoTrustItsCa) {
  TestServer test({}, pki.files);
  test.service.on_admit = say_peer;
  Client client(pki.trusting());
  EXPECT_EQ(client.send(ask(test)).body, "tls nobody0");
  EXPECT_EQ(client.send(ask(test, "localhost")).body, "tls nobody0");
  auto upload = ask(test);
  upload.method = Method::put;
  upload.body = std::string(3 << 20, 'x');
  EXPECT_EQ(client.send(upload).body, "tls nobody" + std::to_string(3 << 20));
}

TEST_F(TlsTest, IsNotTrustedByOthers) {
  TestServer test({}, pki.files);
  test.service.on_admit = say_peer;
  ClientOptions other;
  other.ca_file = pki.dir / "other_ca.pem";
  EXPECT_ERROR(Client(other).send(ask(test)), Code::denied);
  EXPECT_ERROR(Client(ClientOptions{}).send(ask(test)), Code::denied);
}

TEST_F(TlsTest, IsTrustedByItsPinAlone) {
  const auto pin = pki.renew();
  TestServer test({}, pki.files);
  test.service.on_admit = say_peer;
  ClientOptions options;
  options.pinned_certificate = pin;
  EXPECT_EQ(Client(options).send(ask(test)).status, 200);
  options.pinned_certificate->bytes[0] ^= std::byte{1};
  EXPECT_ERROR(Client(options).send(ask(test)), Code::denied);
}

// A handshake with at most `version`; the server's certificate if it succeeded.
std::optional<Digest> shake_hands(std::uint16_t port, int version) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  SSL_CTX_set_max_proto_version(context.get(), version);
  const RawConnection connection(port);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), SSL_free);
  SSL_set_fd(ssl.get(), connection.descriptor());
  if (SSL_connect(ssl.get()) != 1) return std::nullopt;
  const std::unique_ptr<X509, decltype(&X509_free)> shown(SSL_get1_peer_certificate(ssl.get()), X509_free);
  Digest digest;
  unsigned length = 0;
  X509_digest(shown.get(), EVP_sha256(), raw(std::span(digest.bytes)), &length);
  return digest;
}

TEST_F(TlsTest, SpeaksNothingOlderThan13) {
  TestServer test({}, pki.files);
  EXPECT_TRUE(shake_hands(test.port(), TLS1_3_VERSION));
  EXPECT_FALSE(shake_hands(test.port(), TLS1_2_VERSION));
  auto plain = test.connect();
  plain.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  plain.finish_sending();
  EXPECT_EQ(plain.read_until_closed().find("HTTP"), std::string::npos);
}

TEST_F(TlsTest, CutsOffSlowHandshakes) {
  ServerLimits limits;
  limits.head_wait_us = 100'000;
  TestServer test(limits, pki.files);
  auto c = test.connect();
  EXPECT_EQ(c.read_until_closed(), "");
}

TEST_F(TlsTest, KnowsClientsByTheirCertificate) {
  pki.files.client_ca_file = pki.dir / "ca.pem";
  TestServer test({}, pki.files);
  test.service.on_admit = say_peer;
  const auto use = [&](const crypto::CertificatePair& pair) {
    auto options = pki.trusting();
    options.certificate_file = pki.dir / "client.pem";
    options.key_file = pki.dir / "client.key";
    write_file(options.certificate_file, pair.certificate_pem);
    write_file(options.key_file, pair.key_pem);
    return Client(options).send(ask(test)).body;
  };
  const auto good = pki.issue(pki.ca, false);
  EXPECT_EQ(use(good), "tls " + crypto::read_certificate(good.certificate_pem).fingerprint.hex() + "0");
  EXPECT_EQ(Client(pki.trusting()).send(ask(test)).body, "tls nobody0") << "asked for, not demanded";
  EXPECT_ERROR(use(pki.issue(pki.other_ca, false)), Code::unavailable);
  EXPECT_ERROR(use(pki.issue(pki.ca, true)), Code::unavailable);  // a server's is not a client's
}

TEST_F(TlsTest, ShowsANewCertificateWithoutARestart) {
  const auto before = pki.renew();
  ServerLimits limits;
  limits.idle_wait_us = 100'000;  // the clock that looks at the files ticks with the shortest limit
  TestServer test(limits, pki.files);
  EXPECT_EQ(shake_hands(test.port(), TLS1_3_VERSION), before);
  const auto after = pki.renew();
  auto shown = before;
  for (int tries = 0; tries < 10'000 && shown != after; ++tries)
    shown = shake_hands(test.port(), TLS1_3_VERSION).value_or(before);
  EXPECT_EQ(shown, after);
}

TEST_F(TlsTest, KeepsTheOldCertificateWhenTheNewOneIsBroken) {
  TlsKeeper keeper(pki.files);
  const auto first = keeper.current();
  keeper.reload_if_changed();
  EXPECT_EQ(keeper.current(), first) << "nothing changed";
  write_file(pki.files.certificate_file, "not a certificate");
  keeper.reload_if_changed();
  EXPECT_EQ(keeper.current(), first);
  pki.renew();
  keeper.reload_if_changed();
  EXPECT_NE(keeper.current(), first);
  const auto second = keeper.current();
  write_file(pki.files.key_file, pki.issue(pki.ca, true).key_pem);
  keeper.reload_if_changed();
  EXPECT_EQ(keeper.current(), second) << "a key of another certificate";
}

TEST_F(TlsTest, RefusesToStartWithoutAUsableCertificate) {
  write_file(pki.files.key_file, "nothing");
  EXPECT_ERROR(TestServer({}, pki.files), Code::invalid);
}

}  // namespace
}  // namespace falaj::net
