// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/cuda_gemm.h"

#include <cmath>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "unit_cuda.h"
#include "voxconv/core/tensor.h"

namespace voxconv {
namespace {

using ::testing::HasSubstr;

// A device matrix whose rows are `ld` elements apart, `shift` elements past an aligned address, and
// what it holds.
struct Matrix {
  Tensor tensor;
  std::vector<float> values;
  int64_t shift = 0;

  Matrix(int64_t rows, int64_t ld, int64_t shift, DType dtype, const ExecutionContext& context)
      : shift(shift) {
    std::mt19937 random(static_cast<uint32_t>(rows * 131 + ld));
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> host(rows * ld + shift);
    for (float& value : host) value = uniform(random);
    tensor = *Tensor::FromHost(host, 1, host.size(), context, dtype);
    values = Read(context);
  }
  std::vector<float> Read(const ExecutionContext& context) const {
    std::vector<float> host = *tensor.ToHost(context);
    return {host.begin() + shift, host.end()};
  }
  void* data() const {
    return static_cast<char*>(tensor.view().data) + shift * SizeOf(tensor.view().dtype);
  }
};

// Of the sum of absolute products; the result's rounding included.
double Bound(Precision precision, DType c_dtype) {
  if (c_dtype == DType::kBF16) return 8e-3;
  if (precision == Precision::kTf32 || c_dtype == DType::kF16) return 1e-3;
  return 1e-6;
}

// Compares with sums on the host. `pad` elements lie between rows, `gap` elements between the
// matrices of c, and each matrix begins `shift` elements past an aligned address.
void Check(GemmArgs args, int64_t pad, int64_t shift, const ExecutionContext& context,
           int64_t gap = 0) {
  SCOPED_TRACE(testing::Message() << args.m << " x " << args.n << " x " << args.k
                                  << (args.transpose_a ? " with a transposed, " : ", ")
                                  << ToString(args.precision) << " to " << ToString(args.c_dtype)
                                  << ", beta " << args.beta << ", batch " << args.batch << ", pad "
                                  << pad << ", shift " << shift << ", gap " << gap);
  const DType dtype = StorageOf(args.precision);
  const int64_t a_rows = args.transpose_a ? args.k : args.m;
  args.lda = (args.transpose_a ? args.m : args.k) + pad;
  args.ldb = args.n + pad;
  args.ldc = args.n + pad;
  args.stride_a = a_rows * args.lda;
  args.stride_b = args.k * args.ldb;
  args.stride_c = args.m * args.ldc + gap;
  const Matrix a(args.batch * a_rows, args.lda, shift, dtype, context);
  const Matrix b(args.batch * args.k, args.ldb, shift, dtype, context);
  const Matrix c(args.batch, args.stride_c, shift, args.c_dtype, context);
  args.a = a.data();
  args.b = b.data();
  args.c = c.data();
  const absl::Status status = AsCuda(context).gemm().Run(args, context);
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<float> result = c.Read(context);
  const double bound = Bound(args.precision, args.c_dtype);
  for (int64_t i = 0; i < args.batch; ++i) {
    for (int64_t row = 0; row < args.m; ++row) {
      for (int64_t column = 0; column < args.ldc; ++column) {
        const int64_t at = i * args.stride_c + row * args.ldc + column;
        if (column >= args.n) {  // padding stays
          ASSERT_EQ(result[at], c.values[at]);
          continue;
        }
        double sum = double{args.beta} * c.values[at], size = std::abs(sum);
        for (int64_t k = 0; k < args.k; ++k) {
          const int64_t a_at = args.transpose_a ? k * args.lda + row : row * args.lda + k;
          const double product = double{a.values[i * args.stride_a + a_at]} *
                                 b.values[i * args.stride_b + k * args.ldb + column];
          sum += product;
          size += std::abs(product);
        }
        // Subnormal halves are 2^-24 apart, whatever the size.
        const double floor = args.c_dtype == DType::kF16 ? 0x1p-24 : 0;
        ASSERT_NEAR(result[at], sum, bound * size + floor) << "at " << row << ", " << column;
      }
    }
    for (int64_t at = (i + 1) * args.stride_c - gap; at < (i + 1) * args.stride_c; ++at) {
      ASSERT_EQ(result[at], c.values[at]) << "between matrices";
    }
  }
}

constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kTf32, Precision::kF16,
                                     Precision::kBF16};

TEST(CudaGemmTest, AllShapesAlignmentsAndTypes) {
  VOXCONV_NEED_CUDA(unit);
  constexpr int64_t kShapes[][3] = {{1, 1, 1},    {33, 7, 5},    {257, 3, 65}, {129, 64, 32},
                                    {70, 96, 17}, {1029, 1, 20}, {514, 33, 1}};
  for (const Precision precision : kPrecisions) {
    for (const auto& [m, n, k] : kShapes) {
      for (int64_t odd : {0, 1}) {
        for (float beta : {0.0f, 1.0f}) {
          for (const DType c_dtype : {StorageOf(precision), DType::kF32}) {
            for (const bool transpose_a : {false, true}) {
              Check({.m = m,
                     .n = n,
                     .k = k,
                     .transpose_a = transpose_a,
                     .precision = precision,
                     .c_dtype = c_dtype,
                     .beta = beta},
                    odd, odd, unit->context);
            }
          }
        }
      }
    }
  }
}

TEST(CudaGemmTest, Batches) {
  VOXCONV_NEED_CUDA(unit);
  for (const Precision precision : kPrecisions) {
    for (const bool transpose_a : {false, true}) {
      Check({.m = 31,
             .n = 8,
             .k = 16,
             .transpose_a = transpose_a,
             .precision = precision,
             .c_dtype = StorageOf(precision),
             .batch = 3},
            0, 0, unit->context);
      Check(
          {.m = 5, .n = 9, .k = 7, .transpose_a = transpose_a, .precision = precision, .batch = 2},
          3, 1, unit->context);
    }
  }
}

TEST(CudaGemmTest, EmptyProducts) {
  VOXCONV_NEED_CUDA(unit);
  for (const Precision precision : kPrecisions) {
    for (float beta : {0.0f, 0.5f, 1.0f}) {
      for (int64_t batch : {1, 2}) {
        for (int64_t pad : {0, 1}) {
          for (int64_t gap : {0, 4}) {
            for (const bool transpose_a : {false, true}) {
              Check({.m = 5,
                     .n = 3,
                     .transpose_a = transpose_a,
                     .precision = precision,
                     .c_dtype = StorageOf(precision),
                     .beta = beta,
                     .batch = batch},
                    pad, 0, unit->context, gap);
            }
          }
        }
      }
    }
    Check({.m = 0, .n = 3, .k = 2, .precision = precision}, 0, 0, unit->context);
    Check({.m = 3, .n = 0, .k = 2, .precision = precision}, 0, 0, unit->context);
  }
}

TEST(CudaGemmTest, RepeatsBitwise) {
  VOXCONV_NEED_CUDA(unit);
  // Few outputs of many products, where a split over k pays, and tiles that come out uneven, whose
  // last are split where kernels can.
  constexpr int64_t kShapes[][3] = {{16, 16, 20000}, {5609, 184, 1944}};
  for (const auto& [m, n, k] : kShapes) {
    for (const Precision precision : kPrecisions) {
      SCOPED_TRACE(testing::Message()
                   << m << " x " << n << " x " << k << " " << ToString(precision));
      const Matrix a(m, k, 0, StorageOf(precision), unit->context);
      const Matrix b(k, n, 0, StorageOf(precision), unit->context);
      std::vector<float> first;
      for (int run = 0; run < 5; ++run) {
        const Matrix c(m, n, 0, DType::kF32, unit->context);
        ASSERT_TRUE(unit->backend->gemm()
                        .Run({.m = m,
                              .n = n,
                              .k = k,
                              .a = a.data(),
                              .b = b.data(),
                              .c = c.data(),
                              .precision = precision},
                             unit->context)
                        .ok());
        if (run == 0) first = c.Read(unit->context);
        ASSERT_TRUE(c.Read(unit->context) == first) << "run " << run;
      }
    }
  }
}

// Algorithms are chosen for somewhat more rows, for which these take less workspace (on an H200, in
// tf32: kernels that share out the products of the last tiles).
TEST(CudaGemmTest, TheTrueRowsMayNeedMoreWorkspace) {
  VOXCONV_NEED_CUDA(unit);
  constexpr int64_t kShapes[][3] = {{5609, 184, 1944}, {21454, 144, 1512}, {20786, 232, 2160}};
  for (const auto& [m, n, k] : kShapes) {
    std::vector<float> rows;
    for (int64_t i = 0; i < m; ++i) rows.insert(rows.end(), k, static_cast<float>(i % 7 + 1));
    for (const Precision precision : {Precision::kTf32, Precision::kF16}) {
      SCOPED_TRACE(testing::Message()
                   << m << " x " << n << " x " << k << " " << ToString(precision));
      const DType dtype = StorageOf(precision);
      const Tensor a = *Tensor::FromHost(rows, m, k, unit->context, dtype);
      const Tensor b =
          *Tensor::FromHost(std::vector<float>(k * n, 1.0f), k, n, unit->context, dtype);
      const Tensor c = *Tensor::Create(m, n, DType::kF32, unit->context);
      const absl::Status status = unit->backend->gemm().Run({.m = m,
                                                             .n = n,
                                                             .k = k,
                                                             .a = a.view().data,
                                                             .b = b.view().data,
                                                             .c = c.view().data,
                                                             .precision = precision},
                                                            unit->context);
      ASSERT_TRUE(status.ok()) << status;
      const std::vector<float> sums = *c.ToHost(unit->context);
      for (int64_t i = 0; i < m * n; ++i) {
        ASSERT_EQ(sums[i], static_cast<float>(k * (i / n % 7 + 1))) << i;
      }
    }
  }
}

TEST(CudaGemmTest, RefusesByValue) {
  VOXCONV_NEED_CUDA(unit);
  CudaGemm& gemm = unit->backend->gemm();
  EXPECT_THAT(gemm.Run({.m = -1}, unit->context).message(), HasSubstr("m -1"));
  EXPECT_THAT(gemm.Run({.m = 1, .n = 4, .k = 4, .ldb = 3}, unit->context).message(),
              HasSubstr("a, b and c need 4, 4, 4 at least"));
  EXPECT_THAT(
      gemm.Run({.m = 5, .n = 4, .k = 4, .transpose_a = true, .lda = 4}, unit->context).message(),
      HasSubstr("row lengths 4, 4, 4; a, b and c need 5, 4, 4 at least"));
  EXPECT_THAT(
      gemm.Run({.precision = Precision::kF16, .c_dtype = DType::kBF16}, unit->context).message(),
      HasSubstr("c of bf16 for operands of f16"));
}

}  // namespace
}  // namespace voxconv
