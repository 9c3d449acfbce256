// SPDX-License-Identifier: Apache-2.0
#include "compute/protocol/rest_codec.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/testing.h"

namespace falaj::protocol {
namespace {

using graph::Element;
using graph::Tensor;
using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
std::vector<T> values_of(const Input& input) {
  std::vector<T> out(input.bytes.size() / sizeof(T));
  std::memcpy(out.data(), input.bytes.data(), input.bytes.size());
  return out;
}

std::string floats(const std::vector<float>& values) { return std::string(as_text(std::as_bytes(std::span(values)))); }

std::string one_input(std::string_view type, std::string_view shape, std::string_view data) {
  return fmt::format(R"({{"inputs":[{{"name":"x","shape":{},"datatype":"{}","data":{}}}]}})", shape, type, data);
}

std::string refusal_of(std::string_view body, std::optional<std::uint64_t> json_bytes = std::nullopt) {
  try {
    decode_infer(body, json_bytes);
  } catch (const Error& error) {
    EXPECT_EQ(name(error.code()), name(Code::invalid));
    return error.what();
  }
  return "accepted";
}

TEST(RestDecode, ReadsJsonOfEachType) {
  EXPECT_THAT(values_of<float>(decode_infer(one_input("FP32", "[2,2]", "[[1,2.5],[-3e2,null]]"), {}).ask.inputs[0]),
              ElementsAre(1, 2.5, -300, testing::IsNan()));
  EXPECT_THAT(values_of<double>(decode_infer(one_input("FP64", "[3]", "[NaN,Infinity,-Infinity]"), {}).ask.inputs[0]),
              ElementsAre(testing::IsNan(), HUGE_VAL, -HUGE_VAL));
  EXPECT_THAT(values_of<std::int8_t>(decode_infer(one_input("INT8", "[2]", "[-128,127]"), {}).ask.inputs[0]),
              ElementsAre(-128, 127));
  EXPECT_THAT(values_of<std::int16_t>(decode_infer(one_input("INT16", "[1]", "[-32768]"), {}).ask.inputs[0]),
              ElementsAre(-32768));
  EXPECT_THAT(values_of<std::int32_t>(decode_infer(one_input("INT32", "[1]", "[2147483647]"), {}).ask.inputs[0]),
              ElementsAre(2147483647));
  EXPECT_THAT(
      values_of<std::int64_t>(decode_infer(one_input("INT64", "[1]", "[-9223372036854775808]"), {}).ask.inputs[0]),
      ElementsAre(std::numeric_limits<std::int64_t>::min()));
  EXPECT_THAT(values_of<std::uint8_t>(decode_infer(one_input("UINT8", "[1]", "[255]"), {}).ask.inputs[0]),
              ElementsAre(255));
  EXPECT_THAT(values_of<std::uint16_t>(decode_infer(one_input("UINT16", "[1]", "[65535]"), {}).ask.inputs[0]),
              ElementsAre(65535));
  EXPECT_THAT(values_of<std::uint32_t>(decode_infer(one_input("UINT32", "[1]", "[4294967295]"), {}).ask.inputs[0]),
              ElementsAre(4294967295));
  EXPECT_THAT(
      values_of<std::uint64_t>(decode_infer(one_input("UINT64", "[1]", "[18446744073709551615]"), {}).ask.inputs[0]),
      ElementsAre(std::numeric_limits<std::uint64_t>::max()));
  EXPECT_THAT(values_of<std::uint8_t>(decode_infer(one_input("BOOL", "[4]", "[true,false,1,0]"), {}).ask.inputs[0]),
              ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(decode_infer(one_input("BYTES", "[2]", R"(["a\u00e9","\"\n"])"), {}).ask.inputs[0].texts,
              ElementsAre("aé", "\"\n"));
}

TEST(RestDecode, ReadsEverythingElseOfARequest) {
  const auto asked = decode_infer(
      R"({"id":"7","parameters":{"priority":2,"timeout":500,"binary_data_output":true,"temperature":0.5,"who":"me","b":true},)"
      R"("unknown":{"deep":[1,{"x":[]}]},"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}],)"
      R"("outputs":[{"name":"y","parameters":{"binary_data":false,"classification":3}},{"name":"z"}]})",
      {});
  EXPECT_EQ(asked.id, "7");
  EXPECT_EQ(asked.ask.priority, 2);
  EXPECT_EQ(asked.ask.timeout_us, 500);
  EXPECT_TRUE(asked.binary_default);
  EXPECT_EQ(asked.ask.parameters.at("temperature"), Parameter(0.5));
  EXPECT_EQ(asked.ask.parameters.at("who"), Parameter("me"));
  EXPECT_EQ(asked.ask.parameters.size(), 3);
  EXPECT_THAT(asked.ask.outputs, ElementsAre("y", "z"));
  EXPECT_EQ(asked.wishes[0].classes, 3);
}

