// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/models.h"

#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/machine_memory.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/networks/graph_builder.h"
#include "voxconv/networks/hcnn.h"
#include "voxconv/networks/scale_channels.h"

namespace voxconv {

absl::StatusOr<NetworkGraph> MakeMinkUNet42(double width, int64_t in_channels, int64_t classes,
                                            double dropout) {
  if (classes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("classes ", classes, ": must be 0 (no head) or more"));
  }
  constexpr int kLevels = 4;
  // Stem, encoder, decoder.
  VOXCONV_ASSIGN_OR_RETURN(
      const auto c,
      ScaleAll(std::array<int64_t, 9>{32, 32, 64, 128, 256, 256, 128, 96, 96}, width));
  const ConvOptions down{.kind = ConvKind::kStrided, .kernel = {2, 2, 2}, .stride = {2, 2, 2}};

  GraphBuilder b("minkunet42");
  int x = b.ConvBlock("stem.conv1", b.Input(in_channels), c[0], {});
  x = b.ConvBlock("stem.conv2", x, c[0], {});
  std::array<int, kLevels> skips, strided;
  for (int k = 0; k < kLevels; ++k) {
    const std::string stage = absl::StrCat("encoder", k + 1);
    skips[k] = x;
    x = strided[k] = b.ConvBlock(stage + ".down", x, c[k], down);
    x = b.ResidualBlock(stage + ".res1", x, c[k + 1]);
    x = b.ResidualBlock(stage + ".res2", x, c[k + 1]);
  }
  for (int k = 0; k < kLevels; ++k) {
    const std::string stage = absl::StrCat("decoder", k + 1);
    const int level = kLevels - 1 - k;
    const int64_t c_out = c[kLevels + 1 + k];
    x = b.UpBlock(stage + ".up", x, c_out, strided[level]);
    x = b.Concat(stage + ".cat", x, skips[level]);
    x = b.ResidualBlock(stage + ".res1", x, c_out);
    x = b.ResidualBlock(stage + ".res2", x, c_out);
  }
  if (classes > 0 && dropout != 0) x = b.Dropout("dropout", x, dropout);
  if (classes > 0) x = b.Linear("head", x, classes);
  return std::move(b).Build(x);
}

absl::StatusOr<int> AddSparseResNet21(double width, int64_t in_channels, GraphBuilder& b) {
  struct StageSpec {
    int blocks;
    Int3 kernel, stride;
  };
  constexpr StageSpec kStages[] = {{3, {3, 3, 3}, {1, 1, 1}},
                                   {3, {3, 3, 3}, {2, 2, 2}},
                                   {3, {3, 3, 3}, {2, 2, 2}},
                                   {3, {3, 3, 3}, {2, 2, 2}},
                                   {1, {1, 3, 1}, {1, 2, 1}}};
  VOXCONV_ASSIGN_OR_RETURN(const auto c,
                           ScaleAll(std::array<int64_t, 5>{16, 32, 64, 128, 128}, width));

  int x = b.Input(in_channels);
  for (size_t i = 0; i < std::size(kStages); ++i) {
    const StageSpec& spec = kStages[i];
    const std::string stage = absl::StrCat("stage", i + 1);
    const bool strided = spec.stride != Int3{1, 1, 1};
    x = b.ConvBlock(stage + ".conv", x, c[i],
                    {.kind = strided ? ConvKind::kStrided : ConvKind::kSubmanifold,
                     .kernel = spec.kernel,
                     .stride = spec.stride});
    for (int block = 1; block < spec.blocks; ++block) {
      x = b.ResidualBlock(absl::StrCat(stage, ".res", block), x, c[i], spec.kernel);
    }
  }
  return x;
}

absl::StatusOr<NetworkGraph> MakeSparseResNet21(double width, int64_t in_channels) {
  GraphBuilder b("sparseresnet21");
  VOXCONV_ASSIGN_OR_RETURN(const int x, AddSparseResNet21(width, in_channels, b));
  return std::move(b).Build(x);
}

