// SPDX-License-Identifier: Apache-2.0
// Convolutions of small whole numbers. Every dtype represents their sums exactly, in any order of
// summation. A dataflow must therefore agree with the reference bit by bit.
#ifndef VOXCONV_VERIFY_EXACT_H_
#define VOXCONV_VERIFY_EXACT_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/registry.h"
#include "voxconv/verify/difference.h"
#include "voxconv/verify/matrix.h"
#include "voxconv/verify/problem.h"

namespace voxconv::verify {

// The operands of one convolution and its expected output. Host memory, row-major.
struct ConvData {
  int64_t c_in = 0, c_out = 0;
  std::vector<float> features;  // [N_in, C_in]
  std::vector<float> weights;   // [K, C_in, C_out]
  std::vector<float> output;    // [N_out, C_out]
};

// Features and weights of -1 and 1. No output is above 256 in magnitude (checked), because bf16
// does not represent all larger whole numbers. O(pairs * C_in * C_out).
ConvData WholeNumbers(const Problem& problem, int64_t c_in, int64_t c_out);

// The convolution of data.features with data.weights, in f32. O(pairs * C_in * C_out).
std::vector<float> Sums(const Problem& problem, const ConvData& data);

// Checks that all elements are equal. NaN equals NaN, and -0 equals 0. kInternal names the element
// that differs most, and says how many differ and in which pattern. With `layer`, of which the
// output was computed, the message tells more.
absl::Status CompareExactly(const std::vector<float>& actual, const std::vector<float>& expected,
                            int64_t channels, const LayerData* layer = nullptr);

// What `data` is, for messages. Refers to both.
LayerData LayerDataOf(const Problem& problem, const ConvData& data);

// Runs the forward pass of `dataflow` in `precision` onto an output that is NaN before. Returns the
// output on the host, widened to f32. Synchronises the stream.
absl::StatusOr<std::vector<float>> Convolve(const Dataflow& dataflow, const KernelMap& map,
                                            const ConvData& data, Precision precision,
                                            const ExecutionContext& context);

// The channels and the precision of a case.
struct CaseShape {
  int64_t c_in = 0, c_out = 0;
  Precision precision = Precision::kF32;
};

// "<C_in>x<C_out>", and the precision if it is not f32: "16x24-bf16".
std::string ShapeName(const CaseShape& shape);

// Makes the dataflow `spec` for the environment's backend and calls `run` with it. If the dataflow
// does not support `shape` with `geometry`, the outcome is a skip with its reason. If it cannot be
// made, the outcome is a failure.
Outcome WithDataflow(const Environment& environment, const std::string& spec,
                     const CaseShape& shape, const ConvGeometry& geometry,
                     const std::function<Outcome(const Dataflow&)>& run);
// The same for a mapping.
Outcome WithMapping(const Environment& environment, const std::string& spec,
                    const ConvGeometry& geometry,
                    const std::function<Outcome(const Mapping&)>& run);

// Calls `add` with f32, and with every other precision that the dataflow `spec` claims for these
// channels on the environment's backend.
void ForEachClaimedPrecision(const Environment& environment, const std::string& spec, int64_t c_in,
                             int64_t c_out, const std::function<void(Precision)>& add);
// The same for every variant of every dataflow, in its turn, and for all these `channels`.
void ForEachClaimedShape(const Environment& environment, std::initializer_list<CaseShape> channels,
                         const std::function<void(const std::string&, const CaseShape&)>& add);

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_EXACT_H_