TEST(RestDecode, TakesFieldsInAnyOrder) {
  const auto asked = decode_infer(
      R"({"outputs":[],"inputs":[{"data":[[1,2],[3,4]],"datatype":"INT32","shape":[2,2],"name":"x"}]})", {});
  EXPECT_THAT(values_of<std::int32_t>(asked.ask.inputs[0]), ElementsAre(1, 2, 3, 4));
}

TEST(RestDecode, LeavesBinaryWhereItIs) {
  const std::string json =
      R"({"inputs":[{"name":"a","shape":[2],"datatype":"FP32","parameters":{"binary_data_size":8}},)"
      R"({"name":"t","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":11}},)"
      R"({"name":"h","shape":[1],"datatype":"FP16","parameters":{"binary_data_size":2}}]})";
  const auto body = json + floats({1, 2}) + std::string("\3\0\0\0abc\0\0\0\0", 11) + "hh";
  const auto asked = decode_infer(body, json.size());
  EXPECT_THAT(values_of<float>(asked.ask.inputs[0]), ElementsAre(1, 2));
  EXPECT_EQ(reinterpret_cast<const char*>(asked.ask.inputs[0].bytes.data()), body.data() + json.size());
  EXPECT_THAT(asked.ask.inputs[1].texts, ElementsAre("abc", ""));
  EXPECT_EQ(as_text(asked.ask.inputs[2].bytes), "hh");
  EXPECT_TRUE(asked.owned.empty());
}

TEST(RestDecode, ReadsTheNextBodyBehindTheSameJsonAsIfItWereTheFirst) {
  const std::string json =
      R"({"inputs":[{"name":"x","shape":[2],"datatype":"UINT8","parameters":{"binary_data_size":2}},)"
      R"({"name":"yes","shape":[1],"datatype":"BOOL","parameters":{"binary_data_size":1}}],)"
      R"("outputs":[{"name":"y","parameters":{"binary_data":true}}],"parameters":{"priority":3}})";
  for (const auto& bytes : {std::string("\x01\x02\x00", 3), std::string("\x03\x04\x01", 3)}) {
    const auto body = json + bytes;
    const auto asked = decode_infer(body, json.size());
    ASSERT_EQ(asked.ask.inputs.size(), 2u);
    EXPECT_EQ(as_text(asked.ask.inputs[0].bytes), bytes.substr(0, 2));
    EXPECT_EQ(asked.ask.inputs[0].bytes.data(), as_bytes(body).data() + json.size());
    EXPECT_EQ(as_text(asked.ask.inputs[1].bytes), bytes.substr(2));
    EXPECT_EQ(asked.ask.priority, 3u);
    ASSERT_EQ(asked.wishes.size(), 1u);
    EXPECT_TRUE(asked.wishes[0].binary);
  }
  for (const auto& wrong : {std::string("\x01\x02", 2), std::string("\x01\x02\x00\x00", 4),
                            std::string("\x01\x02\x02", 3)})  // too few, too many, no boolean
    EXPECT_ERROR(decode_infer(json + wrong, json.size()), Code::invalid);
  EXPECT_EQ(decode_infer(json + std::string("\x05\x06\x01", 3), json.size()).ask.inputs.size(), 2u);
}

TEST(RestDecode, AnInputOfNothingNeedsNoData) {
  const auto asked = decode_infer(R"({"inputs":[{"name":"x","shape":[0,4],"datatype":"FP32"}]})", {});
  EXPECT_TRUE(asked.ask.inputs[0].bytes.empty());
}

TEST(RestDecode, AModelMayTakeNoInputs) { EXPECT_TRUE(decode_infer(R"({"inputs":[]})", {}).ask.inputs.empty()); }

