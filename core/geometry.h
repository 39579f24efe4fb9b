// SPDX-License-Identifier: Apache-2.0
// Convolution geometries. All coordinate arithmetic, and the order of the kernel offsets, are
// defined here.
#ifndef VOXCONV_CORE_GEOMETRY_H_
#define VOXCONV_CORE_GEOMETRY_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/types.h"

namespace voxconv {

// What a layer does to the voxels. kInverse goes back from the outputs of a strided layer to its
// inputs. kTransposed makes new voxels at a finer tensor stride.
enum class ConvKind { kSubmanifold, kStrided, kInverse, kTransposed };
// How a strided layer finds its output voxels. kQuantize rounds the inputs down to the coarser
// lattice. kDilate takes every voxel of that lattice whose window has an input.
enum class OutputRule { kQuantize, kDilate };

absl::string_view ToString(ConvKind kind);
absl::string_view ToString(OutputRule rule);
// Read what ToString writes. "generative" is accepted for transposed. kInvalidArgument gives the
// text and what is allowed.
absl::StatusOr<ConvKind> ParseConvKind(absl::string_view text);
absl::StatusOr<OutputRule> ParseOutputRule(absl::string_view text);

// What a user says of a layer. ConvGeometry::Create checks it.
struct GeometryParams {
  ConvKind kind = ConvKind::kSubmanifold;
  OutputRule rule = OutputRule::kQuantize;  // strided and inverse only
  Int3 kernel{3, 3, 3};
  Int3 stride{1, 1, 1};
  Int3 dilation{1, 1, 1};
  Int3 padding{0, 0, 0};  // dilate only; may be negative
  Int3 input_tensor_stride{1, 1, 1};
  // Dilate only: outputs outside this box are dropped. In units of the output tensor stride.
  // Absent: unbounded.
  std::optional<Box> output_bounds;

  friend bool operator==(const GeometryParams&, const GeometryParams&) = default;
};

// A checked convolution geometry. Immutable and copyable. Lies on the host.
//
// t is the tensor stride of the finer side: the input of submanifold and strided layers, the output
// of inverse and transposed ones. s is the stride, P the padding. delta_k is kernel offset k. On
// each axis it is one of -(K-1)/2 .. (K-1)/2 if K is odd, or one of 0 .. K-1 if K is even, times
// the dilation, times t. In the order of k, x changes slowest and z fastest. In every kind of
// layer, input p, output q and offset k form a pair if and only if
//
//     p = q + InputOffset(k)
//
// InputOffset(k) is delta_k - P t for submanifold (P = 0) and strided layers, and P t - delta_k for
// inverse and transposed ones. A mapping needs nothing else.
class ConvGeometry {
 public:
  // kInvalidArgument for a kernel below 1 or with K > 32768, a stride or dilation below 1, a
  // submanifold layer with stride or padding, padding or bounds without `dilate`, and a transposed
  // or inverse stride that does not divide the input tensor stride. kOutOfRange for an offset
  // beyond the coordinate range. The message gives the parameter, its value and what is allowed.
  // O(K).
  static absl::StatusOr<ConvGeometry> Create(const GeometryParams& params);

  // The inverse of a strided geometry: its inputs are the outputs of `strided`, and its outputs are
  // the inputs. kInvalidArgument if `strided` is of another kind.
  static absl::StatusOr<ConvGeometry> InverseOf(const ConvGeometry& strided);

  const GeometryParams& params() const { return params_; }
  ConvKind kind() const { return params_.kind; }
  // K, the number of kernel offsets.
  int num_offsets() const { return static_cast<int>(input_offsets_.size()); }
  const Int3& input_tensor_stride() const { return params_.input_tensor_stride; }
  const Int3& output_tensor_stride() const { return output_tensor_stride_; }

  // delta_k in units of the finest voxel, 0 <= k < K. Papers call this the kernel offset.
  const Int3& KernelOffset(int k) const { return kernel_offsets_[k]; }
  // p - q of every pair of offset k, in units of the finest voxel.
  const Int3& InputOffset(int k) const { return input_offsets_[k]; }
  absl::Span<const Int3> input_offsets() const { return input_offsets_; }

  // Whether InputOffset(K-1-k) = -InputOffset(k) for every k. This holds for submanifold layers
  // whose kernel is odd on every axis. The pairs of offset K-1-k are then those of offset k with
  // inputs and outputs exchanged (TorchSparse 4.2.1).
  bool symmetric() const { return symmetric_; }
  // The offset k with InputOffset(k) = 0 in a submanifold layer: every row meets itself. -1 if
  // there is none.
  int center() const { return center_; }
  // Whether the outputs are the inputs, row by row.
  bool keeps_coordinates() const { return params_.kind == ConvKind::kSubmanifold; }

  // "submanifold k3", "strided/dilate k3 s2 p1". For messages and result files, so that it does not
  // change between versions.
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
