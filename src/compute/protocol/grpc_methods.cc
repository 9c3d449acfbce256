// SPDX-License-Identifier: Apache-2.0
#include "compute/protocol/grpc_methods.h"

#include <health.pb.h>
#include <inference.pb.h>

#include "compute/protocol/describe.h"
#include "compute/protocol/tensors.h"

namespace falaj::protocol {
namespace {

constexpr std::string_view kService = "inference.GRPCInferenceService";

void live(Inference& inference, const Caller&, const inference::ServerLiveRequest&,
          inference::ServerLiveResponse& out) {
  out.set_live(inference.live());
}

void ready(Inference& inference, const Caller&, const inference::ServerReadyRequest&,
           inference::ServerReadyResponse& out) {
  out.set_ready(inference.ready());
}

void model_ready(Inference& inference, const Caller& caller, const inference::ModelReadyRequest& ask,
                 inference::ModelReadyResponse& out) {
  out.set_ready(inference.ready(caller, ask.name(), ask.version()));
}

void server_metadata_of(Inference&, const Caller&, const inference::ServerMetadataRequest&,
                        inference::ServerMetadataResponse& out) {
  out.set_name(std::string(kServerName));
  out.set_version(std::string(kServerVersion));
  for (const auto extension : kExtensions) out.add_extensions(std::string(extension));
}

void model_metadata(Inference& inference, const Caller& caller, const inference::ModelMetadataRequest& ask,
                    inference::ModelMetadataResponse& out) {
  const auto model = inference.describe(caller, ask.name(), ask.version());
  out.set_name(model.model);
  for (const auto& version : model.versions) out.add_versions(version);
  out.set_platform(model.platform);
  const auto describe = [](const graph::Port& port, inference::ModelMetadataResponse::TensorMetadata& tensor) {
    tensor.set_name(port.name);
    tensor.set_datatype(std::string(datatype(port.element)));
    for (const auto size : shape_of(port)) tensor.add_shape(size);
  };
  for (const auto& port : model.inputs) describe(port, *out.add_inputs());
  for (const auto& port : model.outputs) describe(port, *out.add_outputs());
  for (const auto& [key, value] : model.properties) (*out.mutable_properties())[key] = value;
}

inference::DataType type_of(graph::Element element) {
  const auto text = element == graph::Element::text ? "STRING" : datatype(element);
  inference::DataType type = inference::TYPE_INVALID;
  CHECK(inference::DataType_Parse("TYPE_" + std::string(text), &type), "every element has a data type");
  return type;
}

void model_config(Inference& inference, const Caller& caller, const inference::ModelConfigRequest& ask,
                  inference::ModelConfigResponse& out) {
  const auto model = inference.describe(caller, ask.name(), ask.version());
  auto& config = *out.mutable_config();
  config.set_name(model.model);
  config.set_platform(model.platform);
  config.set_backend(model.platform.substr(0, model.platform.find('_')));
  config.mutable_version_policy()->mutable_latest()->set_num_versions(1);
  config.set_max_batch_size(has_rows(model) ? static_cast<std::int32_t>(model.rows_max) : 0);
  const auto describe = [&](const graph::Port& port, auto& to) {
    to.set_name(port.name);
    to.set_data_type(type_of(port.element));
    for (const auto size : dims_of(port, model)) to.add_dims(size);
  };
  for (const auto& port : model.inputs) describe(port, *config.add_input());
  for (const auto& port : model.outputs) describe(port, *config.add_output());
  auto& group = *config.add_instance_group();
  group.set_name(model.model);
  group.set_kind(inference::ModelInstanceGroup::KIND_CPU);
  group.set_count(static_cast<std::int32_t>(model.instances));
  if (has_rows(model)) {
    config.mutable_dynamic_batching()->add_preferred_batch_size(static_cast<std::int32_t>(model.rows_max));
    config.mutable_dynamic_batching()->set_max_queue_delay_microseconds(static_cast<std::uint64_t>(model.wait_us_max));
  }
  config.mutable_model_transaction_policy()->set_decoupled(false);
  for (const auto& [key, value] : model.properties) (*config.mutable_parameters())[key].set_string_value(value);
}

void set(inference::StatisticDuration& out, const Duration& duration) {
  out.set_count(duration.count);
  out.set_ns(duration.ns);
}

void model_statistics(Inference& inference, const Caller& caller, const inference::ModelStatisticsRequest& ask,
                      inference::ModelStatisticsResponse& out) {
  for (const auto& s : inference.statistics(caller, ask.name(), ask.version())) {
    auto& model = *out.add_model_stats();
    model.set_name(s.model);
    model.set_version(s.version);
    model.set_last_inference(s.last_inference_ms);
    model.set_inference_count(s.inference_count);
    model.set_execution_count(s.execution_count);
    auto& stats = *model.mutable_inference_stats();
    set(*stats.mutable_success(), s.success);
    set(*stats.mutable_fail(), s.fail);
    set(*stats.mutable_queue(), s.queue);
    set(*stats.mutable_compute_input(), s.input);
    set(*stats.mutable_compute_infer(), s.infer);
    set(*stats.mutable_compute_output(), s.output);
    set(*stats.mutable_cache_hit(), s.cache_hit);
    set(*stats.mutable_cache_miss(), s.cache_miss);
    for (const auto& b : s.batches) {
      auto& batch = *model.add_batch_stats();
      batch.set_batch_size(b.rows);
      set(*batch.mutable_compute_input(), b.input);
      set(*batch.mutable_compute_infer(), b.infer);
      set(*batch.mutable_compute_output(), b.output);
    }
    if (s.memory_bytes == 0) continue;
    auto& memory = *model.add_memory_usage();
    memory.set_type("CPU");
    memory.set_byte_size(s.memory_bytes);
  }
}

void repository_index(Inference& inference, const Caller& caller, const inference::RepositoryIndexRequest& ask,
                      inference::RepositoryIndexResponse& out) {
  for (const auto& entry : inference.index(caller, ask.ready())) {
    auto& model = *out.add_models();
    model.set_name(entry.model);
    model.set_version(entry.version);
    model.set_state(entry.state);
    model.set_reason(entry.reason);
  }
}

void repository_load(Inference& inference, const Caller& caller, const inference::RepositoryModelLoadRequest& ask,
                     inference::RepositoryModelLoadResponse&) {
  if (!ask.parameters().empty())
    throw Error(Code::invalid, "a model is loaded as it was deployed: no config and no files with the call");
  inference.load(caller, ask.model_name());
}

void repository_unload(Inference& inference, const Caller& caller, const inference::RepositoryModelUnloadRequest& ask,
                       inference::RepositoryModelUnloadResponse&) {
  inference.unload(caller, ask.model_name());
}

void health(Inference& inference, const Caller&, const grpc::health::v1::HealthCheckRequest& ask,
            grpc::health::v1::HealthCheckResponse& out) {
  if (!ask.service().empty() && ask.service() != kService) throw Error(Code::not_found, "no such service");
  out.set_status(inference.live() && inference.ready() ? grpc::health::v1::HealthCheckResponse::SERVING
                                                       : grpc::health::v1::HealthCheckResponse::NOT_SERVING);
}

template <class>
struct Parts;
template <class Ask, class Out>
struct Parts<void (*)(Inference&, const Caller&, const Ask&, Out&)> {
  using Request = Ask;
  using Response = Out;
};

// A function of messages as one of bytes.
template <auto F>
std::string coded(Inference& inference, const Caller& caller, BytesView message) {
  typename Parts<decltype(F)>::Request ask;
  if (!ask.ParseFromArray(message.data(), static_cast<int>(message.size())))
    throw Error(Code::invalid, "the message is not whole protocol buffers");
  typename Parts<decltype(F)>::Response out;
  F(inference, caller, ask, out);
  return out.SerializeAsString();
}

using Kind = GrpcMethod::Kind;
constexpr GrpcMethod kMethods[] = {
    {kService, "ModelInfer", Kind::infer, false, nullptr},
    {kService, "ModelStreamInfer", Kind::stream_infer, false, nullptr},
    {kService, "ServerLive", Kind::unary, true, coded<live>},
    {kService, "ServerReady", Kind::unary, true, coded<ready>},
    {kService, "ModelReady", Kind::unary, false, coded<model_ready>},
    {kService, "ServerMetadata", Kind::unary, false, coded<server_metadata_of>},
    {kService, "ModelMetadata", Kind::unary, false, coded<model_metadata>},
    {kService, "ModelConfig", Kind::unary, false, coded<model_config>},
    {kService, "ModelStatistics", Kind::unary, false, coded<model_statistics>},
    {kService, "RepositoryIndex", Kind::unary, false, coded<repository_index>},
    {kService, "RepositoryModelLoad", Kind::unary, false, coded<repository_load>},
    {kService, "RepositoryModelUnload", Kind::unary, false, coded<repository_unload>},
    {"grpc.health.v1.Health", "Check", Kind::unary, true, coded<health>},
};

}  // namespace

std::span<const GrpcMethod> grpc_methods() { return kMethods; }

const GrpcMethod* find_grpc_method(std::string_view path) {
  for (const auto& method : kMethods) {
    if (path.size() == method.service.size() + method.call.size() + 2 && path.ends_with(method.call) &&
        path.substr(1).starts_with(method.service))
      return &method;
  }
  return nullptr;
}

}  // namespace falaj::protocol
