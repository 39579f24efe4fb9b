// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <vector>

#include "voxconv/backends/cuda/cuda_gemm.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/backends/cuda/weight_gradient.h"
#include "voxconv/backends/cuda/weight_gradient_mma.h"
#include "voxconv/core/tensor_ops.h"

namespace voxconv {
namespace {

// Rows that were gathered for products mostly stay in the second-level cache until these read them.
constexpr int64_t kGatheredBytes = int64_t{16} << 20;
constexpr int64_t kSumBytes = int64_t{16} << 20;

// to[i] = from[rows[i]]. Moves bits, whatever they mean. Sizes are in units.
template <typename Unit>
__global__ void GatherRows(const Unit* from, const int32_t* rows, int64_t count, int64_t units,
                           Unit* to) {
  for (int64_t i = FirstRow(); i < count; i += RowStride()) {
    const Unit* const row = from + rows[i] * units;
    for (int64_t c = threadIdx.x; c < units; c += blockDim.x) to[i * units + c] = row[c];
  }
}

absl::Status Gather(const ConstTensorView& from, const int32_t* rows, int64_t count, char* to,
                    const ExecutionContext& context) {
  const int64_t row_bytes = from.channels * SizeOf(from.dtype);
  const int bytes =
      VectorBytes(16, {AddressOf(from.data), AddressOf(to), static_cast<uint64_t>(row_bytes)});
  return ForVectorBytes(bytes, [&](auto vector) -> absl::Status {
    constexpr int kBytes = decltype(vector)::value;
    using Unit = RawVector<kBytes>;
    const RowLaunch launch(count, row_bytes / kBytes, context);
    VOXCONV_LAUNCH(GatherRows<Unit>, launch.grid, launch.block, 0, context,
                   static_cast<const Unit*>(from.data), rows, count, row_bytes / kBytes,
                   reinterpret_cast<Unit*>(to));
    return absl::OkStatus();
  });
}

// A part of the gradient: `channels` input channels from `first_channel` on, of the offsets
// [first, last). More than one offset only with all channels, so that the part is contiguous.
struct Part {
  int first, last;
  int64_t first_channel, channels;
};

class WeightGradient {
 public:
  WeightGradient(const KernelMap& map, const ConstTensorView& x, const ConstTensorView& dy,
                 Precision precision, const ExecutionContext& context)
      : map_(map),
        x_(x),
        dy_(dy),
        x_row_bytes_(x.channels * SizeOf(x.dtype)),
        dy_row_bytes_(dy.channels * SizeOf(dy.dtype)),
        precision_(precision),
        context_(context) {}

  // Takes the memory for gathered rows.
  absl::Status Initialise() {
    const int64_t identity = map_.identity_offset();
    const int64_t gathered = map_.num_pairs() - (identity < 0 ? 0 : map_.num_pairs(identity));
    block_ = std::clamp<int64_t>(kGatheredBytes / (x_row_bytes_ + dy_row_bytes_), 1,
                                 std::max<int64_t>(1, gathered));
    VOXCONV_ASSIGN_OR_RETURN(x_rows_, AllocateArray<char>(block_ * x_row_bytes_, context_));
    VOXCONV_ASSIGN_OR_RETURN(dy_rows_, AllocateArray<char>(block_ * dy_row_bytes_, context_));
    return absl::OkStatus();
  }

  // Writes `part` of the gradient to `sums`, f32, [offsets of the part * part.channels, C_out].
  absl::Status Compute(const Part& part, float* sums) {
    const int identity = map_.identity_offset();
    if (identity < part.first || identity >= part.last || map_.num_pairs(identity) == 0) {
      return AddGathered(part, part.first, part.last, sums);
    }
    VOXCONV_RETURN_IF_ERROR(AddGathered(part, part.first, identity, sums));
    // Every row meets itself, so that nothing needs to be gathered.
    VOXCONV_RETURN_IF_ERROR(Multiply(part, identity, static_cast<const char*>(x_.data),
                                     static_cast<const char*>(dy_.data), map_.num_pairs(identity),
                                     /*add=*/false, sums));
    return AddGathered(part, identity + 1, part.last, sums);
  }

