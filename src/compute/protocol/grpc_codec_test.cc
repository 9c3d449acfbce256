// SPDX-License-Identifier: Apache-2.0
#include "compute/protocol/grpc_codec.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <inference.pb.h>

#include "foundation/base/testing.h"

namespace falaj::protocol {
namespace {

using graph::Element;
using graph::Tensor;
using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal_of_message(const std::string& message) {
  try {
    decode_model_infer(as_bytes(message));
  } catch (const Error& error) {
    EXPECT_EQ(name(error.code()), name(Code::invalid));
    return error.what();
  }
  return "accepted";
}

inference::ModelInferRequest request(const std::string& type, std::vector<std::int64_t> shape) {
  inference::ModelInferRequest out;
  out.set_model_name("m");
  auto& input = *out.add_inputs();
  input.set_name("x");
  input.set_datatype(type);
  for (const auto size : shape) input.add_shape(size);
  return out;
}

template <class T>
std::vector<T> decoded(const inference::ModelInferRequest& message) {
  const auto text = message.SerializeAsString();
  const auto asked = decode_model_infer(as_bytes(text));
  const auto bytes = asked.ask.inputs.at(0).bytes;
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

TEST(GrpcDecode, ReadsARequest) {
  auto message = request("FP32", {1, 2});
  message.set_model_version("4");
  message.set_id("i");
  (*message.mutable_parameters())["priority"].set_uint64_param(1);
  (*message.mutable_parameters())["timeout"].set_int64_param(77);
  (*message.mutable_parameters())["ratio"].set_double_param(0.25);
  (*message.mutable_parameters())["why"].set_string_param("because");
  auto& output = *message.add_outputs();
  output.set_name("y");
  (*output.mutable_parameters())["classification"].set_int64_param(2);
  message.add_raw_input_contents("12345678");
  const auto text = message.SerializeAsString();
  const auto asked = decode_model_infer(as_bytes(text));
  EXPECT_EQ(asked.ask.model, "m");
  EXPECT_EQ(asked.ask.version, "4");
  EXPECT_EQ(asked.id, "i");
  EXPECT_EQ(asked.ask.priority, 1);
  EXPECT_EQ(asked.ask.timeout_us, 77);
  EXPECT_EQ(asked.ask.parameters.at("ratio"), Parameter(0.25));
  EXPECT_EQ(asked.ask.parameters.at("why"), Parameter("because"));
  EXPECT_EQ(asked.ask.inputs[0].sizes, (graph::Sizes{1, 2}));
  EXPECT_EQ(as_text(asked.ask.inputs[0].bytes), "12345678");
  const auto* at = reinterpret_cast<const char*>(asked.ask.inputs[0].bytes.data());
  EXPECT_TRUE(at >= text.data() && at < text.data() + text.size()) << "the bytes were copied";
  EXPECT_EQ(asked.wishes[0].classes, 2);
  EXPECT_THAT(asked.ask.outputs, ElementsAre("y"));
}

TEST(GrpcDecode, ReadsTypedContents) {
  auto floats = request("FP32", {2});
  floats.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1.5);
  floats.mutable_inputs(0)->mutable_contents()->add_fp32_contents(-2);
  EXPECT_THAT(decoded<float>(floats), ElementsAre(1.5, -2));
  auto doubles = request("FP64", {1});
  doubles.mutable_inputs(0)->mutable_contents()->add_fp64_contents(1e300);
  EXPECT_THAT(decoded<double>(doubles), ElementsAre(1e300));
  auto small = request("INT8", {2});
  small.mutable_inputs(0)->mutable_contents()->add_int_contents(-128);
  small.mutable_inputs(0)->mutable_contents()->add_int_contents(5);
  EXPECT_THAT(decoded<std::int8_t>(small), ElementsAre(-128, 5));
  auto large = request("INT64", {1});
  large.mutable_inputs(0)->mutable_contents()->add_int64_contents(INT64_MIN);
  EXPECT_THAT(decoded<std::int64_t>(large), ElementsAre(INT64_MIN));
  auto unsigned_ = request("UINT16", {1});
  unsigned_.mutable_inputs(0)->mutable_contents()->add_uint_contents(65535);
  EXPECT_THAT(decoded<std::uint16_t>(unsigned_), ElementsAre(65535));
  auto huge = request("UINT64", {1});
  huge.mutable_inputs(0)->mutable_contents()->add_uint64_contents(UINT64_MAX);
  EXPECT_THAT(decoded<std::uint64_t>(huge), ElementsAre(UINT64_MAX));
  auto flags = request("BOOL", {2});
  flags.mutable_inputs(0)->mutable_contents()->add_bool_contents(true);
  flags.mutable_inputs(0)->mutable_contents()->add_bool_contents(false);
  EXPECT_THAT(decoded<std::uint8_t>(flags), ElementsAre(1, 0));
  auto texts = request("BYTES", {2});
  texts.mutable_inputs(0)->mutable_contents()->add_bytes_contents("a");
  texts.mutable_inputs(0)->mutable_contents()->add_bytes_contents(std::string("\0\xff", 2));
  const auto message = texts.SerializeAsString();
  EXPECT_THAT(decode_model_infer(as_bytes(message)).ask.inputs[0].texts, ElementsAre("a", std::string("\0\xff", 2)));
}

TEST(GrpcDecode, RefusesWhatIsNotSo) {
  auto raw = request("FP32", {2});
  raw.add_raw_input_contents("1234");
  EXPECT_THAT(refusal_of_message(raw.SerializeAsString()), HasSubstr("unexpected size"));
  raw.add_raw_input_contents("1234");
  EXPECT_THAT(refusal_of_message(raw.SerializeAsString()), HasSubstr("1 inputs and 2 raw"));
  auto both = request("FP32", {1});
  both.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  both.add_raw_input_contents("1234");
  EXPECT_THAT(refusal_of_message(both.SerializeAsString()), HasSubstr("has contents, and there are raw"));
  auto other = request("FP32", {1});
  other.mutable_inputs(0)->mutable_contents()->add_int_contents(1);
  EXPECT_THAT(refusal_of_message(other.SerializeAsString()), HasSubstr("not in the list of FP32"));
  auto wide = request("INT8", {1});
  wide.mutable_inputs(0)->mutable_contents()->add_int_contents(128);
  EXPECT_THAT(refusal_of_message(wide.SerializeAsString()), HasSubstr("no INT8"));
  auto half = request("FP16", {1});
  half.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  EXPECT_THAT(refusal_of_message(half.SerializeAsString()), HasSubstr("only as raw"));
  EXPECT_THAT(refusal_of_message(request("FP32", {1}).SerializeAsString()), HasSubstr("0 came"));
  EXPECT_THAT(refusal_of_message(request("FP32", {-1}).SerializeAsString()), HasSubstr("negative"));
  EXPECT_THAT(refusal_of_message(request("FP32", {1L << 40, 1L << 40}).SerializeAsString()), HasSubstr("more than"));
  EXPECT_THAT(refusal_of_message(request("FLOAT", {1}).SerializeAsString()), HasSubstr("no datatype"));
  EXPECT_EQ(refusal_of_message(""), "accepted");  // which model it is for, and what that needs, is asked later
  auto twice = request("FP32", {0});
  *twice.add_inputs() = twice.inputs(0);
  EXPECT_THAT(refusal_of_message(twice.SerializeAsString()), HasSubstr("two inputs"));
  auto shared = request("FP32", {1});
  (*shared.mutable_inputs(0)->mutable_parameters())["shared_memory_region"].set_string_param("r");
  EXPECT_THAT(refusal_of_message(shared.SerializeAsString()), HasSubstr("shared memory"));
  auto none = request("FP32", {0});
  (*none.mutable_parameters())["p"];
  EXPECT_THAT(refusal_of_message(none.SerializeAsString()), HasSubstr("parameter p has no value"));
}

TEST(GrpcDecode, RefusesBrokenMessages) {
  auto message = request("FP32", {1});
  message.add_raw_input_contents("1234");
  const auto text = message.SerializeAsString();
  const auto name_alone = 2 + message.model_name().size();  // is whole: a model may take no inputs
  for (std::size_t size = 1; size < text.size(); ++size)
    EXPECT_EQ(refusal_of_message(text.substr(0, size)) == "accepted", size == name_alone) << size;
  EXPECT_THAT(refusal_of_message("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), HasSubstr("not whole"));
  EXPECT_THAT(refusal_of_message(std::string(11, '\xff')), HasSubstr("not whole"));
  EXPECT_THAT(refusal_of_message(std::string("\0", 1)), HasSubstr("not whole"));
  EXPECT_THAT(refusal_of_message("\x0b"), HasSubstr("not of its type"));
  EXPECT_THAT(refusal_of_message("\x0a\x01\xff"), HasSubstr("UTF-8"));
}

TEST(GrpcEncode, WhatProtobufReadsIsWhatWasSaid) {
  Asked asked;
  asked.id = "7";
  asked.wishes = {{"y", false, 0}, {"s", false, 1}};
  for (const bool streamed : {false, true}) {
    Answer answer{"m", "2", {}, {{"n", std::int64_t{-3}}, {"d", 0.5}, {"t", std::string("x")}, {"b", false}}};
    answer.outputs.push_back({"y", Tensor::of<float>({1, 2}, std::vector<float>{1, 2})});
    answer.outputs.push_back({"s", Tensor::of<float>({1, 2}, std::vector<float>{1, 2})});
    answer.outputs.push_back({"empty", Tensor::empty(Element::float32, {0})});
    answer.outputs.push_back({"scalar", Tensor::of<std::int64_t>({}, std::vector<std::int64_t>{9})});
    const EncodedInfer encoded(asked, std::move(answer), streamed);
    std::string bytes(encoded.size(), '\0');
    encoded.write(reinterpret_cast<std::byte*>(bytes.data()));
    inference::ModelInferResponse response;
    if (streamed) {
      inference::ModelStreamInferResponse around;
      ASSERT_TRUE(around.ParseFromString(bytes));
      EXPECT_EQ(around.error_message(), "");
      response = around.infer_response();
      EXPECT_TRUE(response.parameters().at("triton_final_response").bool_param());
    } else {
      ASSERT_TRUE(response.ParseFromString(bytes));
    }
    EXPECT_EQ(response.model_name(), "m");
    EXPECT_EQ(response.model_version(), "2");
    EXPECT_EQ(response.id(), "7");
    EXPECT_EQ(response.parameters().at("n").int64_param(), -3);
    EXPECT_EQ(response.parameters().at("d").double_param(), 0.5);
    EXPECT_EQ(response.parameters().at("t").string_param(), "x");
    EXPECT_EQ(response.parameters().at("b").parameter_choice_case(), inference::InferParameter::kBoolParam);
    ASSERT_EQ(response.outputs_size(), 4);
    ASSERT_EQ(response.raw_output_contents_size(), 4);
    EXPECT_EQ(response.outputs(0).datatype(), "FP32");
    EXPECT_THAT(response.outputs(0).shape(), ElementsAre(1, 2));
    EXPECT_EQ(response.raw_output_contents(0).size(), 8);
    EXPECT_EQ(response.outputs(1).datatype(), "BYTES");
    EXPECT_EQ(response.raw_output_contents(1), std::string("\12\0\0\0", 4) + "2.000000:1");
    EXPECT_EQ(response.raw_output_contents(2), "");
    EXPECT_EQ(response.raw_output_contents(3).size(), 8);
  }
}

TEST(GrpcEncode, AFailureOfAStream) {
  inference::ModelStreamInferResponse out;
  ASSERT_TRUE(out.ParseFromString(encode_stream_failure("m", "1", "id", "no")));
  EXPECT_EQ(out.error_message(), "no");
  EXPECT_EQ(out.infer_response().id(), "id");
  EXPECT_TRUE(out.ParseFromString(encode_stream_failure("m", "1", "id", "\xff")));
}

}  // namespace
}  // namespace falaj::protocol
