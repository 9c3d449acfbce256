// SPDX-License-Identifier: Apache-2.0
// ONNX's own models, asked as clients ask: over HTTP by JSON and by bytes, and over gRPC. Every tenth of them, all with
// FALAJ_CASES=all; that the models themselves say what they must is tested beside the runtime.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <inference.pb.h>

#include "compute/infer/testing.h"
#include "compute/protocol/grpc_library.h"
#include "compute/protocol/grpc_server.h"
#include "compute/protocol/rest.h"
#include "compute/protocol/rest_codec.h"
#include "compute/protocol/tensors.h"
#include "compute/serve/host.h"
#include "foundation/base/json.h"
#include "foundation/base/testing.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "foundation/crypto/token.h"
#include "foundation/net/testing.h"
#include "foundation/sys/random.h"

namespace falaj::serve {
namespace {

using graph::Element;
using graph::Tensor;

std::string packed(const Tensor& tensor) {
  std::string out(protocol::binary_size(tensor), '\0');
  protocol::write_binary(tensor, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

Tensor unpacked(Element element, graph::Sizes sizes, std::string_view bytes) {
  protocol::Input input;
  input.element = element;
  input.sizes = std::move(sizes);
  protocol::take_bytes(input, as_bytes(bytes));
  return {element, input.sizes, {input.bytes.begin(), input.bytes.end()}, input.texts};
}

graph::Sizes sizes_in(const json::value& shape) {
  graph::Sizes out;
  for (const auto& size : shape.as_array()) out.push_back(size.to_number<std::int64_t>());
  return out;
}

Tensor from_json(Element element, graph::Sizes sizes, const json::array& data) {
  auto out = Tensor::empty(element, std::move(sizes));
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (element == Element::text) {
      out.texts.at(i) = std::string(data[i].as_string());
      continue;
    }
    protocol::with_type(element, [&](auto like) {
      using T = decltype(like);
      if (data[i].is_bool())
        like = static_cast<T>(data[i].get_bool());
      else if (data[i].is_null())
        like = std::numeric_limits<T>::quiet_NaN();
      else
        like = data[i].to_number<T>();
      std::memcpy(out.bytes.data() + i * sizeof like, &like, sizeof like);
    });
  }
  return out;
}

// Whether JSON says all of it: neither numbers that are none nor types that only bytes have.
bool json_can_say(const Tensor& tensor) {
  if (tensor.element == Element::float16 || tensor.element == Element::bfloat16) return false;
  if (tensor.element == Element::text)
    return std::all_of(tensor.texts.begin(), tensor.texts.end(), [](const auto& text) { return is_utf8(text); });
  if (tensor.element == Element::float32)
    for (const auto value : tensor.values<float>())
      if (!std::isfinite(value)) return false;
  if (tensor.element == Element::float64)
    for (const auto value : tensor.values<double>())
      if (!std::isfinite(value)) return false;
  return true;
}

// Both servers, as a worker has them.
class ZooServers {
 public:
  ZooServers() : rest_(host_, {}, metrics_) {
    random_.fill(credential_.secret);
    credential_.id.bits = {random_.next(), random_.next()};
    token_ = crypto::format_credential(crypto::CredentialKind::token, credential_);
    net::ServerLimits limits;
    limits.io_threads = limits.worker_threads = 1;
    http_.emplace("127.0.0.1", 0, std::nullopt, limits, rest_, clock_, ids_, metrics_);
    protocol::GrpcLimits one;
    one.first_loop = limits.io_threads;
    grpc_.emplace("127.0.0.1", 0, std::nullopt, one, host_, clock_, ids_, metrics_);
    connection_.emplace(http_->port());
    channel_ = grpc::CreateChannel(fmt::format("127.0.0.1:{}", grpc_->port()), grpc::InsecureChannelCredentials());
  }
  ~ZooServers() {
    http_->stop(1'000'000);
    grpc_->stop(1'000'000);
    host_.close();
  }

  // Why not; "": it is served from now on.
  std::string serve(const Bytes& model) {
    const auto digest = crypto::sha256(model).hex();
    traffic::Plan plan;
    auto& endpoint = plan.endpoints.emplace_back();
    endpoint.tenant = endpoint.project = "default";
    endpoint.name = "m";
    endpoint.variants = {{"a", "m", ++version_, digest, 1, false, "", ""}};
    plan.callers = {{credential_.id.str(),
                     crypto::sha256(BytesView(credential_.secret)).hex(),
                     clock_.wall().count() + 3'600'000'000,
                     {0}}};
    Loader::Source source;
    source.bytes = [&](const std::string&) { return model; };
    host_.publish(loader_.make(plan, nullptr, source));
    return loader_.states().at(0).state == "ready" ? "" : loader_.states().at(0).reason;
  }
  const Held& held() const { return *host_.catalogue()->endpoints[0].variants[0].held; }

  std::vector<Tensor> by_json(const std::vector<Tensor>& inputs) {
    std::string body = R"({"inputs":[)";
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      append_head(body, inputs, i);
      body += R"(,"data":)";
      protocol::append_values(body, inputs[i]);
      body += '}';
    }
    body += "]}";
    const auto answer = ask(body, "");
    std::vector<Tensor> out;
    const auto told = parse_json(answer.body);
    for (const auto& output : told.at("outputs").as_array())
      out.push_back(from_json(protocol::parse_datatype(std::string_view(output.at("datatype").as_string())),
                              sizes_in(output.at("shape")), output.at("data").as_array()));
    return out;
  }

  std::vector<Tensor> by_bytes(const std::vector<Tensor>& inputs) {
    std::string head = R"({"parameters":{"binary_data_output":true},"inputs":[)", bytes;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      append_head(head, inputs, i);
      const auto some = packed(inputs[i]);
      head += fmt::format(R"(,"parameters":{{"binary_data_size":{}}}}})", some.size());
      bytes += some;
    }
    head += "]}";
    const auto answer = ask(head + bytes, fmt::format("Inference-Header-Content-Length: {}\r\n", head.size()));
    const auto found = answer.headers.find("inference-header-content-length");  // none: no byte follows the JSON
    const auto json_bytes =
        found == answer.headers.end() ? answer.body.size() : static_cast<std::size_t>(*parse_int(found->second));
    std::string_view left(answer.body);
    const auto told = parse_json(left.substr(0, json_bytes));
    left.remove_prefix(json_bytes);
    std::vector<Tensor> out;
    for (const auto& output : told.at("outputs").as_array()) {
      const auto size = output.at("parameters").at("binary_data_size").to_number<std::size_t>();
      out.push_back(unpacked(protocol::parse_datatype(std::string_view(output.at("datatype").as_string())),
                             sizes_in(output.at("shape")), left.substr(0, size)));
      left.remove_prefix(size);
    }
    return out;
  }

