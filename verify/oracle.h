// SPDX-License-Identifier: Apache-2.0
// The exact output of a convolution. Operands are rounded first, and the sums are fp64.
#ifndef VOXCONV_VERIFY_ORACLE_H_
#define VOXCONV_VERIFY_ORACLE_H_

#include <cstdint>
#include <vector>

#include "voxconv/core/dataflow.h"
#include "voxconv/core/types.h"
#include "voxconv/reference_cpu/convolution.h"
#include "voxconv/reference_cpu/kernel_map.h"
#include "voxconv/verify/bounds.h"

namespace voxconv::verify {

// The epilogue of core/dataflow.h with vectors on the host. An empty vector leaves its step out.
struct HostEpilogue {
  std::vector<float> scale, shift;  // [C_out], f32
  std::vector<float> residual;      // [N_out, C_out], representable in the output's dtype
  bool relu = false;

  bool affine() const { return !scale.empty() || !shift.empty() || !residual.empty(); }
};

// The steps of a dataflow that its bound depends on.
struct Execution {
  // Capability::rounds_partial_sums.
  bool rounds_partial_sums = false;
  // The sum is stored as the features are, and the epilogue stores once more.
  bool stores_before_epilogue = false;
};
// The steps of `dataflow` in the forward pass for `shape`.
Execution ExecutionOf(const Dataflow& dataflow, const ConvShape& shape);

// Host operands of one convolution, representable in `precision`.
struct Operands {
  reference::ConvShape shape;
  Precision precision = Precision::kF32;
  std::vector<float> features, weights;  // [N_in, C_in], [K * C_in, C_out]
};
// Rounds both to `precision`.
Operands RoundedOperands(const reference::ConvShape& shape, Precision precision,
                         std::vector<float> features, std::vector<float> weights);

// One convolution in fp64, and the numbers that its bounds depend on. The constructor takes three
// times O(pairs * C_in * C_out).
class ExactConvolution {
 public:
  // `map` must outlive this object.
  ExactConvolution(const reference::KernelMap& map, Operands operands);

  // The operands that kernels must be given.
  const Operands& operands() const { return operands_; }
  // The output before any epilogue, [N_out, C_out].
  const std::vector<double>& values() const { return values_; }

  // The output and its tolerances.
  Expected Expect(const Execution& execution, const HostEpilogue& epilogue = {}) const;

 private:
  struct Partials {
    std::vector<double> magnitudes, spreads;
  };
  Partials SumPartials() const;
  // The epilogue and the store of element i, whose sum `expected` holds.
  void Finish(const Execution& execution, const HostEpilogue& epilogue, size_t i,
              Expected& expected) const;

  const reference::KernelMap& map_;
  Operands operands_;
  std::vector<double> values_, magnitudes_, spreads_;  // [N_out, C_out]
  std::vector<int64_t> pairs_;                         // [N_out]
};

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_ORACLE_H_
