// SPDX-License-Identifier: Apache-2.0
// The control plane on a real socket: what depends on the connection, the headers and the framing.
#include <gtest/gtest.h>

#include <fstream>

#include <fmt/format.h>

#include "apps/falaj/control_plane.h"
#include "foundation/base/testing.h"
#include "foundation/base/text.h"
#include "foundation/client/api_client.h"
#include "foundation/crypto/certificate.h"
#include "foundation/net/client.h"
#include "foundation/net/testing.h"
#include "foundation/sys/testing.h"

namespace falaj::app {
namespace {

void write_file(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::trunc) << text; }

Settings settings_at(const std::string& data) {
  Settings settings;
  settings.data = data;
  settings.listen = "127.0.0.1:0";
  return settings;
}

std::string read_token(const std::string& data) {
  std::ifstream in(data + "/" + kAdminTokenFile);
  std::string token;
  std::getline(in, token);
  return token;
}

struct Serving {
  sys::TempDir dir;
  ControlPlane plane;
  explicit Serving(const std::function<void(Settings&)>& change = {})
      : plane(
            [&] {
              auto settings = settings_at(dir / "data");
              if (change) change(settings);
              return settings;
            }(),
            {}, {}) {
    plane.serve();
  }
  std::string token() const { return read_token(dir / "data"); }
  std::uint16_t port() const {
    return static_cast<std::uint16_t>(*parse_int(plane.url().substr(plane.url().rfind(':') + 1)));
  }
  net::RawConnection::Answer ask(const std::string& line, const std::string& headers = "",
                                 const std::string& body = "") const {
    net::RawConnection connection(port());
    return connection.ask(fmt::format("{} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{}\r\n{}", line,
                                      body.size(), headers, body));
  }
  std::string bearer() const { return fmt::format("Authorization: Bearer {}\r\n", token()); }
};

const std::string kJson = "Content-Type: application/json\r\n";
const std::string kProject = "scope=/t/default/p/default";

TEST(Http, AsksForACredential) {
  const Serving server;
  const auto answer = server.ask("GET /v1/status");
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.headers.at("www-authenticate"), "Bearer realm=\"falaj\"");
  EXPECT_FALSE(answer.headers.at("x-request-id").empty());
  EXPECT_EQ(server.ask("GET /v1/status", server.bearer()).status, 200);
  EXPECT_EQ(server.ask("GET /readyz").status, 200);
}

TEST(Http, ACookieIsASessionUntilLogout) {
  const Serving server;
  const std::string password = R"({"password":"correct horse battery"})";
  ASSERT_EQ(server.ask("POST /v1/users/admin/password", server.bearer() + kJson, password).status, 200);
  const auto login = server.ask("POST /v1/login", kJson, R"({"user":"admin","password":"correct horse battery"})");
  ASSERT_EQ(login.status, 200) << login.body;
  const std::string cookie =
      fmt::format("Cookie: falaj_session={}\r\n", parse_json(login.body).at("session").as_string().c_str());
  EXPECT_EQ(server.ask("GET /v1/status", cookie).status, 200);
  // A page of another origin has the browser's cookie, too: the server looks at where it comes from.
  EXPECT_EQ(server.ask("POST /v1/blobs/gc", cookie + "Origin: https://evil.example\r\n").status, 403);
  EXPECT_EQ(server.ask("POST /v1/logout", cookie).status, 200);
  EXPECT_EQ(server.ask("GET /v1/status", cookie).status, 401);
  EXPECT_EQ(server.ask("POST /v1/login", kJson, R"({"user":"admin","password":"wrong horse battery"})").status, 401);
}

TEST(Http, SendsAPartOfABlob) {
  const Serving server;
  const auto blob = "/v1/blobs?" + kProject + "&name=a";
  ASSERT_EQ(server.ask("POST " + blob, server.bearer(), "0123456789").status, 200);
  const auto get = [&](const std::string& range) {
    return server.ask("GET /v1/blobs/content?" + kProject + "&name=a", server.bearer() + range);
  };
  const auto whole = get("");
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(whole.body, "0123456789");
  EXPECT_EQ(whole.headers.at("accept-ranges"), "bytes");
  const auto part = get("Range: bytes=2-5\r\n");
  EXPECT_EQ(part.status, 206);
  EXPECT_EQ(part.body, "2345");
  EXPECT_EQ(part.headers.at("content-range"), "bytes 2-5/10");
  EXPECT_EQ(part.headers.at("etag"), whole.headers.at("etag"));
  EXPECT_EQ(get("Range: bytes=-3\r\n").body, "789");
  EXPECT_EQ(get("Range: bytes=8-\r\n").body, "89");
  const auto past = get("Range: bytes=10-\r\n");
  EXPECT_EQ(past.status, 416);
  EXPECT_EQ(past.headers.at("content-range"), "bytes */10");
  net::RawConnection connection(server.port());
  connection.send(
      fmt::format("HEAD /v1/blobs/content?{}&name=a HTTP/1.1\r\nHost: localhost\r\n{}\r\n", kProject, server.bearer()));
  const auto head = connection.read_answer(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), "10");
}