  std::vector<Tensor> by_grpc(const std::vector<Tensor>& inputs) {
    inference::ModelInferRequest request;
    request.set_model_name("m");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      auto& input = *request.add_inputs();
      input.set_name(held().inputs[i].name);
      input.set_datatype(std::string(protocol::datatype(inputs[i].element)));
      for (const auto size : inputs[i].sizes) input.add_shape(size);
      request.add_raw_input_contents(packed(inputs[i]));
    }
    inference::ModelInferResponse response;
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + token_);
    const grpc::internal::RpcMethod rpc("/inference.GRPCInferenceService/ModelInfer",
                                        grpc::internal::RpcMethod::NORMAL_RPC, channel_);
    const auto status = grpc::internal::BlockingUnaryCall<inference::ModelInferRequest, inference::ModelInferResponse>(
        channel_.get(), rpc, &context, request, &response);
    if (!status.ok()) throw Error(Code::invalid, status.error_message());
    std::vector<Tensor> out;
    for (int i = 0; i < response.outputs_size(); ++i) {
      const auto& output = response.outputs(i);
      out.push_back(unpacked(protocol::parse_datatype(output.datatype()),
                             {output.shape().begin(), output.shape().end()}, response.raw_output_contents(i)));
    }
    return out;
  }

 private:
  void append_head(std::string& to, const std::vector<Tensor>& inputs, std::size_t i) const {
    to += i > 0 ? R"(,{"name":)" : R"({"name":)";
    protocol::append_text(to, held().inputs[i].name);
    to += fmt::format(R"(,"datatype":"{}","shape":[{}])", protocol::datatype(inputs[i].element),
                      fmt::join(inputs[i].sizes, ","));
  }
  net::RawConnection::Answer ask(const std::string& body, const std::string& headers) {
    auto answer = connection_->ask(
        fmt::format("POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n"
                    "Content-Length: {}\r\n{}\r\n{}",
                    token_, body.size(), headers, body));
    if (answer.status != 200) throw Error(Code::invalid, answer.body);
    return answer;
  }

  sys::RealClock clock_;
  sys::RealRandom random_;
  sys::Ids ids_{clock_, random_};
  Metrics metrics_;
  crypto::Credential credential_;
  std::string token_;
  std::int64_t version_ = 0;
  Loader loader_{infer::runtime(), {}, clock_};
  Host host_{clock_, nullptr};
  protocol::Rest rest_;
  std::optional<net::Server> http_;
  std::optional<protocol::GrpcServer> grpc_;
  std::optional<net::RawConnection> connection_;
  std::shared_ptr<grpc::Channel> channel_;
};

