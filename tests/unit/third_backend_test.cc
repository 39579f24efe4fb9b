// SPDX-License-Identifier: Apache-2.0
// A backend that no plugin has heard of runs all that another one runs: the registry shares what
// was written for the CPU, and plugins do not ask what the backend is called.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "mapping_cases.h"
#include "tests/support/counting_backend.h"
#include "unit_cpu.h"
#include "voxconv/builtin/plugins.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/registry.h"

namespace voxconv {
namespace {

constexpr BackendKind kCounting = CountingBackend::kKind;
constexpr int64_t kIn = 5, kOut = 7;

std::vector<float> Wave(int64_t size) {
  std::vector<float> values(size);
  for (int64_t i = 0; i < size; ++i) values[i] = std::sin(static_cast<float>(i));
  return values;
}

// One layer by three plugins, on either backend.
struct Plugins {
  std::string mapping, dataflow, output_coords;
};

absl::StatusOr<std::vector<float>> Convolve(const Registry& registry, const Plugins& plugins,
                                            const MapCase& c, const ExecutionContext& context) {
  const BackendKind kind = context.backend->kind();
  const ConvGeometry geometry = *ConvGeometry::Create(c.params);
  VOXCONV_ASSIGN_OR_RETURN(const auto mapping, registry.mappings().Create(plugins.mapping, kind));
  VOXCONV_ASSIGN_OR_RETURN(const auto dataflow,
                           registry.dataflows().Create(plugins.dataflow, kind));
  VOXCONV_ASSIGN_OR_RETURN(const auto coordinates,
                           registry.output_coords().Create(plugins.output_coords, kind));
  VOXCONV_ASSIGN_OR_RETURN(
      CoordinateSetPtr inputs,
      CoordinateSet::Create(c.inputs, geometry.input_tensor_stride(), context));
  CoordinateSetPtr outputs = inputs;
  if (!geometry.keeps_coordinates()) {
    VOXCONV_ASSIGN_OR_RETURN(outputs, coordinates->Compute(*inputs, geometry, context));
  }
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap map,
                           QueryKernelMap(*mapping, {*inputs, *outputs, geometry}, context));
  VOXCONV_ASSIGN_OR_RETURN(
      const Tensor x, Tensor::FromHost(Wave(inputs->size() * kIn), inputs->size(), kIn, context));
  const int64_t rows = geometry.num_offsets() * kIn;
  VOXCONV_ASSIGN_OR_RETURN(const Tensor w,
                           Tensor::FromHost(Wave(rows * kOut), rows, kOut, context));
  Workspace workspace;
  VOXCONV_ASSIGN_OR_RETURN(const Tensor y, RunConvolution(*dataflow, map, x.view(), w.view(),
                                                          Precision::kF32, workspace, context));
  return y.ToHost(context);
}

class ThirdBackendTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(RegisterBuiltinPlugins(registry_).ok());
    ShareWithCounting(registry_);
  }

  // The same bits on both backends. One thread, so that every dataflow gives the same bits again.
  void ExpectTheCpus(const Plugins& plugins, const MapCase& c) {
    SCOPED_TRACE(plugins.mapping + ", " + plugins.dataflow + ", " + plugins.output_coords);
    UnitCpu cpu(1);
    CountingBackend third(/*threads=*/1);
    const auto expected = Convolve(registry_, plugins, c, cpu.context);
    const auto found = Convolve(registry_, plugins, c, {&third, &third.main_stream(), nullptr});
    if (expected.status().code() == absl::StatusCode::kUnimplemented) {
      EXPECT_EQ(found.status(), expected.status());
      return;
    }
    ASSERT_TRUE(expected.ok()) << expected.status();
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, *expected);
    EXPECT_GT(third.allocations(), 0);
    EXPECT_GT(third.copies(), 0);
    fills_ += third.fills();
    ++computed_;
  }

  Registry registry_;
  const MapCase submanifold_ =
      Submanifold("Submanifold", RandomVoxels(300, {0, 2}, -6, 6, {1, 1, 1}, 1), {3, 3, 3});
  const MapCase strided_ = Layer("Strided", submanifold_.inputs, Dilate({3, 3, 3}, {2, 2, 2}));
  int computed_ = 0;
  int64_t fills_ = 0;
};

TEST_F(ThirdBackendTest, EveryMappingRuns) {
  const std::vector<std::string> specs = registry_.mappings().Variants(kCounting);
  EXPECT_EQ(specs, registry_.mappings().Variants(BackendKind::kCpu));
  for (const std::string& mapping : specs)
    ExpectTheCpus({mapping, "direct", "fused"}, submanifold_);
  EXPECT_GE(computed_, 30);
  EXPECT_GT(fills_, 0);
}

TEST_F(ThirdBackendTest, EveryDataflowRuns) {
  const std::vector<std::string> specs = registry_.dataflows().Variants(kCounting);
  EXPECT_EQ(specs, registry_.dataflows().Variants(BackendKind::kCpu));
  for (const std::string& dataflow : specs) {
    ExpectTheCpus({"hash", dataflow, "fused"}, submanifold_);
  }
  EXPECT_GE(computed_, 15);
}

TEST_F(ThirdBackendTest, EveryOutputCoordsRuns) {
  for (const std::string& spec : registry_.output_coords().Variants(kCounting)) {
    ExpectTheCpus({"hash", "direct", spec}, strided_);
  }
  EXPECT_EQ(computed_, 6);
}

TEST_F(ThirdBackendTest, WhatIsNotSharedIsRefused) {
  Registry registry;
  ASSERT_TRUE(RegisterBuiltinPlugins(registry).ok());
  const absl::Status status = registry.mappings().Create("octree", kCounting).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message().substr(0, status.message().find(";")),
            "mapping octree: it has no implementation for backend counting");
  EXPECT_TRUE(registry.mappings().Variants(kCounting).empty());
}

}  // namespace
}  // namespace voxconv
