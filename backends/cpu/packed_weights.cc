// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/packed_weights.h"

#include "voxconv/backends/cpu/amx_f32_gemm.h"
#include "voxconv/backends/cpu/bf16_gemm.h"
#include "voxconv/backends/cpu/indirect_gemm.h"
#include "voxconv/backends/cpu/sgemm.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {

int64_t PackedWeights::Bytes(const ConvShape& shape) {
  const int64_t elements = shape.types.weights == DType::kBF16
                               ? PackedBf16WeightSize(shape.c_in, shape.c_out)
                               : PackedWeightSize(shape.c_in, shape.c_out);
  return shape.num_offsets * elements * SizeOf(shape.types.weights);
}

bool PackedWeights::Pack(const ConvShape& shape, const ConstTensorView& weights, void* panels,
                         const ExecutionContext& context) {
  const int64_t size = weights.rows * weights.channels;
  if (weights.dtype == DType::kBF16) {
    const auto* bits = static_cast<const uint16_t*>(weights.data);
    PackBf16Weights(bits, shape.num_offsets, shape.c_in, shape.c_out,
                    static_cast<uint16_t*>(panels), context);
    return AllFiniteBf16(context, bits, size);
  }
  PackWeights(weights.f32(), shape.num_offsets, shape.c_in, shape.c_out,
              static_cast<float*>(panels), context);
  return AllFinite(context, weights.f32(), size);
}

absl::StatusOr<std::unique_ptr<PreparedWeights>> PackedWeights::Create(
    const ConvShape& shape, const ConstTensorView& weights, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Buffer memory, context.backend->Allocate(Bytes(shape), *context.stream));
  const bool finite = Pack(shape, weights, memory.data(), context);
  return std::unique_ptr<PreparedWeights>(new PackedWeights(std::move(memory), kLayout, finite));
}

int64_t PackedWeights::PartsBytes(const ConvShape& shape) {
  return shape.num_offsets * PackedAmxF32WeightSize(shape.c_in, shape.c_out) *
         static_cast<int64_t>(sizeof(uint16_t));
}

bool PackedWeights::PackParts(const ConvShape& shape, const ConstTensorView& weights, void* parts,
                              const ExecutionContext& context) {
  return PackAmxF32Weights(weights.f32(), shape.num_offsets, shape.c_in, shape.c_out,
                           static_cast<uint16_t*>(parts), context);
}

absl::StatusOr<std::unique_ptr<PreparedWeights>> PackedWeights::CreateParts(
    const ConvShape& shape, const ConstTensorView& weights, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Buffer memory,
                           context.backend->Allocate(PartsBytes(shape), *context.stream));
  if (!PackParts(shape, weights, memory.data(), context)) return Create(shape, weights, context);
  return std::unique_ptr<PreparedWeights>(
      new PackedWeights(std::move(memory), kPartsLayout, /*finite=*/true));
}

}  // namespace voxconv