absl::StatusOr<NetworkGraph> MakeSparseResNetClassifier(double width, int64_t in_channels,
                                                        int64_t classes, double dropout) {
  GraphBuilder b("sparseresnet21_classifier");
  VOXCONV_ASSIGN_OR_RETURN(int x, AddSparseResNet21(width, in_channels, b));
  x = b.GlobalPool("samples", x, PoolMode::kAveragePresent);
  if (dropout != 0) x = b.Dropout("dropout", x, dropout);
  x = b.Linear("head", x, classes);
  return std::move(b).Build(x);
}

namespace {

absl::Status CheckGrid(const Box& grid) {
  constexpr Int3 kStrides = {8, 8, 16};
  for (int axis = 0; axis < 3; ++axis) {
    if (!InRange(grid.lo[axis]) || !InRange(grid.hi[axis])) {
      return absl::InvalidArgumentError(absl::StrCat("grid ", ToString(grid.lo), " .. ",
                                                     ToString(grid.hi), ": allowed are voxels ",
                                                     kMinCoordinate, " .. ", kMaxCoordinate));
    }
    if (grid.lo[axis] % kStrides[axis] == 0 && grid.lo[axis] <= grid.hi[axis]) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "grid ", ToString(grid.lo), " .. ", ToString(grid.hi),
        ": the lower corner must be multiples of 8, 8 and 16, and not above the upper one"));
  }
  return absl::OkStatus();
}

// The outputs of a strided layer on a grid, both in units of their own strides. `padding` counts
// from zero, as the other projects write it.
absl::StatusOr<Box> OutputGrid(const Box& grid, const Int3& kernel, const Int3& stride,
                               const Int3& padding) {
  Box outputs;
  for (int axis = 0; axis < 3; ++axis) {
    const int32_t room = grid.hi[axis] - grid.lo[axis] + 2 * padding[axis] - (kernel[axis] - 1);
    if (room < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "grid: after strides, ", grid.hi[axis] - grid.lo[axis] + 1, " voxels are left along ",
          std::string(1, kAxisNames[axis]), "; a kernel of ", kernel[axis], " needs more"));
    }
    outputs.lo[axis] = grid.lo[axis] / stride[axis];
    outputs.hi[axis] = outputs.lo[axis] + room / stride[axis];
  }
  return outputs;
}

}  // namespace

absl::StatusOr<NetworkGraph> MakeCenterPointEncoder(int64_t in_channels, double width,
                                                    const std::optional<Box>& grid) {
  // The stage of 16 channels works at the input's resolution, and only the three stages after it
  // are strided, as published. The detector is built for 41 voxels of height. Four halvings would
  // leave 2 of them before the last layer, whose kernel takes 3.
  constexpr int kStages = 4;
  // As the other projects write padding. z is padded in all stages but the last.
  constexpr Int3 kPadding[kStages] = {{}, {1, 1, 1}, {1, 1, 1}, {1, 1, 0}};
  VOXCONV_ASSIGN_OR_RETURN(const auto c,
                           ScaleAll(std::array<int64_t, kStages>{16, 32, 64, 128}, width));
  std::optional<Box> bounds = grid;
  if (grid.has_value()) VOXCONV_RETURN_IF_ERROR(CheckGrid(*grid));
  const auto strided = [&](const Int3& kernel, const Int3& stride,
                           const Int3& padding) -> absl::StatusOr<ConvOptions> {
    if (bounds.has_value()) {
      VOXCONV_ASSIGN_OR_RETURN(bounds, OutputGrid(*bounds, kernel, stride, padding));
    }
    return ConvOptions{.kind = ConvKind::kStrided,
                       .rule = OutputRule::kDilate,
                       .kernel = kernel,
                       .stride = stride,
                       .padding = CenteredPadding(padding, kernel),
                       .output_bounds = bounds};
  };

  GraphBuilder b("centerpoint");
  int x = b.ConvBlock("stem", b.Input(in_channels), c[0], {});
  for (int i = 0; i < kStages; ++i) {
    const std::string stage = absl::StrCat("stage", i + 1);
    if (i > 0) {
      VOXCONV_ASSIGN_OR_RETURN(const ConvOptions down, strided({3, 3, 3}, {2, 2, 2}, kPadding[i]));
      x = b.ConvBlock(stage + ".down", x, c[i], down);
    }
    x = b.ResidualBlock(stage + ".res1", x, c[i]);
    x = b.ResidualBlock(stage + ".res2", x, c[i]);
  }
  VOXCONV_ASSIGN_OR_RETURN(const ConvOptions last, strided({1, 1, 3}, {1, 1, 2}, {0, 0, 0}));
  x = b.ConvBlock("last", x, c[3], last);
  return std::move(b).Build(x);
}

