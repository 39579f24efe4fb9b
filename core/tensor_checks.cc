// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/tensor_checks.h"

#include "absl/strings/str_cat.h"

namespace voxconv {
namespace {

absl::Status CheckPairs(absl::string_view op, const KernelMap& map) {
  if (map.form() == MapForm::kPairs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(op, ": a kernel map of the form ",
                                                 ToString(map.form()), "; it takes ",
                                                 ToString(MapForm::kPairs)));
}

}  // namespace

absl::Status TensorChecker::Check(absl::string_view name, const ConstTensorView& tensor,
                                  int64_t rows, int64_t channels) const {
  if (backend_.device().space == MemorySpace::kHost && tensor.dtype != DType::kF32) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": dtype ", ToString(tensor.dtype), "; dense operators take f32"));
  }
  return CheckTensor(name, tensor, rows, channels, dtype_, backend_.device());
}

absl::Status CheckPrecision(absl::string_view op, Precision precision, DType dtype) {
  if (StorageOf(precision) == dtype) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": precision ", ToString(precision), " for tensors of ", ToString(dtype)));
}

absl::Status CheckScaleShift(const ConstTensorView& x, const TensorView& y,
                             const Backend& backend) {
  const TensorChecker tensors(x.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(tensors.Check("scale_shift: x", x, x.rows, x.channels));
  return tensors.Check("scale_shift: y", y, x.rows, x.channels);
}

absl::Status CheckConvert(const ConstTensorView& x, const TensorView& y, const Backend& backend) {
  VOXCONV_RETURN_IF_ERROR(
      TensorChecker(x.dtype, backend).Check("convert: x", x, x.rows, x.channels));
  return TensorChecker(y.dtype, backend).Check("convert: y", y, x.rows, x.channels);
}

absl::Status CheckAdd(const ConstTensorView& a, const ConstTensorView& b, const TensorView& y,
                      const Backend& backend) {
  const TensorChecker tensors(a.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(tensors.Check("add: a", a, a.rows, a.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("add: b", b, a.rows, a.channels));
  return tensors.Check("add: y", y, a.rows, a.channels);
}

absl::Status CheckConcat(const ConstTensorView& a, const ConstTensorView& b, const TensorView& y,
                         const Backend& backend) {
  const TensorChecker tensors(a.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(tensors.Check("concat: a", a, a.rows, a.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("concat: b", b, a.rows, b.channels));
  return tensors.Check("concat: y", y, a.rows, a.channels + b.channels);
}

absl::Status CheckLinear(const ConstTensorView& x, const ConstTensorView& weights,
                         Precision precision, const TensorView& y, const Backend& backend) {
  const TensorChecker tensors(x.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(CheckPrecision("linear", precision, x.dtype));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("linear: x", x, x.rows, x.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("linear: weights", weights, x.channels, weights.channels));
  return tensors.Check("linear: y", y, x.rows, weights.channels);
}

absl::Status CheckTransposeWeights(const ConstTensorView& weights, int num_offsets,
                                   const TensorView& transposed, const Backend& backend) {
  const TensorChecker tensors(weights.dtype, backend);
  const int64_t c_in = num_offsets == 0 ? 0 : weights.rows / num_offsets;
  VOXCONV_RETURN_IF_ERROR(
      tensors.Check("transpose_weights: weights", weights, num_offsets * c_in, weights.channels));
  return tensors.Check("transpose_weights: transposed", transposed, num_offsets * weights.channels,
                       c_in);
}

absl::Status CheckWeightGradient(const KernelMap& map, const ConstTensorView& x,
                                 const ConstTensorView& dy, Precision precision,
                                 const TensorView& gradient, const Backend& backend) {
  const TensorChecker tensors(x.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(CheckPairs("weight_gradient", map));
  VOXCONV_RETURN_IF_ERROR(CheckPrecision("weight_gradient", precision, x.dtype));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("weight_gradient: x", x, map.num_inputs(), x.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("weight_gradient: dy", dy, map.num_outputs(), dy.channels));
  const TensorChecker results(gradient.dtype == DType::kF32 ? DType::kF32 : x.dtype, backend);
  return results.Check("weight_gradient: gradient", gradient, map.num_offsets() * x.channels,
                       dy.channels);
}

absl::Status CheckPool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                       const TensorView& y, const int32_t* switches, const Backend& backend) {
  VOXCONV_RETURN_IF_ERROR(CheckPairs("pool", map));
  return CheckPoolTensors(map, mode, x, y, switches, backend);
}

absl::Status CheckPoolTensors(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                              const TensorView& y, const int32_t* switches,
                              const Backend& backend) {
  const TensorChecker tensors(x.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(tensors.Check("pool: x", x, map.num_inputs(), x.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("pool: y", y, map.num_outputs(), x.channels));
  if (switches != nullptr && mode != PoolMode::kMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("pool: mode ", ToString(mode), " has no switches; only max has"));
  }
  return absl::OkStatus();
}

absl::Status CheckUnpool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                         const int32_t* switches, const TensorView& y, const Backend& backend) {
  VOXCONV_RETURN_IF_ERROR(CheckPairs("unpool", map));
  return CheckUnpoolTensors(map, mode, x, switches, y, backend);
}

absl::Status CheckUnpoolTensors(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                                const int32_t* switches, const TensorView& y,
                                const Backend& backend) {
  const TensorChecker tensors(x.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(tensors.Check("unpool: x", x, map.num_outputs(), x.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("unpool: y", y, map.num_inputs(), x.channels));
  if (mode == PoolMode::kMax && switches == nullptr && x.rows * x.channels > 0) {
    return absl::InvalidArgumentError("unpool: mode max needs the switches of its pooling");
  }
  return absl::OkStatus();
}

absl::Status CheckGlobalPool(const CoordinateSet& voxels, PoolMode mode, const ConstTensorView& x,
                             const TensorView& y, const Backend& backend) {
  const TensorChecker tensors(x.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(tensors.Check("global_pool: x", x, voxels.size(), x.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("global_pool: y", y, y.rows, x.channels));
  if (mode == PoolMode::kAverage) {
    return absl::InvalidArgumentError(absl::StrCat("global_pool: mode ", ToString(mode),
                                                   "; allowed are sum, max and ",
                                                   ToString(PoolMode::kAveragePresent)));
  }
  if (voxels.size() > 0 && voxels.num_batches() > y.rows) {
    return absl::InvalidArgumentError(absl::StrCat(
        "global_pool: batch sample ", voxels.num_batches() - 1, "; y has ", y.rows, " rows"));
  }
  return absl::OkStatus();
}

}  // namespace voxconv
