// SPDX-License-Identifier: Apache-2.0
// Models that others wrote: ONNX's own, one for each operator and what exporters make of networks. Each gives what it
// must or is refused with a reason; the list of those is testdata/onnx_refused.txt. After a change that is meant, write
// it anew with FALAJ_UPDATE_GOLDEN=1 and read what differs.
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "compute/infer/model.h"
#include "compute/infer/testing.h"
#include "foundation/base/testing.h"

namespace falaj::infer {
namespace {

constexpr const char* kNoLocale = "refused: wants the locale en_US.UTF-8, which this machine may not have";
constexpr const char* kRefused = FALAJ_TESTDATA "/onnx_refused.txt";

// Why ONNX Runtime's answer may differ from the one in the files.
std::string why_another(const std::string& name) {
  constexpr std::pair<std::string_view, const char*> kReasons[] = {
      {"bernoulli", "gives other numbers: random"},
      {"training_dropout", "gives other numbers: random"},
      {"FLOAT_to_STRING", "gives other texts: how a float is written is not defined"},
      {"FLOAT_to_BFLOAT16", "gives other numbers: ONNX Runtime rounds, the expected ones are cut off"},
      {"maxunpool_export_with_output_shape", "gives other numbers: the expected ones are known to be wrong"},
      {"resize_downsample_scales", "gives other numbers: ONNX Runtime keeps an older rule of aligned corners"}};
  for (const auto& [part, why] : kReasons)
    if (name.find(part) != name.npos) return why;
  return "gives something else";
}

std::map<std::string, std::size_t>& engines() {
  static std::map<std::string, std::size_t> counts;
  return counts;
}

// Nothing when it did what it must.
std::string what_is_wrong(const std::string& name) {
  std::shared_ptr<const Model> model;
  try {
    model = Model::load(runtime(), onnx_model(name));
  } catch (const Error& error) {
    const std::string why = error.what();
    if (why.find("Failed to construct locale") != why.npos) return kNoLocale;
    return "refused: " + why;
  }
  ++engines()[std::string(model->engine()) + (model->rows_first() ? ", in batches" : "")];
  try {
    for (const auto& set : onnx_sets(name)) {
      std::vector<TensorView> in;
      std::vector<std::vector<std::string_view>> texts;
      texts.reserve(set.inputs.size());
      for (const auto& input : set.inputs) {
        texts.emplace_back(input.tensor.texts.begin(), input.tensor.texts.end());
        in.push_back(TensorView::of(input.tensor, texts.back()));
      }
      in.resize(std::min(in.size(), model->inputs().size()));
      for (std::size_t at = 0; at < in.size(); ++at)  // older files have no bfloat16
        if (model->inputs()[at].element == graph::Element::bfloat16) in[at].element = graph::Element::bfloat16;
      const auto out = model->run(in);
      for (std::size_t at = 0; at < set.outputs.size(); ++at)
        if (!near_enough(out.tensors()[at], set.outputs[at].tensor)) return why_another(name);
    }
  } catch (const Error& error) {
    return std::string("fails: ") + error.what();
  }
  return "";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')).substr(0, 300); }

TEST(Zoo, GivesWhatItMustOrIsRefusedWithAReason) {
  const auto names = onnx_cases();
  if (names.empty()) GTEST_SKIP() << "libonnx-testdata is not installed: run ./setup";
  std::map<std::string, std::string> known;
  std::ifstream file(kRefused);
  for (std::string line; std::getline(file, line);)
    if (const auto tab = line.find('\t'); tab != std::string::npos) known[line.substr(0, tab)] = line.substr(tab + 1);
  std::ostringstream fresh;
  std::size_t right = 0, wrong = 0;
  const std::size_t step = names.size() / repeats(names.size());  // sanitizers take some of them
  for (std::size_t at = 0; at < names.size(); at += step) {
    const auto why = first_line(what_is_wrong(names[at]));
    ++(why.empty() ? right : wrong);
    if (!why.empty()) fresh << names[at] << '\t' << why << '\n';
    const auto found = known.find(names[at]);
    if (why.empty() && found != known.end() && found->second == kNoLocale) continue;
    EXPECT_EQ(why, found == known.end() ? "" : found->second) << names[at];
  }
  for (const auto& [engine, count] : engines()) std::printf("%zu by %s\n", count, engine.c_str());
  std::printf("%zu models right, %zu refused\n", right, wrong);
  if (std::getenv("FALAJ_UPDATE_GOLDEN")) std::ofstream(kRefused) << fresh.str();
}

}  // namespace
}  // namespace falaj::infer
