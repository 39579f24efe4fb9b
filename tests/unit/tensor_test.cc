// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/tensor.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "unit_cpu.h"

namespace voxconv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Device kHost{MemorySpace::kHost, 0};

ConstTensorView Matrix(const std::vector<float>& values, int64_t rows, int64_t channels) {
  return {values.data(), rows, channels, DType::kF32, kHost};
}

std::string Refusal(const ConstTensorView& tensor, int64_t rows, int64_t channels) {
  const absl::Status status = CheckTensor("features", tensor, rows, channels, DType::kF32, kHost);
  EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(CheckTensorTest, NamesTheTensorItsValueAndWhatIsAllowed) {
  const std::vector<float> values(12);
  const ConstTensorView right = Matrix(values, 3, 4);
  EXPECT_EQ(Refusal(right, 3, 4), "");
  EXPECT_EQ(Refusal(right, 4, 3), "features: shape [3, 4]; it must be [4, 3]");
  EXPECT_EQ(Refusal(right, 3, 5), "features: shape [3, 4]; it must be [3, 5]");

  ConstTensorView half = right;
  half.dtype = DType::kF16;
  EXPECT_EQ(Refusal(half, 3, 4), "features: dtype f16; it must be f32");

  ConstTensorView elsewhere = right;
  elsewhere.device = {MemorySpace::kDevice, 1};
  EXPECT_EQ(Refusal(elsewhere, 3, 4),
            "features: it lies in device 1; the backend takes host memory");

  ConstTensorView null = right;
  null.data = nullptr;
  EXPECT_EQ(Refusal(null, 3, 4), "features: its data is null");
}

TEST(CheckTensorTest, ADeviceIsToldFromAnother) {
  const std::vector<float> values(2);
  ConstTensorView tensor = Matrix(values, 1, 2);
  tensor.device = {MemorySpace::kDevice, 0};
  const Device second{MemorySpace::kDevice, 1};
  EXPECT_EQ(CheckTensor("x", tensor, 1, 2, DType::kF32, second),
            absl::InvalidArgumentError("x: it lies in device 0; the backend takes device 1"));
  tensor.device = second;
  EXPECT_TRUE(CheckTensor("x", tensor, 1, 2, DType::kF32, second).ok());
}

TEST(CheckTensorTest, RowsFollowEachOther) {
  const std::vector<float> values(12);
  ConstTensorView wide = Matrix(values, 2, 4);
  wide.row_stride = 6;
  EXPECT_FALSE(wide.contiguous());
  EXPECT_EQ(Refusal(wide, 2, 4), "features: row stride 6; it must be 4, the number of channels");
  EXPECT_TRUE(CheckTensor("x", wide, 2, 4, DType::kF32, kHost, /*strided=*/true).ok());
  wide.row_stride = 3;
  EXPECT_EQ(CheckTensor("x", wide, 2, 4, DType::kF32, kHost, /*strided=*/true).message(),
            "x: row stride 3; it must be at least 4, the number of channels");
  wide.row_stride = 6;
  wide.rows = 1;  // nothing lies behind its only row
  EXPECT_EQ(Refusal(wide, 1, 4), "");
}

TEST(CheckTensorTest, NothingMayBeNull) {
  EXPECT_EQ(Refusal({nullptr, 0, 4, DType::kF32, kHost}, 0, 4), "");
  EXPECT_EQ(Refusal({nullptr, 4, 0, DType::kF32, kHost}, 4, 0), "");
}

TEST(TensorViewTest, ToHostSkipsWhatLiesBetweenRows) {
  const UnitCpu cpu(1);
  const Tensor tensor = *Tensor::FromHost({{1, 2, 3, 4, 5, 6}}, 2, 3, cpu.context);
  TensorView left = tensor.view();
  left.channels = 2;
  EXPECT_EQ(left.row_stride, 3);
  EXPECT_EQ(left.bytes(), 16);
  EXPECT_THAT(*ToHost(left, cpu.context), ElementsAre(1, 2, 4, 5));
  const Tensor half = *Tensor::FromHost({{1, 2, 3, 4}}, 2, 2, cpu.context, DType::kBF16);
  EXPECT_EQ(half.view().bytes(), 8);
  ConstTensorView right = half.view();
  right.data = static_cast<const uint16_t*>(right.data) + 1;
  right.channels = 1;
  EXPECT_THAT(*ToHost(right, cpu.context), ElementsAre(2, 4));
  EXPECT_THAT(*Tensor::Create(0, 3, DType::kF32, cpu.context)->ToHost(cpu.context), IsEmpty());
}

}  // namespace
}  // namespace voxconv
