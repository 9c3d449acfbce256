// SPDX-License-Identifier: Apache-2.0
// gRPC over TLS: the versions it speaks, whom it trusts, and what it knows of its clients.
#include <openssl/ssl.h>

#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <inference.pb.h>

#include "compute/protocol/grpc_library.h"
#include "compute/protocol/grpc_peer.h"
#include "compute/protocol/testing.h"
#include "foundation/base/testing.h"
#include "foundation/crypto/certificate.h"
#include "foundation/net/testing.h"
#include "foundation/sys/testing.h"

namespace falaj::protocol {
namespace {

// A CA, and certificates that it issued.
struct GrpcTls : testing::Test {
  std::int64_t now = sys::RealClock().wall().count() / 1'000'000;
  sys::TempDir dir;
  crypto::CertificatePair ca = crypto::make_ca("test CA", now - 60, now + 3600);
  net::TlsFiles files{dir / "server.pem", dir / "server.key", dir / "ca.pem"};

  GrpcTls() {
    const auto server = issue(ca, true);
    write(files.certificate_file, server.certificate_pem);
    write(files.key_file, server.key_pem);
    write(files.client_ca_file, ca.certificate_pem);
  }
  static void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::trunc) << text; }
  crypto::CertificatePair issue(const crypto::CertificatePair& by, bool server) const {
    crypto::CertificateRequest request;
    request.common_name = server ? "server" : "client";
    request.ip_addresses = {"127.0.0.1"};
    request.not_before_unix_s = now - 60;
    request.not_after_unix_s = now + 3600;
    (server ? request.server : request.client) = true;
    return crypto::issue(by, request);
  }
  // The status of a call, by a client that shows `shown`, if that is anything.
  grpc::StatusCode ask(std::uint16_t port, const crypto::CertificatePair& shown) const {
    grpc::SslCredentialsOptions options{ca.certificate_pem, shown.key_pem, shown.certificate_pem};
    const auto channel = grpc::CreateChannel(fmt::format("127.0.0.1:{}", port), grpc::SslCredentials(options));
    grpc::ClientContext context;
    context.set_deadline(gpr_time_from_seconds(10, GPR_TIMESPAN));
    inference::ModelReadyRequest in;
    in.set_name("add_one");
    inference::ModelReadyResponse out;
    const grpc::internal::RpcMethod rpc("/inference.GRPCInferenceService/ModelReady",
                                        grpc::internal::RpcMethod::NORMAL_RPC, channel);
    return grpc::internal::BlockingUnaryCall<inference::ModelReadyRequest, inference::ModelReadyResponse>(
               channel.get(), rpc, &context, in, &out)
        .error_code();
  }
};

// Remembers who asked.
class Remembering final : public FakeInference {
 public:
  void admit(const Caller& caller) const override {
    Lock lock(mu_);
    peer_ = *caller.peer;
  }
  net::Peer peer() const {
    Lock lock(mu_);
    return peer_;
  }

 private:
  mutable Mutex mu_;
  mutable net::Peer peer_ GUARDED_BY(mu_);
};

bool shakes_hands(std::uint16_t port, int version) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  SSL_CTX_set_max_proto_version(context.get(), version);
  const unsigned char h2[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context.get(), h2, sizeof h2);
  const net::RawConnection connection(port);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), SSL_free);
  SSL_set_fd(ssl.get(), connection.descriptor());
  return SSL_connect(ssl.get()) == 1;
}

TEST_F(GrpcTls, KnowsItsClientsAndSpeaksNothingOlderThan13) {
  sys::RealClock clock;
  sys::RealRandom random;
  sys::Ids ids(clock, random);
  Metrics metrics;
  Remembering inference;
  GrpcServer server("127.0.0.1", 0, files, {}, inference, clock, ids, metrics);

  EXPECT_EQ(ask(server.port(), {}), grpc::StatusCode::OK);
  EXPECT_TRUE(inference.peer().tls);
  EXPECT_EQ(inference.peer().address, "127.0.0.1");
  EXPECT_FALSE(inference.peer().certificate);

  const auto known = issue(ca, false);
  EXPECT_EQ(ask(server.port(), known), grpc::StatusCode::OK);
  EXPECT_EQ(inference.peer().certificate, crypto::read_certificate(known.certificate_pem).fingerprint);

  const auto other = issue(crypto::make_ca("other CA", now - 60, now + 3600), false);
  EXPECT_NE(ask(server.port(), other), grpc::StatusCode::OK);

  EXPECT_TRUE(shakes_hands(server.port(), TLS1_3_VERSION));
  EXPECT_FALSE(shakes_hands(server.port(), TLS1_2_VERSION));
}

TEST_F(GrpcTls, FilesThatCannotBeUsedAreRefused) {
  write(files.key_file, issue(ca, true).key_pem);
  EXPECT_ERROR(credentials_of(files), Code::invalid);
}

TEST(GrpcPeer, IsItsAddress) {
  EXPECT_EQ(address_of("ipv4:10.0.0.7:1234"), "10.0.0.7");
  EXPECT_EQ(address_of("ipv6:%5B::1%5D:1234"), "::1");
  EXPECT_EQ(address_of("ipv6:[::1]:1234"), "::1");
}

}  // namespace
}  // namespace falaj::protocol
