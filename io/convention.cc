// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/convention.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "voxconv/core/coordinate_key.h"

namespace voxconv {
namespace {

constexpr std::pair<absl::string_view, Convention> kNames[] = {
    {"voxconv", Convention::kVoxconv},
    {"spconv", Convention::kSpconv},
    {"torchsparse", Convention::kTorchsparse},
    {"minkowski", Convention::kMinkowski}};

bool AllOdd(const Int3& kernel) {
  return kernel.x % 2 == 1 && kernel.y % 2 == 1 && kernel.z % 2 == 1;
}

bool ZSlowest(Convention convention, const Int3& kernel) {
  switch (convention) {
    case Convention::kVoxconv:
      return false;
    case Convention::kSpconv:
    case Convention::kMinkowski:
      return true;
    case Convention::kTorchsparse:
      return AllOdd(kernel);
  }
  return false;
}

bool IsInverted(ConvKind kind) {
  return kind == ConvKind::kInverse || kind == ConvKind::kTransposed;
}

// Whether strided layers count kernel indices from zero and bound their outputs by the input's
// shape, and coordinates are in units of the tensor's own stride.
bool CountsFromZero(Convention convention) {
  return convention == Convention::kSpconv || convention == Convention::kTorchsparse;
}

// The engine's name in messages.
absl::string_view EngineOf(Convention convention) {
  return convention == Convention::kSpconv ? "SpConv" : "TorchSparse";
}

absl::Status CheckKernel(Convention convention, const LayerArguments& a) {
  const std::string kernel = absl::StrCat("kernel ", ToString(a.kernel), ": ");
  const bool submanifold = a.kind == ConvKind::kSubmanifold;
  bool any_odd = false;
  for (int axis = 0; axis < 3; ++axis) any_odd |= a.kernel[axis] % 2 == 1 && a.kernel[axis] > 1;
  if (!submanifold || AllOdd(a.kernel)) return absl::OkStatus();
  if (convention == Convention::kSpconv) {
    return absl::InvalidArgumentError(
        absl::StrCat(kernel, "SpConv has submanifold kernels of odd size only"));
  }
  if (convention == Convention::kTorchsparse && any_odd) {
    return absl::InvalidArgumentError(absl::StrCat(
        kernel,
        "TorchSparse does not centre the odd axes of such a submanifold kernel, which "
        "voxconv has no counterpart of; allowed are axes that are all odd, or all even or 1"));
  }
  return absl::OkStatus();
}

absl::Status CheckSupported(Convention convention, const LayerArguments& a) {
  if (!CountsFromZero(convention)) {
    if (!a.spatial_shape.has_value()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "spatial_shape: only the spconv and torchsparse conventions have one");
  }
  const absl::string_view engine = EngineOf(convention);
  if (a.kind == ConvKind::kTransposed) {
    return absl::UnimplementedError(absl::StrCat("kind transposed: ", engine,
                                                 "'s generative layers are not covered by its "
                                                 "convention"));
  }
  if (a.output_bounds.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("bounds: has no meaning with the convention of ",
                                                   engine, ", which bounds by spatial_shape"));
  }
  if (std::min({a.padding.x, a.padding.y, a.padding.z}) < 0) {
    return absl::InvalidArgumentError(absl::StrCat("padding ", ToString(a.padding), ": with ",
                                                   engine,
                                                   "'s convention allowed are whole "
                                                   "numbers from 0"));
  }
  if (convention == Convention::kTorchsparse && a.dilation != Int3{1, 1, 1}) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dilation ", ToString(a.dilation), ": TorchSparse's kernel maps have none; allowed is 1"));
  }
  return CheckKernel(convention, a);
}

// The inclusive bounds of u.
absl::StatusOr<Box> OutputBounds(const Int3& shape, const Int3& kernel, const Int3& stride,
                                 const Int3& dilation, const Int3& padding) {
  Box box;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t room = int64_t{shape[axis]} + 2 * int64_t{padding[axis]} -
                         int64_t{dilation[axis]} * (kernel[axis] - 1) - 1;
    if (shape[axis] < 1 || room < 0) {
      return absl::InvalidArgumentError(absl::StrCat("spatial_shape: ", shape[axis], " along ",
                                                     std::string(1, kAxisNames[axis]),
                                                     " is smaller than the kernel"));
    }
    box.hi[axis] = static_cast<int32_t>(room / std::max(1, stride[axis]));
  }
  return box;
}

}  // namespace

