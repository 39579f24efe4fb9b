#include "core/tensor_checks.h"

#include "absl/strings/str_cat.h"

namespace voxconv {
namespace {

DType StorageOf(DType dtype) { return dtype == DType::kTf32 ? DType::kF32 : dtype; }

absl::Status CheckDType(absl::string_view name, DType dtype, DType expected, BackendKind backend) {
  if (backend == BackendKind::kCpu && StorageOf(dtype) != DType::kF32) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": dtype ", ToString(dtype), "; dense operators take f32"));
  }
  if (StorageOf(dtype) != StorageOf(expected)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": dtype ", ToString(dtype),
                                                   "; the first tensor's is ", ToString(expected),
                                                   ", and all must be of one"));
  }
  return absl::OkStatus();
}

// The tensors of one call, the first of which sets the dtype.
class TensorChecker {
 public:
  TensorChecker(DType dtype, BackendKind backend) : dtype_(dtype), backend_(backend) {}

  absl::Status Check(absl::string_view name, const TensorView& tensor, int64_t rows,
                     int64_t channels) const {
    if (tensor.rows != rows || tensor.channels != channels) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": shape [", tensor.rows, ", ",
                                                     tensor.channels, "]; it must be [", rows, ", ",
                                                     channels, "]"));
    }
    VOXCONV_RETURN_IF_ERROR(CheckDType(name, tensor.dtype, dtype_, backend_));
    const bool cpu = backend_ == BackendKind::kCpu;
    if (tensor.space != (cpu ? MemorySpace::kHost : MemorySpace::kDevice)) {
      return absl::InvalidArgumentError(
          cpu ? absl::StrCat(name, ": device memory; the CPU backend takes host memory")
              : absl::StrCat(name, ": host memory; the CUDA backend takes device memory"));
    }
    return absl::OkStatus();
  }

 private:
  DType dtype_;
  BackendKind backend_;
};

absl::Status CheckMap(absl::string_view op, const KernelMap& map) {
  if (map.layout().layout == MapLayout::kPairs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(op, ": kernel map of layout ",
                                                 ToString(map.layout().layout), "; pooling takes ",
                                                 ToString(MapLayout::kPairs)));
}

}  // namespace

absl::Status CheckScaleShift(const TensorView& x, const TensorView& y, BackendKind backend) {
  const TensorChecker tensors(x.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(tensors.Check("scale_shift: x", x, x.rows, x.channels));
  return tensors.Check("scale_shift: y", y, x.rows, x.channels);
}

absl::Status CheckConvert(const TensorView& x, const TensorView& y, BackendKind backend) {
  VOXCONV_RETURN_IF_ERROR(
      TensorChecker(x.dtype, backend).Check("convert: x", x, x.rows, x.channels));
  return TensorChecker(y.dtype, backend).Check("convert: y", y, x.rows, x.channels);
}

absl::Status CheckAdd(const TensorView& a, const TensorView& b, const TensorView& y,
                      BackendKind backend) {
  const TensorChecker tensors(a.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(tensors.Check("add: a", a, a.rows, a.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("add: b", b, a.rows, a.channels));
  return tensors.Check("add: y", y, a.rows, a.channels);
}

absl::Status CheckConcat(const TensorView& a, const TensorView& b, const TensorView& y,
                         BackendKind backend) {
  const TensorChecker tensors(a.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(tensors.Check("concat: a", a, a.rows, a.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("concat: b", b, a.rows, b.channels));
  return tensors.Check("concat: y", y, a.rows, a.channels + b.channels);
}

absl::Status CheckLinear(const TensorView& x, const TensorView& weights, const TensorView& y,
                         BackendKind backend) {
  const TensorChecker tensors(x.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(tensors.Check("linear: x", x, x.rows, x.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("linear: weights", weights, x.channels, weights.channels));
  return tensors.Check("linear: y", y, x.rows, weights.channels);
}

absl::Status CheckPool(const KernelMap& map, PoolMode mode, const TensorView& x,
                       const TensorView& y, const int32_t* switches, BackendKind backend) {
  const TensorChecker tensors(x.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(CheckMap("pool", map));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("pool: x", x, map.num_inputs(), x.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("pool: y", y, map.num_outputs(), x.channels));
  if (switches != nullptr && mode != PoolMode::kMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("pool: mode ", ToString(mode), " has no switches; only max has"));
  }
  return absl::OkStatus();
}

absl::Status CheckUnpool(const KernelMap& map, PoolMode mode, const TensorView& x,
                         const int32_t* switches, const TensorView& y, BackendKind backend) {
  const TensorChecker tensors(x.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(CheckMap("unpool", map));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("unpool: x", x, map.num_outputs(), x.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("unpool: y", y, map.num_inputs(), x.channels));
  if (mode == PoolMode::kMax && switches == nullptr && x.rows * x.channels > 0) {
    return absl::InvalidArgumentError("unpool: mode max needs the switches of its pooling");
  }
  return absl::OkStatus();
}

absl::Status CheckGlobalPool(int64_t rows, PoolMode mode, const TensorView& x, const TensorView& y,
                             BackendKind backend) {
  const TensorChecker tensors(x.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(tensors.Check("global_pool: x", x, rows, x.channels));
  VOXCONV_RETURN_IF_ERROR(tensors.Check("global_pool: y", y, y.rows, x.channels));
  if (mode == PoolMode::kAverage) {
    return absl::InvalidArgumentError(absl::StrCat("global_pool: mode ", ToString(mode),
                                                   "; allowed are sum, max and ",
                                                   ToString(PoolMode::kAveragePresent)));
  }
  return absl::OkStatus();
}

absl::Status CheckSample(int64_t sample, int64_t samples) {
  if (sample >= 0 && sample < samples) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("global_pool: batch sample ", sample, "; y has ", samples, " rows"));
}

}  // namespace voxconv