bool is_random(const std::string& name) {
  return name.find("bernoulli") != name.npos || name.find("dropout") != name.npos;
}

// What the model is given and, by the model itself, what it says of it.
struct Example {
  std::vector<Tensor> inputs, outputs;
};
std::optional<Example> example_of(const std::string& name, const Held& held) {
  try {
    auto sets = infer::onnx_sets(name);
    if (sets.empty()) return {};
    Example out;
    std::vector<std::vector<std::string_view>> texts;
    std::vector<infer::TensorView> views;
    texts.reserve(held.inputs.size());
    for (std::size_t i = 0; i < held.inputs.size(); ++i) {
      auto& tensor = out.inputs.emplace_back(sets[0].inputs.at(i).tensor);
      if (held.inputs[i].element == Element::bfloat16) tensor.element = Element::bfloat16;  // older files have none
    }
    for (const auto& tensor : out.inputs) {
      texts.emplace_back(tensor.texts.begin(), tensor.texts.end());
      views.push_back(infer::TensorView::of(tensor, texts.back()));
    }
    const auto made = held.model->run(views);
    for (const auto& view : made.tensors()) out.outputs.push_back(infer::copy_of(view));
    return out;
  } catch (const std::exception&) {
    return {};  // told beside the runtime
  }
}

std::string difference(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted) {
  if (got.size() != wanted.size()) return "another number of outputs";
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::vector<std::string_view> texts(got[i].texts.begin(), got[i].texts.end());
    if (!infer::near_enough(infer::TensorView::of(got[i], texts), wanted[i]))
      return fmt::format("output {} differs", i);
  }
  return "";
}

TEST(ZooByProtocol, EveryWayOfAskingGivesWhatTheModelSays) {
  const auto names = infer::onnx_cases();
  if (names.empty()) GTEST_SKIP() << "libonnx-testdata is not installed: run ./setup";
  const auto* asked = std::getenv("FALAJ_CASES");
  const std::size_t step = asked && std::string_view(asked) == "all" ? 1 : repeats(2) == 1 ? 100 : 10;
  ZooServers servers;
  std::map<std::string, std::size_t> counts;
  for (std::size_t at = 0; at < names.size(); at += step) {
    const auto& name = names[at];
    const auto bytes = infer::onnx_model(name);
    if (is_random(name) || !servers.serve(bytes).empty()) {
      ++counts["refused, or random"];
      continue;
    }
    const auto example = example_of(name, servers.held());
    if (!example) {
      ++counts["fails by itself"];
      continue;
    }
    const auto try_by = [&](const std::string& way, auto call) {
      try {
        const auto wrong = difference(call(), example->outputs);
        EXPECT_EQ(wrong, "") << name << " by " << way;
        ++counts["right by " + way];
      } catch (const Error& e) {
        ADD_FAILURE() << name << " by " << way << ": " << e.what();
      }
    };
    const auto sayable = [](const std::vector<Tensor>& all) {
      return std::all_of(all.begin(), all.end(), json_can_say);
    };
    if (sayable(example->inputs) && sayable(example->outputs))
      try_by("JSON", [&] { return servers.by_json(example->inputs); });
    else
      ++counts["not said in JSON: half floats, infinities, texts that are none"];
    try_by("bytes", [&] { return servers.by_bytes(example->inputs); });
    try_by("gRPC", [&] { return servers.by_grpc(example->inputs); });
  }
  for (const auto& [what, count] : counts) std::printf("%zu %s\n", count, what.c_str());
  EXPECT_GT(counts["right by JSON"], 0u);
}

}  // namespace
}  // namespace falaj::serve
