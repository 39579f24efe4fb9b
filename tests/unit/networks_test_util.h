// SPDX-License-Identifier: Apache-2.0
// What the tests of networks share: a scene, a small network, and a runner on plugins of the tests'
// own, whose results are compared with the reference.
#ifndef VOXCONV_TESTS_UNIT_NETWORKS_TEST_UTIL_H_
#define VOXCONV_TESTS_UNIT_NETWORKS_TEST_UTIL_H_

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/brute_force_plugins.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/networks/executor.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"
#include "voxconv/networks/reference_network.h"
#include "voxconv/reference_cpu/layers.h"

namespace voxconv {

inline const LayerChoice kBruteForce{"brute_force", "brute_force", "brute_force"};
// Also applies the epilogue; also takes rows with gaps.
inline const LayerChoice kFused{"brute_force", "brute_force:epilogue=fused", "brute_force"};
inline const LayerChoice kStrided{"brute_force", "brute_force:epilogue=fused,rows=strided",
                                  "brute_force"};

// A wavy surface, two samples, some of it at negative coordinates.
inline std::vector<Coordinate> Scene(int extent, const Int3& tensor_stride = {1, 1, 1}) {
  std::set<Coordinate> rows;
  for (int b = 0; b < 2; ++b) {
    for (int x = 0; x < extent; ++x) {
      for (int y = 0; y < extent / (b + 1); ++y) {
        const int z = static_cast<int>(3 * std::sin(0.4 * x) + 2 * std::cos(0.7 * y + b));
        rows.insert(
            {b, (x - extent / 2) * tensor_stride.x, y * tensor_stride.y, z * tensor_stride.z});
      }
    }
  }
  return {rows.begin(), rows.end()};
}

inline std::vector<float> Features(int64_t size) {
  std::vector<float> features(size);
  for (int64_t i = 0; i < size; ++i) features[i] = std::sin(0.37f * static_cast<float>(i));
  return features;
}

class NetworksTest : public ::testing::Test {
 protected:
  NetworksTest() {
    backend_ = *CpuBackend::Create({.threads = 2});
    context_ = {backend_.get(), &backend_->main_stream(), nullptr};
    EXPECT_TRUE(RegisterBruteForce(registry_).ok());
  }

  static RunConfig Config(const LayerChoice& choice = kBruteForce) {
    return {.planner = std::make_shared<FixedPlanner>(choice)};
  }

  // The rows with features of the test's own.
  SparseTensor Input(const std::vector<Coordinate>& rows, int64_t channels,
                     const Int3& tensor_stride = {1, 1, 1}) {
    const std::vector<float> features = Features(static_cast<int64_t>(rows.size()) * channels);
    return *SparseTensor::Create(rows, tensor_stride, features, channels, context_);
  }

  // Runs `graph` on the rows, and checks coordinates and features against the oracle.
  RunReport RunAndCompare(const NetworkGraph& graph, const std::vector<Coordinate>& rows,
                          const RunConfig& config) {
    const std::vector<float> features =
        Features(static_cast<int64_t>(rows.size()) * graph.in_channels());
    auto runner = NetworkRunner::Create(graph, config, registry_, *backend_);
    EXPECT_TRUE(runner.ok()) << runner.status();
    const SparseTensor input =
        Input(rows, graph.in_channels(), graph.coordinates()[0].tensor_stride);
    auto result = (*runner)->Run(input.view());
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(*input.features().ToHost(context_), features) << "the caller's features were written";

    const ReferenceResult expected = *RunReferenceNetwork(graph, rows, features);
    const SparseTensor& output = result->output;
    if (output.coordinates() != nullptr) {
      EXPECT_EQ(*CopyToHost(output.coordinates()->rows(), context_), expected.coordinates);
    } else {
      EXPECT_TRUE(expected.coordinates.empty());
    }
    EXPECT_EQ(output.features().channels(), expected.channels);
    EXPECT_LT(reference::RelativeError(*output.features().ToHost(context_), expected.features),
              1e-5);
    return std::move(result->report);
  }

  static const LayerReport& Layer(const RunReport& report, const std::string& name) {
    const auto layer = std::find_if(report.layers.begin(), report.layers.end(),
                                    [&](const LayerReport& l) { return l.name == name; });
    EXPECT_NE(layer, report.layers.end()) << name;
    return *layer;
  }

  std::unique_ptr<CpuBackend> backend_;
  ExecutionContext context_;
  Registry registry_;
};

inline NetworkGraph SmallUNet() {
  NetworkGraph graph = *MakeMinkUNet42(0.125, 4, 5);
  InitializeParameters(graph, 11);
  return graph;
}

}  // namespace voxconv

#endif  // VOXCONV_TESTS_UNIT_NETWORKS_TEST_UTIL_H_
