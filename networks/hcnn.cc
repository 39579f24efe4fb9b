// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/hcnn.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/networks/graph_builder.h"
#include "voxconv/networks/scale_channels.h"

namespace voxconv {
namespace {

constexpr int64_t kFinest = 16, kHidden = 128;
constexpr int32_t kCells = 4;  // the hierarchy ends at 4^3

absl::Status CheckOptions(const HcnnOptions& options) {
  if (options.classes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("classes ", options.classes, ": must be 1 or more"));
  }
  constexpr int kMostLevels = 10;
  if (options.levels >= 1 && options.levels <= kMostLevels) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("levels ", options.levels, ": allowed are 1 to ", kMostLevels));
}

// The levels from the finest to the coarsest, with a convolution on each.
struct Levels {
  int coarsest = 0;               // the node of the last convolution block
  std::vector<int> pools;         // from level i to level i + 1
  std::vector<int64_t> channels;  // of the convolution on level i
};

absl::StatusOr<Levels> AddLevels(const HcnnOptions& options, GraphBuilder& b) {
  Levels levels;
  int x = b.Input(options.in_channels);
  for (int level = 0; level <= options.levels; ++level) {
    const std::string name = absl::StrCat("level", level + 1);
    VOXCONV_ASSIGN_OR_RETURN(const int64_t channels,
                             ScaleChannels(kFinest << level, options.width));
    levels.channels.push_back(channels);
    x = b.ConvBlock(name + ".conv", x, channels, {});
    if (level == options.levels) break;
    x = b.Pool(name + ".pool", x, {.mode = PoolMode::kMax});
    levels.pools.push_back(x);
  }
  levels.coarsest = x;
  return levels;
}

}  // namespace

absl::StatusOr<NetworkGraph> MakeHcnnClassifier(const HcnnOptions& options) {
  VOXCONV_RETURN_IF_ERROR(CheckOptions(options));
  GraphBuilder b("hcnn_classifier");
  VOXCONV_ASSIGN_OR_RETURN(const Levels levels, AddLevels(options, b));
  VOXCONV_ASSIGN_OR_RETURN(const int64_t hidden, ScaleChannels(kHidden, options.width));
  // With this padding the one window of a cloud around the origin begins at its first cell.
  constexpr int32_t kBegin = kCells / 2;
  int x = b.ConvBlock("hidden", levels.coarsest, hidden,
                      {.kind = ConvKind::kStrided,
                       .rule = OutputRule::kDilate,
                       .kernel = {kCells, kCells, kCells},
                       .stride = {kCells, kCells, kCells},
                       .padding = {kBegin, kBegin, kBegin}});
  x = b.GlobalPool("samples", x, PoolMode::kMax);
  if (options.dropout != 0) x = b.Dropout("dropout", x, options.dropout);
  x = b.Linear("head", x, options.classes);
  return std::move(b).Build(x);
}

absl::StatusOr<NetworkGraph> MakeHcnnSegmenter(const HcnnOptions& options) {
  VOXCONV_RETURN_IF_ERROR(CheckOptions(options));
  GraphBuilder b("hcnn_segmenter");
  VOXCONV_ASSIGN_OR_RETURN(const Levels levels, AddLevels(options, b));
  int x = levels.coarsest;
  for (int level = options.levels - 1; level >= 0; --level) {
    const std::string name = absl::StrCat("level", level + 1);
    // The switches of the pooling are of each channel, so the channels are those of its level.
    x = b.ConvBlock(name + ".transposed", x, levels.channels[level], {});
    x = b.Unpool(name + ".unpool", x, levels.pools[level]);
  }
  x = b.ConvBlock("last", x, levels.channels[0], {});
  if (options.dropout != 0) x = b.Dropout("dropout", x, options.dropout);
  x = b.Linear("head", x, options.classes);
  return std::move(b).Build(x);
}

}  // namespace voxconv