absl::StatusOr<Convention> ParseConvention(absl::string_view text) {
  for (const auto& [name, convention] : kNames) {
    if (text == name) return convention;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("convention '", text,
                   "' is unknown; allowed are voxconv, spconv, torchsparse and minkowski"));
}

Int3 AxesToXyz(Convention convention, const Int3& v) {
  return convention == Convention::kSpconv ? Int3{v.z, v.y, v.x} : v;
}

int32_t PaddingFromSpconv(int32_t padding, int32_t kernel, int32_t dilation) {
  return kernel % 2 == 1 ? padding - dilation * ((kernel - 1) / 2) : padding;
}

absl::StatusOr<ConvGeometry> MakeGeometry(Convention convention, const LayerArguments& a) {
  if (absl::Status status = CheckSupported(convention, a); !status.ok()) return status;
  GeometryParams params{.kind = a.kind,
                        .rule = a.rule,
                        .kernel = AxesToXyz(convention, a.kernel),
                        .stride = AxesToXyz(convention, a.stride),
                        .dilation = AxesToXyz(convention, a.dilation),
                        .padding = AxesToXyz(convention, a.padding),
                        .output_bounds = a.output_bounds};
  if (a.tensor_stride.has_value()) {
    params.input_tensor_stride = AxesToXyz(convention, *a.tensor_stride);
  } else if (IsInverted(a.kind)) {
    params.input_tensor_stride = params.stride;
  }
  if (!CountsFromZero(convention)) return ConvGeometry::Create(params);
  if (a.spatial_shape.has_value() && a.kind != ConvKind::kStrided) {
    return absl::InvalidArgumentError(absl::StrCat("spatial_shape: has no meaning with kind ",
                                                   ToString(a.kind),
                                                   "; it bounds the outputs of strided layers"));
  }
  // Neither engine knows another rule than dilate. Callers give the padding of submanifold layers,
  // which is then ignored.
  if (a.kind == ConvKind::kSubmanifold) {
    params.padding = {0, 0, 0};
    return ConvGeometry::Create(params);
  }
  params.rule = OutputRule::kDilate;
  if (a.kind == ConvKind::kStrided) {
    if (!a.spatial_shape.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("spatial_shape is missing: ", EngineOf(convention),
                       " bounds a strided layer's outputs by it"));
    }
    absl::StatusOr<Box> bounds =
        OutputBounds(AxesToXyz(convention, *a.spatial_shape), params.kernel, params.stride,
                     params.dilation, params.padding);
    if (!bounds.ok()) return bounds.status();
    params.output_bounds = *bounds;
  }
  for (int axis = 0; axis < 3; ++axis) {
    params.padding[axis] =
        PaddingFromSpconv(params.padding[axis], params.kernel[axis], params.dilation[axis]);
  }
  return ConvGeometry::Create(params);
}

std::vector<int> OffsetOrder(Convention convention, const Int3& kernel) {
  const int volume = kernel.x * kernel.y * kernel.z;
  std::vector<int> order(volume);
  for (int j = 0; j < volume; ++j) {
    order[j] = j;
    if (!ZSlowest(convention, kernel)) continue;
    const int x = j % kernel.x, y = j / kernel.x % kernel.y, z = j / kernel.x / kernel.y;
    order[j] = (x * kernel.y + y) * kernel.z + z;
  }
  return order;
}