 private:
  // The offsets [first, last) of the part. A block of pairs may span offsets.
  absl::Status AddGathered(const Part& part, int first, int last, float* sums) {
    const std::vector<int64_t>& ptr = map_.offset_ptr();
    for (int k = first; k < last; ++k) {
      if (ptr[k] != ptr[k + 1]) continue;
      VOXCONV_RETURN_IF_ERROR(
          Multiply(part, k, x_rows_.data(), dy_rows_.data(), 0, /*add=*/false, sums));
    }
    int k = first;
    for (int64_t begin = ptr[first]; begin < ptr[last]; begin += block_) {
      const int64_t end = std::min(ptr[last], begin + block_);
      VOXCONV_RETURN_IF_ERROR(
          Gather(x_, map_.pairs().in.data() + begin, end - begin, x_rows_.data(), context_));
      VOXCONV_RETURN_IF_ERROR(
          Gather(dy_, map_.pairs().out.data() + begin, end - begin, dy_rows_.data(), context_));
      while (ptr[k + 1] <= begin) ++k;
      for (int j = k; j < last && ptr[j] < end; ++j) {
        const int64_t from = std::max(begin, ptr[j]), to = std::min(end, ptr[j + 1]);
        if (from == to) continue;
        VOXCONV_RETURN_IF_ERROR(Multiply(part, j, x_rows_.data() + (from - begin) * x_row_bytes_,
                                         dy_rows_.data() + (from - begin) * dy_row_bytes_,
                                         to - from, /*add=*/from > ptr[j], sums));
      }
    }
    return absl::OkStatus();
  }

  // The sums of offset k, plus what they are if `add`, of `pairs` rows of both sides.
  absl::Status Multiply(const Part& part, int k, const char* x_rows, const char* dy_rows,
                        int64_t pairs, bool add, float* sums) {
    const GemmArgs args{.m = part.channels,
                        .n = dy_.channels,
                        .k = pairs,
                        .a = x_rows + part.first_channel * SizeOf(x_.dtype),
                        .b = dy_rows,
                        .c = sums + (k - part.first) * part.channels * dy_.channels,
                        .transpose_a = true,
                        .lda = x_.channels,
                        .precision = precision_,
                        .c_dtype = DType::kF32,
                        .beta = add ? 1.0f : 0.0f};
    return AsCuda(context_).gemm().Run(args, context_);
  }

  const KernelMap& map_;
  ConstTensorView x_, dy_;
  int64_t x_row_bytes_, dy_row_bytes_;
  Precision precision_;
  const ExecutionContext& context_;
  int64_t block_ = 0;  // pairs whose rows are gathered at once
  Array<char> x_rows_, dy_rows_;
};

}  // namespace

absl::Status CudaWeightGradient(const KernelMap& map, const ConstTensorView& x,
                                const ConstTensorView& dy, Precision precision,
                                const TensorView& gradient, const ExecutionContext& context) {
  const int64_t c_in = x.channels, c_out = dy.channels;
  const int num_offsets = map.num_offsets();
  if (gradient.rows == 0 || c_out == 0) return absl::OkStatus();
  if (HasMmaWeightGradient(c_in, c_out, context)) {
    return MmaWeightGradient(map, x, dy, precision, gradient, context);
  }
  WeightGradient sum(map, x, dy, precision, context);
  VOXCONV_RETURN_IF_ERROR(sum.Initialise());
  if (gradient.dtype == DType::kF32) {
    return sum.Compute({0, num_offsets, 0, c_in}, gradient.f32());
  }
  // Sums are rounded once, when all pairs have been added.
  const int64_t row_bytes = c_out * static_cast<int64_t>(sizeof(float));
  const int64_t rows = std::clamp<int64_t>(kSumBytes / row_bytes, 1, gradient.rows);
  const int offsets = static_cast<int>(std::clamp<int64_t>(rows / c_in, 1, num_offsets));
  const int64_t channels = std::min(rows, c_in);
  VOXCONV_ASSIGN_OR_RETURN(Array<float> sums, AllocateArray<float>(rows * c_out, context));
  for (int first = 0; first < num_offsets; first += offsets) {
    for (int64_t channel = 0; channel < c_in; channel += channels) {
      const Part part{first, std::min(num_offsets, first + offsets), channel,
                      std::min(channels, c_in - channel)};
      VOXCONV_RETURN_IF_ERROR(sum.Compute(part, sums.data()));
      const int64_t part_rows = (part.last - part.first) * part.channels;
      const int64_t at = (first * c_in + channel) * c_out * SizeOf(gradient.dtype);
      const ConstTensorView from{sums.data(), part_rows,       c_out,
                                 DType::kF32, gradient.device, c_out};
      const TensorView to{static_cast<char*>(gradient.data) + at,
                          part_rows,
                          c_out,
                          gradient.dtype,
                          gradient.device,
                          c_out};
      VOXCONV_RETURN_IF_ERROR(context.backend->tensor_ops().Convert(from, to, context));
    }
  }
  return absl::OkStatus();
}

}  // namespace voxconv