TEST(Http, BodiesHaveALimit) {
  const Serving server;
  constexpr std::size_t kLimit = 64 * 1024;
  const std::string json = R"({"name":"x"})";
  const auto post = [&](std::size_t bytes) {
    return server.ask("POST /v1/tokens", server.bearer() + kJson, json + std::string(bytes - json.size(), ' ')).status;
  };
  EXPECT_EQ(post(kLimit), 200);
  EXPECT_EQ(post(kLimit + 1), 413);
  // The same without saying the length beforehand.
  net::RawConnection connection(server.port());
  connection.send(fmt::format("POST /v1/tokens HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n{}{}\r\n",
                              server.bearer(), kJson));
  for (int i = 0; i < 20; ++i) connection.send("1000\r\n" + std::string(4096, ' ') + "\r\n");
  EXPECT_EQ(connection.read_answer().status, 413);
  EXPECT_EQ(server.ask("GET /v1/whoami", server.bearer(), "x").status, 413);  // takes no body at all
}

TEST(Http, ABatchThatBreaksOffStoresNothing) {
  const Serving server;
  ByteWriter batch;
  for (const auto* name : {"a", "b"}) {
    batch.text(name);
    batch.u64(3);
    batch.raw(as_bytes("xyz"));
  }
  const std::string whole(as_text(batch.bytes()));
  const auto target = "POST /v1/blobs/batch?" + kProject;
  EXPECT_EQ(server.ask(target, server.bearer(), whole.substr(0, whole.size() - 1)).status, 400);
  {
    net::RawConnection connection(server.port());  // the client dies in the middle
    connection.send(fmt::format("{} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{}\r\n{}", target,
                                whole.size(), server.bearer(), whole.substr(0, whole.size() - 1)));
  }
  const auto list = [&] {
    return parse_json(server.ask("GET /v1/blobs?" + kProject, server.bearer()).body).at("items").as_array().size();
  };
  EXPECT_EQ(list(), 0U);
  EXPECT_EQ(server.ask(target, server.bearer(), whole).status, 200);
  EXPECT_EQ(list(), 2U);
}

TEST(Http, OtherNamesAreNotOurs) {
  const Serving server;
  net::RawConnection connection(server.port());
  EXPECT_EQ(connection.ask("GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n").status, 421);
}

// A CA, the server's certificate and a client's, as files.
struct Pki {
  std::int64_t now = sys::RealClock().wall().count() / 1'000'000;
  sys::TempDir dir;
  crypto::CertificatePair ca = crypto::make_ca("test CA", now - 60, now + 3600);
  Pki() {
    write_file(dir / "ca.pem", ca.certificate_pem);
    issue("server", true);
  }
  Digest issue(const std::string& name, bool server) {
    crypto::CertificateRequest request;
    request.common_name = name;
    request.dns_names = {"localhost"};
    request.ip_addresses = {"127.0.0.1"};
    request.not_before_unix_s = now - 60;
    request.not_after_unix_s = now + 3600;
    (server ? request.server : request.client) = true;
    const auto pair = crypto::issue(ca, request);
    write_file(dir / (name + ".pem"), pair.certificate_pem);
    write_file(dir / (name + ".key"), pair.key_pem);
    return crypto::read_certificate(pair.certificate_pem).fingerprint;
  }
};

TEST(Http, AClientCertificateStandsForAPrincipal) {
  Pki pki;
  const auto print = pki.issue("robot", false);
  pki.issue("stranger", false);
  Serving server([&](Settings& settings) {
    settings.tls = {pki.dir / "server.pem", pki.dir / "server.key", pki.dir / "ca.pem"};
  });
  const auto who = [&](const std::string& certificate, const std::string& token = "") {
    net::ClientOptions options;
    options.ca_file = pki.dir / "ca.pem";
    if (!certificate.empty()) {
      options.certificate_file = pki.dir / (certificate + ".pem");
      options.key_file = pki.dir / (certificate + ".key");
    }
    net::ClientRequest request;
    request.url = server.plane.url() + "/v1/whoami";
    if (!token.empty()) request.headers.add("Authorization", "Bearer " + token);
    const auto answer = net::Client(options).send(request);
    return answer.status == 200 ? std::string(parse_json(answer.body).at("principal").as_string())
                                : std::to_string(answer.status);
  };
  EXPECT_EQ(who("robot"), "401");  // our CA's, but of nobody
  client::Target target;
  target.url = server.plane.url();
  target.token = server.token();
  target.ca_file = pki.dir / "ca.pem";
  client::ApiClient admin(target);
  admin.post("/v1/certificates", {{"fingerprint", print.hex()}, {"principal", "user/admin"}});
  EXPECT_EQ(who("robot"), "user/admin");
  EXPECT_EQ(who("stranger"), "401");
  EXPECT_EQ(who(""), "401");
  EXPECT_EQ(who("robot", "falaj_wrong"), "401");  // a bad token does not fall back to the certificate
  admin.del("/v1/certificates/" + print.hex());
  EXPECT_EQ(who("robot"), "401");
}

TEST(Http, StoppingLetsWhatWasAcceptedFinish) {
  Serving server;
  net::RawConnection connection(server.port());
  EXPECT_EQ(connection.ask("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 200);
  server.plane.stop();
  EXPECT_EQ(connection.read_until_closed(), "");
}

}  // namespace
}  // namespace falaj::app
