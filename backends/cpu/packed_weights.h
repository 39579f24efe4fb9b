// SPDX-License-Identifier: Apache-2.0
// The weights of a layer in the panels of the CPU's micro-kernel.
#ifndef VOXCONV_BACKENDS_CPU_PACKED_WEIGHTS_H_
#define VOXCONV_BACKENDS_CPU_PACKED_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "voxconv/core/dataflow.h"

namespace voxconv {

// Weights in host memory, in one of two layouts. Panels are what PackWeights (indirect_gemm.h)
// makes of f32 weights, and PackBf16Weights (bf16_gemm.h) of bf16 weights. Panels of three parts
// are what PackAmxF32Weights (amx_f32_gemm.h) makes of f32 weights.
class PackedWeights final : public PreparedWeights {
 public:
  static constexpr char kLayout[] = "panels";
  static constexpr char kPartsLayout[] = "panels of three parts";

  // `weights` [K * c_in, c_out] is in host memory, in f32 or bf16. Runs
  // on the context's threads. O(size). kResourceExhausted if the memory does not suffice.
  static absl::StatusOr<std::unique_ptr<PreparedWeights>> Create(const ConvShape& shape,
                                                                 const ConstTensorView& weights,
                                                                 const ExecutionContext& context);
  // The same into memory of the caller's: Bytes(shape), aligned to 64 bytes. Returns finite().
  static bool Pack(const ConvShape& shape, const ConstTensorView& weights, void* panels,
                   const ExecutionContext& context);
  static int64_t Bytes(const ConvShape& shape);

  // The same three functions for panels of three parts. `weights` is in f32, and c_in is a multiple
  // of 32. PackAmxF32Weights refuses some weights: CreateParts makes panels of those, and PackParts
  // returns false.
  static absl::StatusOr<std::unique_ptr<PreparedWeights>> CreateParts(
      const ConvShape& shape, const ConstTensorView& weights, const ExecutionContext& context);
  static bool PackParts(const ConvShape& shape, const ConstTensorView& weights, void* parts,
                        const ExecutionContext& context);
  static int64_t PartsBytes(const ConvShape& shape);

  // Whether no weight is infinite or NaN.
  bool finite() const { return finite_; }

 private:
  PackedWeights(Buffer memory, const char* layout, bool finite)
      : PreparedWeights(std::move(memory), layout), finite_(finite) {}

  bool finite_;
};

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_PACKED_WEIGHTS_H_