TEST(RestDecode, RefusesWhatIsNotSo) {
  const auto binary = [](std::string_view type, std::string_view shape, std::string_view size, std::string_view data) {
    const auto json = fmt::format(
        R"({{"inputs":[{{"name":"x","shape":{},"datatype":"{}","parameters":{{"binary_data_size":{}}}}}]}})", shape,
        type, size);
    return refusal_of(json + std::string(data), json.size());
  };
  // Shapes that lie, and those whose product no 64 bits hold.
  EXPECT_THAT(binary("FP32", "[3]", "8", "12345678"), HasSubstr("unexpected size for input x"));
  EXPECT_THAT(binary("FP32", "[1]", "8", "12345678"), HasSubstr("unexpected size for input x"));
  EXPECT_THAT(binary("FP32", "[-2]", "8", "12345678"), HasSubstr("negative"));
  EXPECT_THAT(binary("FP32", "[4294967296,4294967296]", "0", ""), HasSubstr("more than"));
  EXPECT_THAT(binary("FP32", "[4611686018427387904]", "0", ""), HasSubstr("more than"));
  EXPECT_THAT(binary("BYTES", "[4611686018427387904]", "4", std::string(4, '\0')), HasSubstr("more than"));
  EXPECT_THAT(refusal_of(one_input("FP32", "[1000000,1000000]", "[1]")), HasSubstr("more than"));
  EXPECT_THAT(refusal_of(one_input("FP32", "[2]", "[1]")), HasSubstr("unexpected number"));
  EXPECT_THAT(refusal_of(one_input("FP32", "[2]", "[1,2,3]")), HasSubstr("unexpected number"));
  EXPECT_THAT(refusal_of(one_input("FP32", "[1.5]", "[1]")), HasSubstr("not the JSON"));
  // Bytes too few and too many.
  EXPECT_THAT(binary("FP32", "[2]", "8", "1234"), HasSubstr("8 bytes are announced, 4 came"));
  EXPECT_THAT(binary("FP32", "[2]", "8", "123456789"), HasSubstr("unexpected additional input data"));
  EXPECT_THAT(binary("FP32", "[2]", "-8", "12345678"), HasSubstr("not the JSON"));
  EXPECT_THAT(binary("BOOL", "[2]", "2", "\1\2"), HasSubstr("neither 0 nor 1"));
  EXPECT_THAT(refusal_of("{}", 3), HasSubstr("Inference-Header-Content-Length"));
  EXPECT_THAT(refusal_of(one_input("FP32", "[1]", "[1]") + "{}"), HasSubstr("follows"));
  EXPECT_THAT(refusal_of(one_input("FP32", "[1]", "[1]") + "x"), HasSubstr("not the JSON"));
  // BYTES whose lengths lie.
  EXPECT_THAT(binary("BYTES", "[1]", "6", std::string("\3\0\0\0ab", 6)), HasSubstr("longer than what was sent"));
  EXPECT_THAT(binary("BYTES", "[1]", "8", std::string("\377\377\377\377abcd", 8)), HasSubstr("longer than"));
  EXPECT_THAT(binary("BYTES", "[1]", "6", std::string("\1\0\0\0ab", 6)), HasSubstr("after the last"));
  // Numbers that do not fit.
  EXPECT_THAT(refusal_of(one_input("INT8", "[1]", "[128]")), HasSubstr("no INT8"));
  EXPECT_THAT(refusal_of(one_input("UINT8", "[1]", "[-1]")), HasSubstr("no UINT8"));
  EXPECT_THAT(refusal_of(one_input("INT64", "[1]", "[9223372036854775808]")), HasSubstr("no INT64"));
  EXPECT_THAT(refusal_of(one_input("INT32", "[1]", "[1.5]")), HasSubstr("no INT32"));
  EXPECT_THAT(refusal_of(one_input("FP32", "[1]", "[1e39]")), HasSubstr("too great"));
  EXPECT_THAT(refusal_of(one_input("FP64", "[1]", "[1e999]")), HasSubstr("not a number"));
  EXPECT_THAT(refusal_of(one_input("FP32", "[1]", R"(["1"])")), HasSubstr("not a number"));
  EXPECT_THAT(refusal_of(one_input("BOOL", "[1]", "[2]")), HasSubstr("no BOOL"));
  EXPECT_THAT(refusal_of(one_input("BYTES", "[1]", "[1]")), HasSubstr("not the JSON"));
  EXPECT_THAT(refusal_of(one_input("FP16", "[1]", "[1]")), HasSubstr("binary"));
  EXPECT_THAT(refusal_of(one_input("FLOAT", "[1]", "[1]")), HasSubstr("no datatype"));
}

