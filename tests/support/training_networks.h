// SPDX-License-Identifier: Apache-2.0
// What the tests of training share: small networks that hold every operator, scenes and labels.
#ifndef VOXCONV_TESTS_SUPPORT_TRAINING_NETWORKS_H_
#define VOXCONV_TESTS_SUPPORT_TRAINING_NETWORKS_H_

#include <cmath>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "voxconv/networks/graph_builder.h"
#include "voxconv/networks/initialize.h"

namespace voxconv {

// A wavy surface in two samples, with a voxel at every `step`-th cell along x and y.
inline std::vector<Coordinate> WavyRows(int extent, int step = 1) {
  std::set<Coordinate> rows;
  for (int b = 0; b < 2; ++b) {
    for (int x = 0; x < extent; x += step) {
      for (int y = 0; y < extent / (b + 1); y += step) {
        rows.insert({b, x - 2, y, static_cast<int>(2 * std::sin(0.4 * x) + std::cos(0.7 * y + b))});
      }
    }
  }
  return {rows.begin(), rows.end()};
}

// Values that no two rows share, so that no maximum has an equal.
inline std::vector<float> DistinctFeatures(size_t size) {
  std::vector<float> features(size);
  for (size_t i = 0; i < size; ++i) {
    features[i] = std::sin(0.37f * static_cast<float>(i)) + 1e-4f * static_cast<float>(i % 97);
  }
  return features;
}

// Labels of `rows` rows; every fifth is ignored (-1).
inline std::vector<int32_t> SomeLabels(size_t rows, int classes) {
  std::vector<int32_t> labels(rows);
  for (size_t i = 0; i < rows; ++i) {
    labels[i] = i % 5 == 4 ? -1 : static_cast<int32_t>(i * i % classes);
  }
  return labels;
}

inline constexpr int kSegmentationClasses = 4;

// Every operator whose result lies on voxels: convolutions of all kinds, with and without bias,
// both ways to pool and unpool, sums and concatenations of tensors with several readers.
inline NetworkGraph SegmentationGraph(PoolMode mode, int64_t in_channels = 3) {
  GraphBuilder builder("segmentation");
  const int input = builder.Input(in_channels);
  const int stem = builder.ConvBlock("stem", input, 6, {});
  const int down = builder.ConvBlock(
      "down", stem, 8, {.kind = ConvKind::kStrided, .kernel = {2, 2, 2}, .stride = {2, 2, 2}});
  const int block = builder.ResidualBlock("block", down, 10);
  const int pool = builder.Pool("pool", block, {.mode = mode});
  const int deep = builder.Conv("deep", pool, 10, {.bias = true, .relu = true});
  const int unpool = builder.Unpool("unpool", deep, pool);
  const int sum = builder.Add("sum", unpool, block, /*relu=*/true);
  const int up = builder.UpBlock("up", sum, 6, down);
  const int joined = builder.Concat("joined", up, stem);
  const int twice = builder.Add("twice", joined, joined, /*relu=*/false);
  const int activated = builder.Relu("activated", twice);
  const int grown = builder.Conv("transposed", activated, 5,
                                 {.kind = ConvKind::kStrided,
                                  .rule = OutputRule::kDilate,
                                  .kernel = {3, 3, 3},
                                  .stride = {1, 1, 1}});
  const int back = builder.InverseConv("back", grown, 7, grown, /*bias=*/true);
  const int head =
      builder.Conv("head", back, kSegmentationClasses, {.kernel = {1, 1, 1}, .bias = true});
  NetworkGraph graph = *std::move(builder).Build(head);
  InitializeParameters(graph, 3);
  return graph;
}

inline constexpr int kClasses = 3;

// What classifies samples: global pooling, then linear layers.
inline NetworkGraph ClassificationGraph(PoolMode pool_mode, PoolMode global_mode) {
  GraphBuilder builder("classification");
  const int input = builder.Input(3);
  const int stem = builder.ConvBlock("stem", input, 8, {});
  const int pooled = builder.Pool("pool", stem, {.mode = pool_mode});
  const int deep = builder.ConvBlock("deep", pooled, 12, {});
  const int samples = builder.GlobalPool("samples", deep, global_mode);
  const int hidden = builder.Linear("hidden", samples, 9, /*relu=*/true);
  const int head = builder.Linear("head", hidden, kClasses);
  NetworkGraph graph = *std::move(builder).Build(head);
  InitializeParameters(graph, 4);
  return graph;
}

// The graph's parameter values in fp64.
inline std::vector<std::vector<double>> ParametersOf(const NetworkGraph& graph) {
  std::vector<std::vector<double>> values;
  for (const Parameter& parameter : graph.parameters()) {
    values.emplace_back(parameter.values.begin(), parameter.values.end());
  }
  return values;
}

}  // namespace voxconv

#endif  // VOXCONV_TESTS_SUPPORT_TRAINING_NETWORKS_H_
