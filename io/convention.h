// SPDX-License-Identifier: Apache-2.0
// How other engines write coordinates, weights and kernel offsets. Always named by the user;
// nothing is guessed from shapes.
//
// clang-format off
// | convention  | coordinate columns | weights                   | kernel offset order              |
// | voxconv     | b, x, y, z         | [K, C_in, C_out]          | x slowest, z fastest             |
// | spconv      | b, z, y, x         | [C_out, kz, ky, kx, C_in] | z slowest, x fastest             |
// | torchsparse | b, x, y, z         | [K, C_in, C_out]          | all axes odd: z slowest, x       |
// |             |                    |                           | fastest; else as voxconv         |
// | minkowski   | b, x, y, z         | [K, C_in, C_out]          | z slowest, x fastest             |
// clang-format on
//
// SpConv (2.x) and TorchSparse (2.1) count kernel indices of strided layers from zero, so that an
// input meets output u under index i where p = u s - padding + i dilation. Their coordinates are in
// units of the tensor's own stride. Outputs lie in 0 .. (shape - 1 + 2 padding - dilation (K - 1))
// / s on each axis, where the shape is SpConv's spatial shape, or TorchSparse's spatial range: one
// past the largest input coordinate if it is not given. SpConv's per-axis arguments follow its
// columns: z, y, x. It has no even submanifold kernels. A SpConv layer with kernel and stride 1
// reads the memory of its weights as [C_in, C_out], whatever their shape says: a view, not a
// transpose. A submanifold kernel of TorchSparse whose volume is even begins at the voxel on all
// axes; voxconv centres odd axes, so that kernels with both are refused. TorchSparse has no
// dilation. A kernel of volume 1 may come as [C_in, C_out].
#ifndef VOXCONV_IO_CONVENTION_H_
#define VOXCONV_IO_CONVENTION_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/geometry.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/io/npy.h"

namespace voxconv {

enum class Convention { kVoxconv, kSpconv, kTorchsparse, kMinkowski };

absl::StatusOr<Convention> ParseConvention(absl::string_view text);

// Reorders values per axis between the convention's order and x, y, z. Its own inverse.
Int3 AxesToXyz(Convention convention, const Int3& v);

// A layer's arguments as a user of the convention writes them. `spatial_shape` is the shape of the
// input, an argument of SpConv and TorchSparse.
struct LayerArguments {
  ConvKind kind = ConvKind::kSubmanifold;
  OutputRule rule = OutputRule::kQuantize;
  Int3 kernel{3, 3, 3}, stride{1, 1, 1}, dilation{1, 1, 1}, padding{0, 0, 0};
  // Of the input. Absent: 1, or the stride if the stride must divide it.
  std::optional<Int3> tensor_stride;
  std::optional<Box> output_bounds;
  std::optional<Int3> spatial_shape;
};

// The geometry of a layer. kInvalidArgument for an argument that the convention does not have, and
// for one that voxconv has no counterpart of. Errors of ConvGeometry::Create.
absl::StatusOr<ConvGeometry> MakeGeometry(Convention convention, const LayerArguments& arguments);

// The padding of one axis in voxconv's convention. SpConv and TorchSparse count kernel offsets from
// zero; voxconv centres those of odd kernels.
int32_t PaddingFromSpconv(int32_t padding, int32_t kernel, int32_t dilation);

// order[j] is voxconv's index of the convention's kernel offset j. O(K).
std::vector<int> OffsetOrder(Convention convention, const Int3& kernel);

struct Weights {
  std::vector<float> values;  // [K, C_in, C_out], offsets in voxconv's order
  int64_t c_in = 0, c_out = 0;
};
// Reorders weights of the convention. `kernel` and `stride` are in the order x, y, z.
// kInvalidArgument for an array of another shape than the convention's; the message gives the shape
// that is expected.
absl::StatusOr<Weights> WeightsToVoxconv(Convention convention, const Int3& kernel,
                                         const NpyArray& array, const Int3& stride);

// These change the columns of `rows`, on the host, between the convention's order and (b, x, y, z)
// in units of the finest voxel. `unit` is the tensor stride by which coordinates of SpConv and
// TorchSparse are divided. CoordinatesToVoxconv refuses a product that does not fit int32. O(N).
absl::Status CoordinatesToVoxconv(Convention convention, const Int3& unit,
                                  std::vector<Coordinate>& rows);
void CoordinatesFromVoxconv(Convention convention, const Int3& unit, std::vector<Coordinate>& rows);

// How a convention pools a window.
struct Pooling {
  PoolMode mode = PoolMode::kMax;
  bool from_zero = false;  // the maximum begins at 0: a ReLU behind it gives the same
};
// SpConv has "max", which begins at 0, and "average", which divides by the voxels in the window.
// Others have the names of PoolMode. kInvalidArgument for another mode. Only values are meant:
// windows come from the geometry.
absl::StatusOr<Pooling> PoolingOf(Convention convention, absl::string_view mode);

}  // namespace voxconv

#endif  // VOXCONV_IO_CONVENTION_H_
