// What a mapping or dataflow must pass before it is timed, and what two runs may differ by.
#ifndef VOXCONV_VERIFY_GATE_H_
#define VOXCONV_VERIFY_GATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/convolution.h"
#include "core/mapping.h"
#include "reference_cpu/fp64_array.h"
#include "reference_cpu/kernel_map.h"
#include "verify/oracle.h"
#include "verify/problem.h"

namespace voxconv::verify {

// A map as canonical pairs on the host, whatever its form. Synchronises the stream.
absl::StatusOr<reference::KernelMap> PairsOnHost(const KernelMap& map,
                                                 const ExecutionContext& context);

// Whether both hold the same pairs in the same order. kInternal names the first offset or pair that
// differs; `whose` is the owner of the expected ones in its words, as in "the reference".
absl::Status CompareMaps(const reference::KernelMap& map, const reference::KernelMap& expected,
                         absl::string_view whose = "the reference");
absl::Status CompareMaps(const KernelMap& map, const reference::KernelMap& expected,
                         const ExecutionContext& context,
                         absl::string_view whose = "the reference");
absl::Status CompareMaps(const KernelMap& map, const KernelMap& expected,
                         const ExecutionContext& context, absl::string_view whose);

// The norm-wise difference of an output from the `expected` one. kInternal where it is past `bound`
// or a NaN; `whose` is the expected output's owner.
absl::StatusOr<double> CompareOutputs(const std::vector<float>& output,
                                      const reference::Fp64Array& expected, double bound,
                                      absl::string_view whose);

// One of two runs of a layer.
struct RunPrecision {
  Precision dtype = Precision::kF32;
  int stores = 1;  // see RelativeTolerance
};
// `with_epilogue`: scale or shift follow the sum.
RunPrecision RunPrecisionOf(const Dataflow& dataflow, const ConvShape& shape,
                            bool with_epilogue = false);

// On the norm-wise difference of the two, each off by its RelativeTolerance. `same_operands`:
// features and weights were rounded to the same dtype before, so that none of the difference is
// theirs.
double DifferenceBound(const RunPrecision& a, const RunPrecision& b, int64_t reduction,
                       bool same_operands);

// A layer on a crop of voxels, and what the reference makes of it.
class CropReference {
 public:
  // The layer, with the channels and the precision of `shape`, on at most `limit` of `rows`, those
  // nearest to the middle one. `params` names it from its fine side at tensor stride 1
  // (MakeProblem), which is where the rows are. Refuses what ConvGeometry refuses.
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

// The mapping's map of the problem, pair by pair that of the reference. Output coordinates are
// those of `output_coords`, row by row those of the reference; without it, the reference's are
// taken.
absl::StatusOr<KernelMap> CheckedMap(const Problem& problem, const Mapping& mapping,
                                     const OutputCoords* output_coords,
                                     const ExecutionContext& context);

// The brute-force reference takes a second or less on as many voxels of a narrow layer.
inline constexpr int64_t kCropVoxels = 2000;

// CheckedMap and CheckConvolution: output coordinates and kernel map exactly, every feature within
// its bound (verify/bounds.h). kInternal says what differed; other codes are the plugins' refusals.
absl::StatusOr<CropCheck> CheckOnCrop(const CropReference& reference, const Mapping& mapping,
                                      const OutputCoords* output_coords, const Dataflow& dataflow,
                                      const ExecutionContext& context);

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_GATE_H_
