// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/classifiers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/networks/graph_builder.h"
#include "voxconv/networks/models.h"
#include "voxconv/networks/scale_channels.h"

namespace voxconv {
namespace {

absl::Status CheckOptions(const ClassifierOptions& options) {
  if (options.classes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("classes ", options.classes, ": must be 1 or more"));
  }
  constexpr int kMostLevels = 10;
  if (options.levels >= 1 && options.levels <= kMostLevels) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("levels ", options.levels, ": allowed are 1 to ", kMostLevels));
}

}  // namespace

absl::StatusOr<NetworkGraph> MakeHcnnClassifier(const ClassifierOptions& options) {
  constexpr int64_t kFinest = 16, kHidden = 128;
  VOXCONV_RETURN_IF_ERROR(CheckOptions(options));
  GraphBuilder b("hcnn_classifier");
  int x = b.Input(options.in_channels);
  for (int level = 0; level <= options.levels; ++level) {
    const std::string name = absl::StrCat("level", level + 1);
    VOXCONV_ASSIGN_OR_RETURN(const int64_t channels,
                             ScaleChannels(kFinest << level, options.width));
    x = b.ConvBlock(name + ".conv", x, channels, {});
    if (level < options.levels) x = b.Pool(name + ".pool", x, {.mode = PoolMode::kMax});
  }
  VOXCONV_ASSIGN_OR_RETURN(const int64_t hidden, ScaleChannels(kHidden, options.width));
  x = b.GlobalPool("samples", x, PoolMode::kMax);
  x = b.Linear("hidden", x, hidden, /*relu=*/true);
  x = b.Linear("head", x, options.classes);
  return std::move(b).Build(x);
}

absl::StatusOr<NetworkGraph> MakeSparseResNetClassifier(const ClassifierOptions& options) {
  VOXCONV_RETURN_IF_ERROR(CheckOptions(options));
  GraphBuilder b("sparseresnet21_classifier");
  VOXCONV_ASSIGN_OR_RETURN(int x, AddSparseResNet21(options.width, options.in_channels, b));
  x = b.GlobalPool("samples", x, PoolMode::kAveragePresent);
  x = b.Linear("head", x, options.classes);
  return std::move(b).Build(x);
}

}  // namespace voxconv
