// SPDX-License-Identifier: Apache-2.0
// What the tests of the voxel operators share. Each test runs on every backend.
#ifndef VOXCONV_TESTS_UNIT_VOXEL_OPS_TEST_UTIL_H_
#define VOXCONV_TESTS_UNIT_VOXEL_OPS_TEST_UTIL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "unit_cpu.h"
#include "voxconv/core/random.h"
#include "voxconv/core/voxel_ops.h"
#include "voxconv/io/voxelize.h"
#ifdef VOXCONV_TEST_CUDA
#include "unit_cuda.h"
#endif

namespace voxconv {

// A cloud as the operators take it.
struct Points {
  std::vector<float> values;  // [P, columns]
  int64_t columns = 3;
  std::vector<int32_t> batches;  // empty: none are given

  int64_t size() const { return static_cast<int64_t>(values.size()) / columns; }
};

// The same for the host.
inline PointCloud HostCloud(const Points& points) {
  PointCloud cloud;
  for (int64_t c = 3; c < points.columns; ++c) cloud.feature_names.push_back(std::to_string(c));
  for (int64_t i = 0; i < points.size(); ++i) {
    const float* row = points.values.data() + i * points.columns;
    cloud.xyz.insert(cloud.xyz.end(), row, row + 3);
    cloud.features.insert(cloud.features.end(), row + 3, row + points.columns);
  }
  return cloud;
}

// As f32, with all features.
inline Points PointsOf(const PointCloud& cloud) {
  Points points;
  points.columns = 3 + cloud.channels();
  for (int64_t i = 0; i < cloud.size(); ++i) {
    for (int64_t c = 0; c < 3; ++c) {
      points.values.push_back(static_cast<float>(cloud.xyz[3 * i + c]));
    }
    const float* row = cloud.features.data() + i * cloud.channels();
    points.values.insert(points.values.end(), row, row + cloud.channels());
  }
  return points;
}

// Points in a cube around the origin, with `columns` - 3 features of very different sizes.
inline Points RandomPoints(int64_t count, int64_t columns, double half, uint64_t seed = 1) {
  Random random(seed);
  Points points{.columns = columns};
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t c = 0; c < columns; ++c) {
      const double scale = c < 3 ? half : random.Below(2) == 0 ? 1e-6 : 1e9;
      points.values.push_back(static_cast<float>(scale * random.Uniform(-1, 1)));
    }
  }
  return points;
}

class VoxelOpsTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    if (name == "cuda") {
#ifdef VOXCONV_TEST_CUDA
      cuda_ = UnitCuda::Create();
      if (cuda_ == nullptr) GTEST_SKIP() << "no CUDA device on this machine";
      context_ = cuda_->context;
#endif
    } else {
      cpu_ = std::make_unique<UnitCpu>(name == "cpu1" ? 1 : 3);
      context_ = cpu_->context;
    }
    ASSERT_NE(context_.backend->voxel_ops(), nullptr);
  }

  VoxelOps& ops() { return *context_.backend->voxel_ops(); }

  // A cloud in the backend's memory.
  struct Placed {
    Tensor values;
    Array<int32_t> batches;
    const int32_t* batch_data() const { return batches.size() == 0 ? nullptr : batches.data(); }
  };
  Placed Place(const Points& points) {
    Placed placed;
    placed.values = *Tensor::FromHost(points.values, points.size(), points.columns, context_);
    placed.batches = *CopyToBackend<int32_t>(points.batches, context_);
    return placed;
  }

  // A voxelisation on the host.
  struct Result {
    VoxelSummary summary;
    std::vector<Coordinate> coords;
    std::vector<float> features;
    std::vector<int32_t> voxel_of_point, points_of_voxel, begins, points;
  };
  absl::StatusOr<Result> Voxels(const Points& points, const VoxelOptions& options) {
    const Placed placed = Place(points);
    VOXCONV_ASSIGN_OR_RETURN(
        const PointVoxels voxels,
        ops().Voxelize(placed.values.view(), placed.batch_data(), options, context_));
    Result result;
    VOXCONV_ASSIGN_OR_RETURN(result.summary, CollectVoxels(voxels, context_));
    const int64_t rows = result.summary.voxels;
    result.coords = *CopyToHost(voxels.coords, context_);
    result.coords.resize(rows);
    result.features = *voxels.features.ToHost(context_);
    result.features.resize(rows * voxels.features.channels());
    result.voxel_of_point = *CopyToHost(voxels.voxel_of_point, context_);
    result.points_of_voxel = *CopyToHost(voxels.points_of_voxel, context_);
    result.points_of_voxel.resize(rows);
    result.begins = *CopyToHost(voxels.begins, context_);
    result.begins.resize(rows + 1);
    result.points = *CopyToHost(voxels.points, context_);
    result.points.resize(result.begins.back());
    return result;
  }

#ifdef VOXCONV_TEST_CUDA
  std::unique_ptr<UnitCuda> cuda_;
#endif
  std::unique_ptr<UnitCpu> cpu_;
  ExecutionContext context_;
};

#ifdef VOXCONV_TEST_CUDA
#define VOXCONV_ON_EVERY_BACKEND(Test)                                                \
  INSTANTIATE_TEST_SUITE_P(Backends, Test, ::testing::Values("cpu1", "cpu3", "cuda"), \
                           [](const auto& info) { return std::string(info.param); })
#else
#define VOXCONV_ON_EVERY_BACKEND(Test)                                        \
  INSTANTIATE_TEST_SUITE_P(Backends, Test, ::testing::Values("cpu1", "cpu3"), \
                           [](const auto& info) { return std::string(info.param); })
#endif

}  // namespace voxconv

#endif  // VOXCONV_TESTS_UNIT_VOXEL_OPS_TEST_UTIL_H_
