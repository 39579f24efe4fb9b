// How other engines write coordinates, weights and kernel offsets. Always named by the user;
// nothing is guessed from shapes.
//
// | convention  | coordinate columns | weights                      | kernel offset order | |
// voxconv     | b, x, y, z         | [K, C_in, C_out]             | x slowest, z fastest         |
// | spconv      | b, z, y, x         | [C_out, kz, ky, kx, C_in]    | z slowest, x fastest | |
// torchsparse | b, x, y, z         | [K, C_in, C_out]             | all axes odd: z slowest, x   |
// |             |                    |                              | fastest; else as voxconv | |
// minkowski   | b, x, y, z         | [K, C_in, C_out]             | z slowest, x fastest         |
//
// SpConv (2.x) counts kernel indices from zero, so that an input meets output u under index i where
// p = u s - padding + i dilation; its coordinates are in units of the tensor's own stride and it
// bounds its outputs by the spatial shape. Its per-axis arguments follow its columns: z, y, x. It
// has no even submanifold kernels. TorchSparse (2.1) centres even kernels above 2 otherwise, which
// has no counterpart here. A kernel of volume 1 may come as [C_in, C_out].
#ifndef VOXCONV_IO_CONVENTION_H_
#define VOXCONV_IO_CONVENTION_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/geometry.h"
#include "io/npy.h"

namespace voxconv {

enum class Convention { kVoxconv, kSpconv, kTorchsparse, kMinkowski };

absl::StatusOr<Convention> ParseConvention(absl::string_view text);

// Per-axis values as the convention's user writes them <-> x, y, z. Its own inverse.
Int3 AxesToXyz(Convention convention, const Int3& v);

// A layer's arguments in the convention's words. `spatial_shape` is SpConv's, of the input.
struct LayerArguments {
  ConvKind kind = ConvKind::kSubmanifold;
  OutputRule rule = OutputRule::kQuantize;
  Int3 kernel{3, 3, 3}, stride{1, 1, 1}, dilation{1, 1, 1}, padding{0, 0, 0};
  std::optional<Int3>
      tensor_stride;  // of the input; absent: 1, or the stride where that must divide
  std::optional<Box> output_bounds;
  std::optional<Int3> spatial_shape;
};

// Refuses what the convention cannot say or what has no counterpart here.
absl::StatusOr<ConvGeometry> MakeGeometry(Convention convention, const LayerArguments& arguments);

// SpConv's padding in ours: offsets are centred here for odd kernels, counted from zero there.
int32_t PaddingFromSpconv(int32_t padding, int32_t kernel, int32_t dilation);

// order[j] is our index of the convention's kernel offset j.
std::vector<int> OffsetOrder(Convention convention, const Int3& kernel);

struct Weights {
  std::vector<float> values;  // [K, C_in, C_out] in our order
  int64_t c_in = 0, c_out = 0;
};
// `kernel` in x, y, z. Refuses other shapes than the convention's, naming what was expected.
absl::StatusOr<Weights> WeightsToVoxconv(Convention convention, const Int3& kernel,
                                         const NpyArray& array);

// Coordinate columns of the convention <-> (b, x, y, z) in finest-voxel units; `unit` is the tensor
// stride that SpConv's coordinates are divided by. The product may not leave int32: refused.
absl::Status CoordinatesToVoxconv(Convention convention, const Int3& unit,
                                  std::vector<Coordinate>& rows);
void CoordinatesFromVoxconv(Convention convention, const Int3& unit, std::vector<Coordinate>& rows);

}  // namespace voxconv

#endif  // VOXCONV_IO_CONVENTION_H_
