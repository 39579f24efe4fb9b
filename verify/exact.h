// Convolutions of small whole numbers. Every dtype holds their sums exactly, whatever the order of
// summation, so that a dataflow is held to the reference bit by bit.
#ifndef VOXCONV_VERIFY_EXACT_H_
#define VOXCONV_VERIFY_EXACT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/convolution.h"
#include "core/registry.h"
#include "verify/matrix.h"
#include "verify/problem.h"

namespace voxconv::verify {

// What goes into one convolution and what must come out of it. Host memory, row-major.
struct ConvData {
  int64_t c_in = 0, c_out = 0;
  std::vector<float> features;  // [N_in, C_in]
  std::vector<float> weights;   // [K, C_in, C_out]
  std::vector<float> output;    // [N_out, C_out]
};

// Features and weights of -1 and 1. No output is past 256 in magnitude (checked), which is where
// bf16 ends to hold all whole numbers. O(pairs * C_in * C_out).
ConvData WholeNumbers(const Problem& problem, int64_t c_in, int64_t c_out);

// The convolution of data.features with data.weights, in f32. O(pairs * C_in * C_out).
std::vector<float> Sums(const Problem& problem, const ConvData& data);

// kInternal names the first element that differs, and how many do. NaN equals NaN, and -0 equals 0.
absl::Status CompareExactly(const std::vector<float>& actual, const std::vector<float>& expected,
                            int64_t channels);

// Runs `dataflow` onto an output of NaN. The result is widened to f32.
absl::StatusOr<std::vector<float>> Convolve(const Dataflow& dataflow, const KernelMap& map,
                                            const ConvData& data, Precision dtype,
                                            const ExecutionContext& context);

// The channels and the dtype of a case.
struct CaseShape {
  int64_t c_in = 0, c_out = 0;
  Precision dtype = Precision::kF32;
};

// "<C_in>x<C_out>", and the dtype where it is not f32: "16x24-bf16".
std::string ShapeName(const CaseShape& shape);

// The dataflow `spec` where it runs `shape` over maps of `geometry` on the environment's backend.
// Otherwise `run` is not called: the outcome is a skip with the dataflow's reason, or a failure to
// make the dataflow.
Outcome WithDataflow(const Environment& environment, const std::string& spec,
                     const CaseShape& shape, const ConvGeometry& geometry,
                     const std::function<Outcome(const Dataflow&)>& run);
// The same for a mapping.
Outcome WithMapping(const Environment& environment, const std::string& spec,
                    const ConvGeometry& geometry,
                    const std::function<Outcome(const Mapping&)>& run);

// Calls `add` with f32 and with every other dtype that the dataflow `spec` claims for these
// channels on the environment's backend.
void ForEachClaimedDType(const Environment& environment, const std::string& spec, int64_t c_in,
                         int64_t c_out, const std::function<void(Precision)>& add);

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_EXACT_H_