TEST(RestDecode, RefusesWhatIsTwiceDeepOrMissing) {
  EXPECT_THAT(refusal_of(""), HasSubstr("not the JSON"));
  EXPECT_THAT(refusal_of("[]"), HasSubstr("not the JSON"));
  EXPECT_THAT(refusal_of("{}"), HasSubstr("no inputs"));
  EXPECT_THAT(refusal_of(R"({"inputs":[1]})"), HasSubstr("not the JSON"));
  EXPECT_THAT(refusal_of(R"({"inputs":[{"name":"x","shape":[1],"datatype":"FP32"}]})"), HasSubstr("has no data"));
  EXPECT_THAT(refusal_of(R"({"inputs":[{"shape":[1],"datatype":"FP32","data":[1]}]})"), HasSubstr("no name"));
  EXPECT_THAT(refusal_of(R"({"inputs":[{"name":"x","data":[1]}]})"), HasSubstr("needs shape and datatype"));
  const std::string x = R"({"name":"x","shape":[1],"datatype":"FP32","data":[1]})";
  EXPECT_THAT(refusal_of(R"({"inputs":[)" + x + "," + x + "]}"), HasSubstr("two inputs are called x"));
  EXPECT_THAT(refusal_of(R"({"inputs":[)" + x + R"(],"inputs":[]})"), HasSubstr("twice"));
  EXPECT_THAT(refusal_of(R"({"inputs":[{"name":"x","name":"y"}]})"), HasSubstr("twice"));
  EXPECT_THAT(refusal_of(R"({"inputs":[)" + x + R"(],"outputs":[{"name":"y"},{"name":"y"}]})"),
              HasSubstr("two outputs"));
  const std::string deep = std::string(5000, '[') + "1" + std::string(5000, ']');
  EXPECT_THAT(refusal_of(one_input("FP32", "[1]", deep)), HasSubstr("nested"));
  EXPECT_THAT(refusal_of(R"({"inputs":[)" + x + R"(],"parameters":{"p":)" + deep + "}}"), HasSubstr("parameter p"));
  EXPECT_THAT(refusal_of(R"({"inputs":[)" + x + R"(],"parameters":{"sequence_id":3}})"), HasSubstr("sequences"));
  EXPECT_THAT(refusal_of(R"({"inputs":[)" + x + R"(],"parameters":{"triton_x":3}})"), HasSubstr("reserved"));
  EXPECT_THAT(refusal_of(R"({"inputs":[)" + x + R"(],"parameters":{"timeout":-1}})"), HasSubstr("timeout"));
  EXPECT_THAT(
      refusal_of(
          R"({"inputs":[{"name":"x","parameters":{"shared_memory_region":"r"},"shape":[1],"datatype":"FP32"}]})"),
      HasSubstr("shared memory"));
  std::string ones = "1";
  for (int i = 0; i < 40; ++i) ones += ",1";
  EXPECT_THAT(refusal_of(one_input("FP32", "[" + ones + "]", "[1]")), HasSubstr("too many dimensions"));
}

TEST(RestDecode, RawBytesAreTheOneInput) {
  const graph::Dimension rows = std::string(graph::kRows), open = std::string();
  Description model;
  model.inputs = {{"x", Element::float32, {rows, 2, open}}};
  model.rows_first = true;
  const auto body = floats({1, 2, 3, 4});
  const auto asked = decode_raw(body, model);
  EXPECT_EQ(asked.ask.inputs[0].sizes, (graph::Sizes{1, 2, 2}));
  EXPECT_TRUE(asked.binary_default);
  EXPECT_ERROR(decode_raw(body + "x", model), Code::invalid);
  model.inputs[0].shape = {rows, open, open};
  EXPECT_ERROR(decode_raw(body, model), Code::invalid);
  model.inputs[0] = {"t", Element::text, {rows, 1}};
  EXPECT_THAT(decode_raw("hello", model).ask.inputs[0].texts, ElementsAre("hello"));
  model.inputs.push_back(model.inputs[0]);
  EXPECT_ERROR(decode_raw(body, model), Code::invalid);
}

