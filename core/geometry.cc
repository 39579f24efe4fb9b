// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/geometry.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "voxconv/core/coordinate_key.h"

namespace voxconv {
namespace {

constexpr int64_t kMaxOffsets = 32768;

absl::Status AtLeastOne(absl::string_view name, const Int3& v) {
  for (int axis = 0; axis < 3; ++axis) {
    if (v[axis] < 1 || v[axis] > kMaxCoordinate) {
      return absl::InvalidArgumentError(absl::StrCat(name, " ", ToString(v), ": ",
                                                     std::string(1, kAxisNames[axis]),
                                                     " must be in 1..", kMaxCoordinate));
    }
  }
  return absl::OkStatus();
}

bool IsUniform(const Int3& v, int32_t value) { return v == Int3{value, value, value}; }

bool IsInverted(ConvKind kind) {
  return kind == ConvKind::kInverse || kind == ConvKind::kTransposed;
}

absl::Status CheckKind(const GeometryParams& p) {
  const bool strided = p.kind == ConvKind::kStrided || p.kind == ConvKind::kInverse;
  const bool dilate = strided && p.rule == OutputRule::kDilate;
  if (p.kind == ConvKind::kSubmanifold && !IsUniform(p.stride, 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("stride ", ToString(p.stride), ": a submanifold convolution has stride 1"));
  }
  if (!dilate && !IsUniform(p.padding, 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("padding ", ToString(p.padding),
                     ": only strided convolutions with output rule dilate have padding"));
  }
  if (!dilate && p.output_bounds.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "output bounds: kind ", ToString(p.kind), " with output rule ", ToString(p.rule),
        " has none; only strided convolutions with output rule dilate have them"));
  }
  if (IsInverted(p.kind)) {
    for (int axis = 0; axis < 3; ++axis) {
      if (p.input_tensor_stride[axis] % p.stride[axis] != 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "stride ", ToString(p.stride), ": with kind ", ToString(p.kind),
            " it must divide the input's tensor stride ", ToString(p.input_tensor_stride)));
      }
    }
  }
  return absl::OkStatus();
}

// delta_k / (dilation * t) along one axis.
int32_t AxisOffset(int32_t kernel, int32_t index) {
  return kernel % 2 == 1 ? index - (kernel - 1) / 2 : index;
}

}  // namespace

absl::string_view ToString(ConvKind kind) {
  switch (kind) {
    case ConvKind::kSubmanifold:
      return "submanifold";
    case ConvKind::kStrided:
      return "strided";
    case ConvKind::kInverse:
      return "inverse";
    case ConvKind::kTransposed:
      return "transposed";
  }
  return "?";
}

absl::string_view ToString(OutputRule rule) {
  return rule == OutputRule::kQuantize ? "quantize" : "dilate";
}

absl::StatusOr<ConvKind> ParseConvKind(absl::string_view text) {
  for (ConvKind kind :
       {ConvKind::kSubmanifold, ConvKind::kStrided, ConvKind::kInverse, ConvKind::kTransposed}) {
    if (text == ToString(kind)) return kind;
  }
  if (text == "generative") return ConvKind::kTransposed;
  return absl::InvalidArgumentError(absl::StrCat(
      "kind '", text,
      "' is unknown; allowed are submanifold, strided, inverse, transposed and generative"));
}

absl::StatusOr<OutputRule> ParseOutputRule(absl::string_view text) {
  for (OutputRule rule : {OutputRule::kQuantize, OutputRule::kDilate}) {
    if (text == ToString(rule)) return rule;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("output rule '", text, "' is unknown; allowed are quantize and dilate"));
}

