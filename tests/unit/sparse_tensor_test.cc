// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/sparse_tensor.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "voxconv/backends/cpu/cpu_backend.h"

namespace voxconv {
namespace {

class SparseTensorTest : public ::testing::Test {
 protected:
  absl::StatusOr<SparseTensor> Create(const std::vector<Coordinate>& coordinates,
                                      const std::vector<float>& features, int64_t channels) {
    return SparseTensor::Create(coordinates, {2, 2, 2}, features, channels, context_);
  }

  std::unique_ptr<CpuBackend> backend_ = *CpuBackend::Create({.threads = 1});
  const ExecutionContext context_{backend_.get(), &backend_->main_stream(), nullptr};
};

TEST_F(SparseTensorTest, HoldsCoordinatesFeaturesAndStride) {
  const std::vector<Coordinate> rows = {{0, 2, 4, 6}, {1, 0, 0, -2}};
  const std::vector<float> features = {1, 2, 3, 4, 5, 6};
  const SparseTensor tensor = *Create(rows, features, 3);
  EXPECT_EQ(*CopyToHost(tensor.coordinates()->rows(), context_), rows);
  EXPECT_EQ(*tensor.features().ToHost(context_), features);
  EXPECT_EQ(tensor.tensor_stride(), (Int3{2, 2, 2}));
  const SparseTensorView view = tensor.view();
  EXPECT_EQ(view.coordinates, tensor.coordinates());
  EXPECT_EQ(view.features.data, tensor.features().view().data);
  EXPECT_EQ(view.features.rows, 2);
  EXPECT_EQ(view.features.channels, 3);
}

TEST_F(SparseTensorTest, MayBeEmpty) {
  const SparseTensor tensor = *Create({}, {}, 7);
  EXPECT_EQ(tensor.coordinates()->size(), 0);
  EXPECT_EQ(tensor.features().rows(), 0);
  EXPECT_EQ(tensor.features().channels(), 7);
  EXPECT_EQ(SparseTensor().coordinates(), nullptr);
}

TEST_F(SparseTensorTest, RefusesWhatDoesNotFit) {
  const std::vector<Coordinate> rows = {{0, 0, 0, 0}, {0, 2, 0, 0}};
  EXPECT_EQ(Create(rows, {1, 2, 3}, 2).status().message(),
            "features: 3 values; 2 rows of 2 channels are needed");
  EXPECT_EQ(Create(rows, {1, 2}, -1).status().message(),
            "features: 2 values; 2 rows of -1 channels are needed");
  EXPECT_EQ(Create({}, {1}, 1).status().message(),
            "features: 1 values; 0 rows of 1 channels are needed");
  EXPECT_EQ(Create({{0, 1, 0, 0}}, {1}, 1).status().message(),
            "coordinates: row 0 has x = 1; it must be a multiple of the tensor stride 2");
}

}  // namespace
}  // namespace voxconv