namespace {

// Said before hours of filling in values, and before the system ends the program for them.
absl::StatusOr<NetworkGraph> RefusePastMemory(absl::StatusOr<NetworkGraph> graph,
                                              const ModelOptions& options) {
  if (!graph.ok()) return graph;
  const double parameters = static_cast<double>(graph->num_parameters());
  const double needed = parameters * sizeof(float);
  const double memory = static_cast<double>(MachineMemory());
  if (needed <= memory) return graph;
  constexpr double kGib = 1 << 30;
  return absl::ResourceExhaustedError(absl::StrFormat(
      "width %g: %s has %.3g parameters, which take %.0f GiB; this machine's memory has %.0f GiB",
      options.width, graph->name(), parameters, needed / kGib, memory / kGib));
}

absl::Status UnknownNetwork(absl::string_view name, const std::vector<std::string>& names) {
  return absl::InvalidArgumentError(
      absl::StrCat("network '", name, "' is unknown; allowed are ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<NetworkGraph> MakeNamed(absl::string_view name, const ModelOptions& options) {
  const auto channels = [&](int64_t usual) {
    return options.in_channels == 0 ? usual : options.in_channels;
  };
  if (name == "centerpoint") {
    return MakeCenterPointEncoder(channels(5), options.width, options.grid);
  }
  if (options.grid.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("grid: network '", name, "' has none; allowed with centerpoint"));
  }
  if (name == "minkunet42") return MakeMinkUNet42(options.width, channels(4), options.classes);
  if (name == "sparseresnet21") return MakeSparseResNet21(options.width, channels(4));
  return UnknownNetwork(name, ModelNames());
}

absl::StatusOr<NetworkGraph> MakeNamedTrainable(absl::string_view name,
                                                const ModelOptions& options) {
  const int64_t in_channels = options.in_channels == 0 ? 4 : options.in_channels;
  const HcnnOptions hcnn{.width = options.width,
                         .in_channels = in_channels,
                         .classes = options.classes,
                         .levels = options.levels,
                         .dropout = options.dropout};
  if (name == "minkunet42") {
    return MakeMinkUNet42(options.width, in_channels, options.classes, options.dropout);
  }
  if (name == "hcnn_classifier") return MakeHcnnClassifier(hcnn);
  if (name == "hcnn_segmenter") return MakeHcnnSegmenter(hcnn);
  if (name == "sparseresnet21_classifier") {
    return MakeSparseResNetClassifier(options.width, in_channels, options.classes, options.dropout);
  }
  return UnknownNetwork(name, TrainableNames());
}

}  // namespace

std::vector<std::string> ModelNames() { return {"minkunet42", "sparseresnet21", "centerpoint"}; }

absl::StatusOr<NetworkGraph> MakeModel(absl::string_view name, const ModelOptions& options) {
  return RefusePastMemory(MakeNamed(name, options), options);
}

std::vector<std::string> TrainableNames() {
  return {"minkunet42", "hcnn_classifier", "hcnn_segmenter", "sparseresnet21_classifier"};
}

absl::StatusOr<NetworkGraph> MakeTrainable(absl::string_view name, const ModelOptions& options) {
  return RefusePastMemory(MakeNamedTrainable(name, options), options);
}

}  // namespace voxconv