absl::StatusOr<ConvGeometry> ConvGeometry::Create(const GeometryParams& params) {
  for (auto [name, value] : {std::pair<const char*, const Int3*>{"kernel", &params.kernel},
                             {"stride", &params.stride},
                             {"dilation", &params.dilation},
                             {"input tensor stride", &params.input_tensor_stride}}) {
    if (absl::Status status = AtLeastOne(name, *value); !status.ok()) return status;
  }
  if (absl::Status status = CheckKind(params); !status.ok()) return status;
  const Int3& kernel = params.kernel;
  // Two steps, so that the product itself cannot overflow: each factor is below 2^18.
  if (int64_t{kernel.x} * kernel.y > kMaxOffsets ||
      int64_t{kernel.x} * kernel.y * kernel.z > kMaxOffsets) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kernel ", voxconv::ToString(kernel), ": at most ", kMaxOffsets, " offsets are allowed"));
  }

  ConvGeometry geometry;
  geometry.params_ = params;
  Int3 fine;  // t
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t in = params.input_tensor_stride[axis];
    const int64_t out =
        IsInverted(params.kind) ? in / params.stride[axis] : in * params.stride[axis];
    fine[axis] = static_cast<int32_t>(std::min(in, out));
    const int64_t reach = fine[axis] * (int64_t{kernel[axis]} * params.dilation[axis] +
                                        std::abs(int64_t{params.padding[axis]}));
    if (out > kMaxCoordinate || reach > kMaxCoordinate) {
      return absl::OutOfRangeError(absl::StrCat(
          "geometry: along ", std::string(1, kAxisNames[axis]), " the output tensor stride ", out,
          " or the kernel's reach ", reach, " is past the coordinate range ", kMaxCoordinate));
    }
    geometry.output_tensor_stride_[axis] = static_cast<int32_t>(out);
  }
  const int32_t sign = IsInverted(params.kind) ? -1 : 1;
  for (int32_t x = 0; x < kernel.x; ++x) {
    for (int32_t y = 0; y < kernel.y; ++y) {
      for (int32_t z = 0; z < kernel.z; ++z) {
        const Int3 index{x, y, z};
        Int3 delta, input;
        for (int axis = 0; axis < 3; ++axis) {
          delta[axis] = AxisOffset(kernel[axis], index[axis]) * params.dilation[axis] * fine[axis];
          input[axis] = sign * (delta[axis] - params.padding[axis] * fine[axis]);
        }
        geometry.kernel_offsets_.push_back(delta);
        geometry.input_offsets_.push_back(input);
      }
    }
  }
  if (params.kind == ConvKind::kSubmanifold) {
    geometry.symmetric_ = kernel.x % 2 == 1 && kernel.y % 2 == 1 && kernel.z % 2 == 1;
    for (int k = 0; k < geometry.num_offsets(); ++k) {
      if (geometry.input_offsets_[k] == Int3{}) geometry.center_ = k;
    }
  }
  return geometry;
}

absl::StatusOr<ConvGeometry> ConvGeometry::InverseOf(const ConvGeometry& strided) {
  if (strided.kind() != ConvKind::kStrided) {
    return absl::InvalidArgumentError(absl::StrCat(
        "inverse of kind ", voxconv::ToString(strided.kind()), ": only strided ones have one"));
  }
  GeometryParams params = strided.params();
  params.kind = ConvKind::kInverse;
  params.input_tensor_stride = strided.output_tensor_stride();
  return Create(params);
}

std::string ConvGeometry::ToString() const {
  std::string text(voxconv::ToString(params_.kind));
  if (params_.kind == ConvKind::kStrided || params_.kind == ConvKind::kInverse) {
    absl::StrAppend(&text, "/", voxconv::ToString(params_.rule));
  }
  absl::StrAppend(&text, " k", voxconv::ToString(params_.kernel));
  if (!IsUniform(params_.stride, 1))
    absl::StrAppend(&text, " s", voxconv::ToString(params_.stride));
  if (!IsUniform(params_.dilation, 1)) {
    absl::StrAppend(&text, " d", voxconv::ToString(params_.dilation));
  }
  if (!IsUniform(params_.padding, 0)) {
    absl::StrAppend(&text, " p", voxconv::ToString(params_.padding));
  }
  if (!IsUniform(params_.input_tensor_stride, 1)) {
    absl::StrAppend(&text, " t", voxconv::ToString(params_.input_tensor_stride));
  }
  return text;
}

}  // namespace voxconv