absl::StatusOr<Weights> WeightsToVoxconv(Convention convention, const Int3& kernel,
                                         const NpyArray& array, const Int3& stride) {
  const int64_t volume = int64_t{kernel.x} * kernel.y * kernel.z;
  const std::vector<int64_t>& shape = array.shape;
  Weights weights;
  bool fits = false;
  std::string expected;
  if (convention == Convention::kSpconv) {
    expected = absl::StrCat("[C_out, ", kernel.z, ", ", kernel.y, ", ", kernel.x, ", C_in]");
    fits =
        shape.size() == 5 && shape[1] == kernel.z && shape[2] == kernel.y && shape[3] == kernel.x;
    if (fits) weights = {{}, shape[4], shape[0]};
  } else {
    expected = absl::StrCat("[", volume, ", C_in, C_out]");
    fits = (shape.size() == 3 && shape[0] == volume) || (shape.size() == 2 && volume == 1);
    if (fits) weights = {{}, shape[shape.size() - 2], shape.back()};
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights: shape ", NpyShapeString(shape), "; ", expected, " is needed"));
  }
  // An array without elements may have any extents, and loops run over them.
  constexpr int64_t kMostChannels = 65536;
  if (std::min(weights.c_in, weights.c_out) < 1 ||
      std::max(weights.c_in, weights.c_out) > kMostChannels) {
    return absl::InvalidArgumentError(absl::StrCat("weights: shape ", NpyShapeString(shape),
                                                   "; allowed are 1 .. ", kMostChannels,
                                                   " channels"));
  }
  absl::StatusOr<std::vector<float>> given = ToFloat32(array, "weights");
  if (!given.ok()) return given.status();
  const int64_t c_in = weights.c_in, c_out = weights.c_out;
  const bool is_view = volume == 1 && stride == Int3{1, 1, 1};  // see the header
  const bool out_first = convention == Convention::kSpconv && !is_view;
  const std::vector<int> order = OffsetOrder(convention, kernel);
  weights.values.resize(given->size());
  for (int64_t j = 0; j < volume; ++j) {
    for (int64_t i = 0; i < c_in; ++i) {
      for (int64_t o = 0; o < c_out; ++o) {
        const int64_t from = out_first ? (o * volume + j) * c_in + i : (j * c_in + i) * c_out + o;
        weights.values[(order[j] * c_in + i) * c_out + o] = (*given)[from];
      }
    }
  }
  return weights;
}

absl::Status CoordinatesToVoxconv(Convention convention, const Int3& unit,
                                  std::vector<Coordinate>& rows) {
  if (!CountsFromZero(convention)) return absl::OkStatus();
  for (size_t i = 0; i < rows.size(); ++i) {
    const Int3 p = AxesToXyz(convention, {rows[i].x, rows[i].y, rows[i].z});
    Int3 scaled;
    for (int axis = 0; axis < 3; ++axis) {
      const int64_t value = int64_t{p[axis]} * unit[axis];
      if (!InRange(value)) {
        return absl::OutOfRangeError(
            absl::StrCat("coords: row ", i, " has ", std::string(1, kAxisNames[axis]), " = ", value,
                         "; allowed are ", kMinCoordinate, "..", kMaxCoordinate));
      }
      scaled[axis] = static_cast<int32_t>(value);
    }
    rows[i] = {rows[i].b, scaled.x, scaled.y, scaled.z};
  }
  return absl::OkStatus();
}

void CoordinatesFromVoxconv(Convention convention, const Int3& unit,
                            std::vector<Coordinate>& rows) {
  if (!CountsFromZero(convention)) return;
  for (Coordinate& c : rows) {
    const Int3 p = AxesToXyz(convention, {c.x / unit.x, c.y / unit.y, c.z / unit.z});
    c = {c.b, p.x, p.y, p.z};
  }
}

absl::StatusOr<Pooling> PoolingOf(Convention convention, absl::string_view mode) {
  const bool spconv = convention == Convention::kSpconv;
  if (mode == "max") return Pooling{PoolMode::kMax, spconv};
  if (spconv && mode == "average") return Pooling{PoolMode::kAveragePresent};
  for (const PoolMode own : {PoolMode::kSum, PoolMode::kAverage, PoolMode::kAveragePresent}) {
    if (!spconv && mode == ToString(own)) return Pooling{own};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "mode '", absl::CEscape(mode), "': allowed are max",
      spconv ? " and average with the convention spconv" : ", sum, average and average_present"));
}

}  // namespace voxconv
