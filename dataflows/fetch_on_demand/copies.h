// SPDX-License-Identifier: Apache-2.0
// MinkowskiEngine's second dataflow: the pairs' input rows are copied to one matrix an offset, a
// library multiplies it, and the product's rows are added to the outputs.
#ifndef VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_COPIES_H_
#define VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_COPIES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/types.h"

namespace voxconv {

// Which layers copy their rows.
enum class CopyRule { kNever, kMinkowski, kAlways };

// Whether a layer of these channels and this many input rows copies. kMinkowski is the rule of
// MinkowskiEngine 0.5.4 (src/convolution_kernel.cu, check_direct_gemm_forward).
bool CopiesRows(CopyRule rule, int64_t c_in, int64_t c_out, int64_t num_inputs);

// The plan of a layer that copies: books both matrices, and an f32 sum where outputs have 16 bits.
class CopyPlan final : public DataflowPlan {
 public:
  // `counts_launches`: count a launch for each offset's product. CUDA counts its launches as they
  // are made.
  CopyPlan(const KernelMap& map, const ConvShape& shape, bool counts_launches);

  int rows_slot() const { return rows_slot_; }          // [pairs of the largest offset, c_in]
  int products_slot() const { return products_slot_; }  // [the same, c_out], f32
  int sum_slot() const { return sum_slot_; }            // [N_out, c_out], f32; -1: the output's

 private:
  int rows_slot_ = -1, products_slot_ = -1, sum_slot_ = -1;
};

// A layer's copies and products. Nothing is owned. All memory is the backend's.
struct CopiedProducts {
  const void* input = nullptr;    // [N_in, c_in], stored as StorageOf(precision)
  const void* weights = nullptr;  // [K, c_in, c_out], stored alike
  float* sum = nullptr;           // [N_out, c_out]
  void* rows = nullptr;           // of CopyPlan::rows_slot
  float* products = nullptr;      // of CopyPlan::products_slot
  int64_t c_in = 0, c_out = 0;
  Precision precision = Precision::kF32;
};

// Computes sum[out[i]] += input[in[i]] * weights[k] for all pairs of the map, which has the form
// kPairs, offset by offset. Queues three launches an offset on the context's stream, and does not
// synchronise it. Deterministic, because an output row occurs once an offset.
absl::Status AddCopiedProductsCuda(const KernelMap& map, const CopiedProducts& args,
                                   const ExecutionContext& context);
// The same on the CPU, in f32.
void AddCopiedProductsCpu(const KernelMap& map, const CopiedProducts& args,
                          const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_FETCH_ON_DEMAND_COPIES_H_
