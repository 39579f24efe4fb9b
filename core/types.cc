// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/types.h"

#include "absl/strings/str_cat.h"

namespace voxconv {

std::string ToString(const Int3& v) {
  if (v.x == v.y && v.y == v.z) return absl::StrCat(v.x);
  return absl::StrCat(v.x, "x", v.y, "x", v.z);
}

absl::string_view ToString(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
  }
  return "?";
}

absl::string_view ToString(Precision precision) {
  return precision == Precision::kTf32 ? "tf32" : ToString(StorageOf(precision));
}

std::string ToString(const Device& device) {
  if (device.space == MemorySpace::kHost) return "host memory";
  return absl::StrCat("device ", device.index);
}

absl::string_view ToString(Stage stage) {
  switch (stage) {
    case Stage::kOutputCoords:
      return "output_coords";
    case Stage::kIndexBuild:
      return "index_build";
    case Stage::kMapQuery:
      return "map_query";
    case Stage::kConvert:
      return "convert";
    case Stage::kGather:
      return "gather";
    case Stage::kGemm:
      return "gemm";
    case Stage::kScatter:
      return "scatter";
    case Stage::kFused:
      return "fused";
    case Stage::kEpilogue:
      return "epilogue";
    case Stage::kDense:
      return "dense";
  }
  return "?";
}

absl::StatusOr<Precision> ParsePrecision(absl::string_view text) {
  for (Precision precision :
       {Precision::kF32, Precision::kTf32, Precision::kF16, Precision::kBF16}) {
    if (text == ToString(precision)) return precision;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("dtype '", text, "' is unknown; allowed are f32, tf32, f16 and bf16"));
}

absl::StatusOr<BackendKind> ParseBackendKind(absl::string_view text) {
  for (BackendKind kind : {BackendKind::kCpu, BackendKind::kCuda}) {
    if (text == kind.name()) return kind;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("backend '", text, "' is unknown; allowed are cpu and cuda"));
}

DType StorageOf(Precision precision) {
  if (precision == Precision::kF16) return DType::kF16;
  if (precision == Precision::kBF16) return DType::kBF16;
  return DType::kF32;
}

Precision PrecisionOf(DType dtype) {
  if (dtype == DType::kF16) return Precision::kF16;
  if (dtype == DType::kBF16) return Precision::kBF16;
  return Precision::kF32;
}

int64_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

}  // namespace voxconv