TEST(RestEncode, WritesJson) {
  Asked asked;
  asked.id = "a\"b";
  Answer answer{"m", "3", {}, {{"prediction_id", std::string("p")}}};
  answer.outputs.push_back({"y", Tensor::of<float>({2, 2}, std::vector<float>{1, 0.1F, -2.5F, NAN})});
  answer.outputs.push_back({"t", Tensor::of_text({2}, {"\n", "é"})});
  answer.outputs.push_back({"b", Tensor::of_boolean({1}, std::vector<std::uint8_t>{1})});
  answer.outputs.push_back({"n", Tensor::of<std::int8_t>({1}, std::vector<std::int8_t>{-7})});
  const auto encoded = encode_answer(asked, std::move(answer));
  EXPECT_EQ(encoded.body,
            R"({"id":"a\"b","model_name":"m","model_version":"3","parameters":{"prediction_id":"p"},"outputs":[)"
            R"({"name":"y","datatype":"FP32","shape":[2,2],"data":[1,0.1,-2.5,null]},)"
            R"({"name":"t","datatype":"BYTES","shape":[2],"data":["\u000a","é"]},)"
            R"({"name":"b","datatype":"BOOL","shape":[1],"data":[true]},)"
            R"({"name":"n","datatype":"INT8","shape":[1],"data":[-7]}]})");
  EXPECT_FALSE(encoded.json_bytes);
}

TEST(RestEncode, WritesBinaryBehindJson) {
  Asked asked;
  asked.binary_default = true;
  asked.wishes = {{"j", false, 0}, {"b", true, 0}};
  Answer answer{"m", "1", {}, {}};
  answer.outputs.push_back({"j", Tensor::of<std::int32_t>({1}, std::vector<std::int32_t>{5})});
  answer.outputs.push_back({"b", Tensor::of_text({1}, {"xy"})});
  answer.outputs.push_back({"other", Tensor::of<float>({1}, std::vector<float>{2})});
  const auto encoded = encode_answer(asked, std::move(answer));
  const std::string json =
      R"({"model_name":"m","model_version":"1","outputs":[{"name":"j","datatype":"INT32","shape":[1],"data":[5]},)"
      R"({"name":"b","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":6}},)"
      R"({"name":"other","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}]})";
  EXPECT_EQ(encoded.body, json + std::string("\2\0\0\0xy", 6) + floats({2}));
  EXPECT_EQ(encoded.json_bytes, json.size());
}

TEST(RestEncode, RefusesWhatJsonCannotSay) {
  Answer half{"m", "1", {}, {}};
  half.outputs.push_back({"y", Tensor::empty(Element::float16, {2})});
  EXPECT_ERROR(encode_answer({}, half), Code::invalid);
  Answer bytes{"m", "1", {}, {}};
  bytes.outputs.push_back({"y", Tensor::of_text({1}, {"\xff"})});
  EXPECT_ERROR(encode_answer({}, bytes), Code::invalid);
}

TEST(Classification, GivesTheBestOfEachRow) {
  const auto best = classify(Tensor::of<float>({2, 3}, std::vector<float>{0.1F, 0.7F, 0.2F, NAN, 1, 1}), 2);
  EXPECT_EQ(best.sizes, (graph::Sizes{2, 2}));
  EXPECT_THAT(best.texts, ElementsAre("0.700000:1", "0.200000:2", "1.000000:1", "1.000000:2"));
  EXPECT_THAT(classify(Tensor::of<std::int8_t>({3}, std::vector<std::int8_t>{5, 9, 7}), 10).texts,
              ElementsAre("9:1", "7:2", "5:0"));
  EXPECT_TRUE(classify(Tensor::empty(Element::float32, {0, 3}), 1).texts.empty());
  EXPECT_ERROR(classify(Tensor::of_text({1}, {"a"}), 1), Code::invalid);
}

}  // namespace
}  // namespace falaj::protocol
