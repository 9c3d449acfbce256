// SPDX-License-Identifier: Apache-2.0
#include <fstream>

#include <fmt/format.h>

#include "foundation/base/mutex.h"
#include "foundation/base/text.h"
#include "foundation/net/client.h"
#include "lifecycle/execute/slurm/command.h"
#include "lifecycle/execute/slurm/gateway.h"
#include "lifecycle/execute/slurm/wire.h"

namespace falaj::execute::slurm {
namespace {

constexpr std::string_view kBase = "/slurm/v0.0.38";
constexpr auto kAgainAfter = std::chrono::seconds(30);

// Where the token comes from. Kept until slurmrestd refuses it.
class Token {
 public:
  Token(const Settings& settings, sys::Processes& processes)
      : file_(settings.token_file), command_(settings.token_command), processes_(processes) {}

  // `refused`: the token that was, so that callers who were refused at once make one new token, not one each. The same
  // comes back when one was made lately: then the token was not to blame, but a controller that is away.
  std::string get(const std::string& refused) {
    Lock lock(mu_);
    const auto now = clock_.now();
    const bool again = !token_.empty() && token_ == refused && now >= again_at_;
    if (again) again_at_ = now + kAgainAfter;
    if (again || token_.empty()) token_ = obtain();
    return token_;
  }

 private:
  std::string obtain() const {
    std::string text;
    if (!command_.empty()) {
      text = run_command(processes_, command_, "making a token for slurmrestd").output;
    } else {
      std::ifstream in(file_);
      if (!in) throw Error(Code::unavailable, "the token file for slurmrestd cannot be read");
      std::getline(in, text);
    }
    std::string_view token = trim(text);
    constexpr std::string_view kPrinted = "SLURM_JWT=";  // as scontrol prints it
    if (token.starts_with(kPrinted)) token.remove_prefix(kPrinted.size());
    if (token.empty()) throw Error(Code::unavailable, "the token for slurmrestd is empty");
    return std::string(token);
  }

  const std::string file_;
  const std::vector<std::string> command_;
  sys::Processes& processes_;
  const sys::RealClock clock_;

  Mutex mu_;
  std::string token_ GUARDED_BY(mu_);
  sys::Micros again_at_ GUARDED_BY(mu_){sys::Micros::min()};
};

struct Answer {
  int status = 0;
  json::value body;
  std::optional<Refusal> refusal;
};

class RestGateway final : public Gateway {
 public:
  RestGateway(const Settings& settings, sys::Processes& processes)
      : settings_(settings), token_(settings, processes), client_(options_of(settings)) {}

  SlurmId submit(const Submission& submission) override {
    const auto answer = ask(net::Method::post, "/job/submit", submit_body(submission));
    // Errors may come along with success (a job that begins held): the id decides.
    if (const auto* object = answer.body.if_object(); answer.status == 200 && object)
      if (const auto* id = object->if_contains("job_id"); id && id->is_int64() && id->get_int64() > 0)
        return id->get_int64();
    throw failure("submitting a job", answer);
  }

  std::optional<std::vector<Job>> jobs(std::int64_t since_s) override {
    const auto answer = ask(net::Method::get, since_s > 0 ? fmt::format("/jobs?update_time={}", since_s) : "/jobs");
    if (answer.status == 304) return std::nullopt;
    if (answer.status != 200 || answer.refusal) throw failure("listing jobs", answer);
    return jobs_of(answer.body);
  }

  void signal(SlurmId job, int signal) override {
    const auto answer = ask(net::Method::del, fmt::format("/job/{}?signal={}", job, signal));
    if (answer.refusal && answer.refusal->number == kNotNow)
      throw Error(Code::conflict, "the job waits in Slurm's queue");
    require_done("signalling a job", answer);
  }

  void cancel(SlurmId job) override {
    require_done("cancelling a job", ask(net::Method::del, fmt::format("/job/{}", job)));
  }

  std::vector<Node> nodes() override {
    const auto answer = ask(net::Method::get, "/nodes");
    if (answer.status != 200 || answer.refusal) throw failure("listing nodes", answer);
    return nodes_of(answer.body, settings_.zone,
                    settings_.isolation == "contained" ? Isolation::contained : Isolation::none);
  }

 private:
  static net::ClientOptions options_of(const Settings& settings) {
    net::ClientOptions options;
    options.connect_wait_us = 5'000'000;
    options.total_wait_us = 30'000'000;
    options.tls_1_2 = true;
    options.unix_socket = settings.socket;
    return options;
  }

  Answer ask(net::Method method, const std::string& path, const std::string& body = "") {
    const auto token = token_.get("");
    Answer answer = ask_with(token, method, path, body);
    // A token it does not take is answered with 500 and "unspecified", as is a controller that is away.
    const bool refused = answer.status == 401 || (answer.refusal && answer.refusal->number == kUnspecified);
    if (!refused) return answer;
    const auto other = token_.get(token);
    // What was submitted may have been taken all the same: whoever asks again looks for it first.
    if (other == token || (method == net::Method::post && answer.status != 401)) return answer;
    return ask_with(other, method, path, body);
  }

  Answer ask_with(const std::string& token, net::Method method, const std::string& path, const std::string& body) {
    net::ClientRequest request;
    request.method = method;
    request.url = fmt::format("{}{}{}", settings_.url, kBase, path);
    request.headers.add("X-SLURM-USER-NAME", settings_.user);
    request.headers.add("X-SLURM-USER-TOKEN", token);
    if (!body.empty()) request.headers.add("Content-Type", "application/json");
    request.body = body;
    request.response_bytes_max = std::uint64_t{1} << 30;  // a large site's whole list of jobs
    Answer answer;
    try {
      const auto response = client_.send(request);
      answer.status = response.status;
      if (const auto start = response.body.find_first_not_of(" \r\n");
          start != response.body.npos && response.body[start] == '{') {
        answer.body = parse_json(response.body);
        answer.refusal = refusal_of(answer.body);
      } else if (response.status != 304) {
        answer.refusal = Refusal{response.status == 401 ? kUnspecified : 0, response.body.substr(0, 200)};
      }
    } catch (const Error& error) {
      // Whatever went wrong on the way, it was on the way: the same call may succeed later.
      throw Error(Code::unavailable, error.what());
    }
    return answer;
  }

  static Error failure(std::string_view doing, const Answer& answer) {
    if (answer.refusal && answer.status == 400)
      return {Code::invalid, fmt::format("{}: {}", doing, answer.refusal->text)};
    return error_of(doing, answer.refusal.value_or(Refusal{kUnspecified, fmt::format("HTTP {}", answer.status)}));
  }
  static void require_done(std::string_view doing, const Answer& answer) {
    if (answer.refusal && (answer.refusal->number == kNoSuchJob || answer.refusal->number == kAlreadyDone)) return;
    if (answer.status != 200) throw failure(doing, answer);
  }

  const Settings settings_;
  Token token_;
  net::Client client_;
};

}  // namespace

std::unique_ptr<Gateway> make_rest_gateway(const Settings& settings, sys::Processes& processes) {
  return std::make_unique<RestGateway>(settings, processes);
}

}  // namespace falaj::execute::slurm
