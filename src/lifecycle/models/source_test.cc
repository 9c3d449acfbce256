// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/source.h"

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "lifecycle/models/types.h"

namespace falaj::models {
namespace {

const std::string kRun = "0123456789abcdef0123456789abcdef";
const std::string kModel = "m-" + kRun;
using SourceKind = Source::Kind;

TEST(Sources, AreArtifactsOfThePlatform) {
  const std::pair<std::string, Source> good[] = {
      {"mlflow-artifacts:/3/" + kRun + "/artifacts", {SourceKind::run, kRun, 3, 0, ""}},
      {"mlflow-artifacts:/3/" + kRun + "/artifacts/a/b c", {SourceKind::run, kRun, 3, 0, "a/b c"}},
      {"mlflow-artifacts:/3/" + kRun + "/artifacts/a/", {SourceKind::run, kRun, 3, 0, "a"}},
      {"mlflow-artifacts:/3/models/" + kModel + "/artifacts", {SourceKind::logged_model, kModel, 3, 0, ""}},
      {"mlflow-artifacts:/3/models/" + kModel + "/artifacts/x", {SourceKind::logged_model, kModel, 3, 0, "x"}},
      {"runs:/" + kRun + "/model", {SourceKind::run, kRun, {}, 0, "model"}},
      {"runs:/" + kRun, {SourceKind::run, kRun, {}, 0, ""}},
      {"models:/" + kModel, {SourceKind::logged_model, kModel, {}, 0, ""}},
      {"models:/delay/12", {SourceKind::version, "delay", {}, 12, ""}},
      {"models:/" + kModel + "/2", {SourceKind::version, kModel, {}, 2, ""}},
  };
  for (const auto& [text, wanted] : good) EXPECT_EQ(parse_source(text), wanted) << text;
}

TEST(Sources, AreNothingElse) {
  const std::string bad[] = {
      "",
      "/etc/passwd",
      "model",
      "file:/etc/passwd",
      "file:///etc/passwd",
      "http://169.254.169.254/latest",
      "s3://bucket/model",
      "dbfs:/model",
      "mlflow-artifacts:/",
      "mlflow-artifacts://host/3/" + kRun + "/artifacts",
      "mlflow-artifacts:///3/" + kRun + "/artifacts",
      "mlflow-artifacts:/3",
      "mlflow-artifacts:/x/" + kRun + "/artifacts",
      "mlflow-artifacts:/-3/" + kRun + "/artifacts",
      "mlflow-artifacts:/99999999999999999999/" + kRun + "/artifacts",
      "mlflow-artifacts:/3/" + kRun,
      "mlflow-artifacts:/3/" + kRun + "/other",
      "mlflow-artifacts:/3/models/" + kRun + "/artifacts",
      "mlflow-artifacts:/@versions/1/2",
      "mlflow-artifacts:/3/" + kRun + "/artifacts/../../x",
      "mlflow-artifacts:/3/" + kRun + "/artifacts/%2e%2e/x",
      "mlflow-artifacts:/3/" + kRun + "/artifacts/%252e%252e/x",
      "mlflow-artifacts:/3/" + kRun + "/artifacts//x",
      "mlflow-artifacts:/3/" + kRun + "/artifacts/a#b",
      "mlflow-artifacts:/3/" + kRun + "/artifacts/a\\b",
      "runs:/",
      "runs:/short/model",
      "runs:/" + kRun + "/../x",
      "runs://profile@databricks/" + kRun,
      "models:/delay",
      "models:/delay/Production",
      "models:/delay@champion",
      "models:/delay/1/x",
      "models:/delay/-1",
      "MODELS:/delay/1",
      "runs:/" + kRun + "/" + std::string(kSourceMax, 'a'),
  };
  for (const auto& text : bad) {
    SCOPED_TRACE(text);
    EXPECT_ERROR(parse_source(text), Code::invalid);
  }
}

TEST(VersionPaths, AreReadBackFromWhatClientsWereTold) {
  Version version;
  version.model_row = 17;
  version.number = 3;
  const auto uri = artifact_uri(version);
  const std::string root = "mlflow-artifacts:/" + std::string(kVersionsRoot) + "/";
  ASSERT_TRUE(uri.starts_with(root));
  const auto whole = parse_version_path(uri.substr(root.size()));
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->model_row, 17);
  EXPECT_EQ(whole->number, 3);
  EXPECT_EQ(whole->path, "");
  EXPECT_EQ(parse_version_path("17/3/data/m.onnx")->path, "data/m.onnx");
  for (const auto* bad : {"", "17", "17/", "/3", "a/3", "17/b", "-1/3", "17/99999999999999999999"})
    EXPECT_FALSE(parse_version_path(bad)) << bad;
}

}  // namespace
}  // namespace falaj::models
