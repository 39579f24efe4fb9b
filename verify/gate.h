// SPDX-License-Identifier: Apache-2.0
// The checks that a mapping or dataflow must pass before it is timed, and bounds on the difference
// of two runs.
#ifndef VOXCONV_VERIFY_GATE_H_
#define VOXCONV_VERIFY_GATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/mapping.h"
#include "voxconv/reference_cpu/fp64_array.h"
#include "voxconv/reference_cpu/kernel_map.h"
#include "voxconv/verify/oracle.h"
#include "voxconv/verify/problem.h"

namespace voxconv::verify {

// Copies a map of any form to the host, as canonical pairs. Synchronises the stream.
absl::StatusOr<reference::KernelMap> PairsOnHost(const KernelMap& map,
                                                 const ExecutionContext& context);

// These check that both maps have the same pairs in the same order. kInternal names the first
// offset or pair that differs. `whose` says in the message who made the expected map. Those that
// take a context synchronise its stream.
absl::Status CompareMaps(const reference::KernelMap& map, const reference::KernelMap& expected,
                         absl::string_view whose = "the reference");
absl::Status CompareMaps(const KernelMap& map, const reference::KernelMap& expected,
                         const ExecutionContext& context,
                         absl::string_view whose = "the reference");
absl::Status CompareMaps(const KernelMap& map, const KernelMap& expected,
                         const ExecutionContext& context, absl::string_view whose);
// The same against the reference's map of `problem`. The message also has the first wrong output,
// the voxels of both rows and the offset (CheckMapOnAllRows).
absl::Status CompareMaps(const KernelMap& map, const Problem& problem,
                         const ExecutionContext& context);

// The norm-wise difference of an output from the `expected` one. kInternal if it is above `bound`
// or NaN. `whose` says in the message who made the expected output.
absl::StatusOr<double> CompareOutputs(const std::vector<float>& output,
                                      const reference::Fp64Array& expected, double bound,
                                      absl::string_view whose);

// The same, of a difference that is known.
absl::StatusOr<double> HoldDifference(double difference, double bound, absl::string_view whose);

// One of two runs of a layer.
struct RunPrecision {
  Precision precision = Precision::kF32;
  int stores = 1;  // see RelativeTolerance
};
// The precision and the stores of `dataflow` for `shape`. `with_epilogue`: a scale or shift follows
// the sum.
RunPrecision RunPrecisionOf(const Dataflow& dataflow, const ConvShape& shape,
                            bool with_epilogue = false);

// A bound on the norm-wise difference of two runs, each of which is off by its RelativeTolerance.
// `same_operands`: both runs have the same features and weights, rounded before, so that rounding
// these adds no difference.
double DifferenceBound(const RunPrecision& a, const RunPrecision& b, int64_t reduction,
                       bool same_operands);

// A layer on a crop of voxels, and its output by the reference.
class CropReference {
 public:
  // The layer has the channels and the precision of `shape`. It runs on at most `limit` of `rows`,
  // those nearest to the middle one. `rows` are the voxels of its fine side, at tensor stride 1,
  // and `params` describes the layer from that side (MakeProblem). Errors of ConvGeometry::Create.
  static absl::StatusOr<CropReference> Create(const GeometryParams& params, const ConvShape& shape,
                                              absl::Span<const Coordinate> rows, int64_t limit);

  const Problem& problem() const { return *problem_; }
  const ExactConvolution& exact() const { return *exact_; }

 private:
  std::unique_ptr<const Problem> problem_;
  std::unique_ptr<const ExactConvolution> exact_;  // refers to the problem's map
};

struct CropCheck {
  int64_t voxels = 0;  // of the input
  double error = 0;    // norm-wise, against the reference
  double bound = 0;    // on it
};

// The mapping's map of the problem, in the backend's memory. It is checked pair by pair against
// that of the reference. `output_coords` computes the output coordinates, which are checked row by
// row. If it is null, those of the reference are taken. kInternal says what differs. Synchronises
// the stream.
absl::StatusOr<KernelMap> CheckedMap(const Problem& problem, const Mapping& mapping,
                                     const OutputCoords* output_coords,
                                     const ExecutionContext& context);

// For so many voxels of a narrow layer, the brute-force reference takes a second or less.
inline constexpr int64_t kCropVoxels = 2000;

// CheckedMap and CheckConvolution: output coordinates and kernel map must be exact, and every
// feature within its bound (verify/bounds.h). kInternal says what differs. Other codes are the
// refusals of the plugins.
absl::StatusOr<CropCheck> CheckOnCrop(const CropReference& reference, const Mapping& mapping,
                                      const OutputCoords* output_coords, const Dataflow& dataflow,
                                      const ExecutionContext& context);

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_GATE_H_
