// What a convolution must give, computed in fp64 on operands that are rounded before.
#ifndef VOXCONV_VERIFY_ORACLE_H_
#define VOXCONV_VERIFY_ORACLE_H_

#include <cstdint>
#include <vector>

#include "core/dataflow.h"
#include "core/types.h"
#include "reference_cpu/convolution.h"
#include "reference_cpu/kernel_map.h"
#include "verify/bounds.h"

namespace voxconv::verify {

// y = max(y * scale + shift + residual, 0), as core/dataflow.h has it. Empty vectors are left out.
struct HostEpilogue {
  std::vector<float> scale, shift;  // [C_out], f32
  std::vector<float> residual;      // [N_out, C_out], as the dtype holds it
  bool relu = false;

  bool affine() const { return !scale.empty() || !shift.empty() || !residual.empty(); }
};

// How a dataflow gets to its output, where the bound depends on it.
struct Execution {
  // It stores x[p] * weights[k] of every pair in the dtype of the features.
  bool rounds_partial_sums = false;
  // The sum is stored in the dtype of the features before the epilogue, which stores once more.
  bool stores_before_epilogue = false;
};
Execution ExecutionOf(const Dataflow& dataflow, const ConvShape& shape);

// Host operands of one convolution, representable in `dtype`.
struct Operands {
  reference::ConvShape shape;
  Precision dtype = Precision::kF32;
  std::vector<float> features, weights;  // [N_in, C_in], [K * C_in, C_out]
};
// Rounds both to `dtype`.
Operands RoundedOperands(const reference::ConvShape& shape, Precision dtype,
                         std::vector<float> features, std::vector<float> weights);

// One convolution in fp64, with what its bounds are made of. O(pairs * C_in * C_out) three times
// over.
class ExactConvolution {
 public:
  // `map` must outlive what is made.
  ExactConvolution(const reference::KernelMap& map, Operands operands);

  // What kernels must be given.
  const Operands& operands() const { return operands_; }
  // Before any epilogue.
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
