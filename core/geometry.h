// The only home of coordinate arithmetic and of the kernel-offset order.
#ifndef VOXCONV_CORE_GEOMETRY_H_
#define VOXCONV_CORE_GEOMETRY_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/types.h"

namespace voxconv {

enum class ConvKind { kSubmanifold, kStrided, kInverse, kTransposed };
enum class OutputRule { kQuantize, kDilate };

absl::string_view ToString(ConvKind kind);
absl::string_view ToString(OutputRule rule);
// "generative" is accepted for transposed.
absl::StatusOr<ConvKind> ParseConvKind(absl::string_view text);
absl::StatusOr<OutputRule> ParseOutputRule(absl::string_view text);

struct GeometryParams {
  ConvKind kind = ConvKind::kSubmanifold;
  OutputRule rule = OutputRule::kQuantize;  // strided and inverse only
  Int3 kernel{3, 3, 3};
  Int3 stride{1, 1, 1};
  Int3 dilation{1, 1, 1};
  Int3 padding{0, 0, 0};  // dilate only; may be negative
  Int3 input_tensor_stride{1, 1, 1};
  // Dilate only: outputs outside are dropped. Inclusive, in units of the output tensor stride;
  // absent: unbounded.
  std::optional<Box> output_bounds;

  friend bool operator==(const GeometryParams&, const GeometryParams&) = default;
};

// A validated convolution geometry.
//
// Let t be the tensor stride of the finer side (input of submanifold and strided, output of
// inverse and transposed), s the stride, P the padding, and delta_k the kernel offset k: per axis
// -(K-1)/2 .. (K-1)/2 for odd K, 0 .. K-1 for even K, times dilation times t; index order x
// slowest, z fastest. Whatever the kind, input p, output q and offset k form a pair iff
//
//     p = q + InputOffset(k)
//
// with InputOffset = delta_k - P t for submanifold (P = 0) and strided, and its negative for
// inverse and transposed. Mappings need nothing else.
class ConvGeometry {
 public:
  // Refuses, naming the parameter, its value and what is allowed: kernel < 1 or K > 32768, stride
  // or dilation < 1, submanifold with stride or padding, padding or bounds without `dilate`, a
  // transposed or inverse stride that does not divide the input tensor stride, reach beyond the
  // coordinate range.
  static absl::StatusOr<ConvGeometry> Create(const GeometryParams& params);

  // The inverse of a strided geometry: inputs are its outputs and outputs its inputs.
  static absl::StatusOr<ConvGeometry> InverseOf(const ConvGeometry& strided);

  const GeometryParams& params() const { return params_; }
  ConvKind kind() const { return params_.kind; }
  // K, the number of kernel offsets.
  int num_offsets() const { return static_cast<int>(input_offsets_.size()); }
  const Int3& input_tensor_stride() const { return params_.input_tensor_stride; }
  const Int3& output_tensor_stride() const { return output_tensor_stride_; }

  // delta_k in finest-voxel units, without padding and sign; the field's "kernel offset".
  const Int3& KernelOffset(int k) const { return kernel_offsets_[k]; }
  // p - q of every pair of offset k, in finest-voxel units.
  const Int3& InputOffset(int k) const { return input_offsets_[k]; }
  absl::Span<const Int3> input_offsets() const { return input_offsets_; }

  // The offset k' with InputOffset(k') = -InputOffset(k) is K-1-k for every k: submanifold with an
  // odd kernel on every axis. Then the map of k' is the transpose of k's (TorchSparse 4.2.1).
  bool symmetric() const { return symmetric_; }
  // Index of the offset with InputOffset = 0 whose map is the identity; -1 where there is none.
  // Submanifold only.
  int center() const { return center_; }
  // Outputs are the inputs, row by row.
  bool keeps_coordinates() const { return params_.kind == ConvKind::kSubmanifold; }

  // "submanifold k3", "strided/dilate k3 s2 p1": stable, for messages and result files.
  std::string ToString() const;

 private:
  ConvGeometry() = default;

  GeometryParams params_;
  Int3 output_tensor_stride_;
  std::vector<Int3> kernel_offsets_, input_offsets_;
  bool symmetric_ = false;
  int center_ = -1;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_GEOMETRY_H_
