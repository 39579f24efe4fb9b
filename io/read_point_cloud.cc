#include "io/read_point_cloud.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "io/file_bytes.h"
#include "io/npy.h"
#include "io/read_open3d.h"
#include "io/read_raw.h"

namespace voxconv {
namespace {

enum class Format { kKitti, kNuScenes, kNpy, kNpz, kOpen3d, kUnknown };

Format FormatOf(absl::string_view path) {
  const std::string name = absl::AsciiStrToLower(path);
  if (absl::EndsWith(name, ".pcd.bin")) return Format::kNuScenes;
  if (absl::EndsWith(name, ".bin")) return Format::kKitti;
  if (absl::EndsWith(name, ".npy")) return Format::kNpy;
  if (absl::EndsWith(name, ".npz")) return Format::kNpz;
  return IsOpen3dExtension(name) ? Format::kOpen3d : Format::kUnknown;
}

absl::Status CheckOptions(Format format, const std::string& path, const ReadOptions& options) {
  if (format == Format::kUnknown) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": unknown extension; allowed: .bin .pcd.bin .npy .npz ", Open3dExtensions()));
  }
  const bool raw = format == Format::kKitti || format == Format::kNuScenes;
  const auto refused = [&](absl::string_view option, absl::string_view value,
                           absl::string_view formats) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", option, " ", value, " has no meaning here; it is for ", formats));
  };
  if (!options.dtype_in.empty() && !raw) {
    return refused("dtype_in", options.dtype_in, ".bin and .pcd.bin");
  }
  if (!options.fields.empty() && format == Format::kOpen3d) {
    return refused("fields", options.fields, ".bin, .pcd.bin, .npy and .npz");
  }
  if (!options.array.empty() && format != Format::kNpz) {
    return refused("array", options.array, ".npz");
  }
  return absl::OkStatus();
}

absl::StatusOr<PointCloud> ParseRaw(absl::string_view bytes, const std::string& name, Format format,
                                    const ReadOptions& options) {
  const std::string usual =
      format == Format::kNuScenes ? "x,y,z,intensity,ring" : "x,y,z,intensity";
  absl::StatusOr<std::vector<std::string>> fields =
      ParseRawFields(options.fields.empty() ? usual : options.fields);
  if (!fields.ok()) return fields.status();
  const absl::StatusOr<RawDtype> dtype =
      ParseRawDtype(options.dtype_in.empty() ? "f32" : options.dtype_in);
  if (!dtype.ok()) return dtype.status();
  return ParseRawPoints(bytes, RawFormat{*std::move(fields), *dtype}, name);
}

absl::StatusOr<RawFormat> FormatOfArray(const NpyArray& array, const std::string& name,
                                        const ReadOptions& options) {
  RawFormat format{.dtype_known = true};
  switch (array.dtype) {
    case NpyDtype::kFloat16:
      format.dtype = RawDtype::kFloat16;
      break;
    case NpyDtype::kFloat32:
      format.dtype = RawDtype::kFloat32;
      break;
    case NpyDtype::kFloat64:
      format.dtype = RawDtype::kFloat64;
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat(name, ": dtype is ", NpyDtypeName(array.dtype),
                                                     "; allowed: float16, float32, float64"));
  }
  constexpr int64_t kMaxColumns = 1024;  // a transposed array would make a name for every point
  if (array.shape.size() != 2 || array.shape[0] < 1 || array.shape[1] < 3 ||
      array.shape[1] > kMaxColumns) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": shape is ", NpyShapeString(array.shape),
                     "; expected [N, C] with N >= 1 and 3 <= C <= ", kMaxColumns));
  }
  if (options.fields.empty()) {
    format.fields = {"x", "y", "z"};
    for (int64_t i = 3; i < array.shape[1]; ++i) format.fields.push_back(absl::StrCat("f", i - 3));
    return format;
  }
  absl::StatusOr<std::vector<std::string>> fields = ParseRawFields(options.fields);
  if (!fields.ok()) return fields.status();
  if (static_cast<int64_t>(fields->size()) != array.shape[1]) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": fields ", options.fields, " names ",
                                                   fields->size(), " columns, but the array has ",
                                                   array.shape[1]));
  }
  format.fields = *std::move(fields);
  return format;
}

absl::StatusOr<PointCloud> FromArray(const NpyArray& array, const std::string& name,
                                     const ReadOptions& options) {
  const absl::StatusOr<RawFormat> format = FormatOfArray(array, name, options);
  if (!format.ok()) return format.status();
  const absl::string_view bytes(reinterpret_cast<const char*>(array.bytes.data()),
                                array.bytes.size());
  return ParseRawPoints(bytes, *format, name);
}

absl::StatusOr<PointCloud> FromArchive(absl::string_view bytes, const std::string& name,
                                       const ReadOptions& options) {
  const absl::StatusOr<NpzArrays> arrays = ParseNpz(bytes, name);
  if (!arrays.ok()) return arrays.status();
  if (arrays->empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": holds no arrays"));
  const std::string array_name = options.array.empty() ? "points" : options.array;
  if (const NpyArray* array = FindArray(*arrays, array_name); array != nullptr) {
    return FromArray(*array, absl::StrCat(name, "[", array_name, "]"), options);
  }
  if (options.array.empty()) {
    const auto& [first, array] = arrays->front();
    return FromArray(array, absl::StrCat(name, "[", first, "]"), options);
  }
  const std::string names =
      absl::StrJoin(*arrays, ", ", [](std::string* out, const NpzArrays::value_type& array) {
        absl::StrAppend(out, array.first);
      });
  return absl::NotFoundError(
      absl::StrCat(name, ": array ", options.array, ": no such array; it holds ", names));
}

}  // namespace

absl::StatusOr<PointCloud> ParsePointCloud(absl::string_view bytes, const std::string& name,
                                           const ReadOptions& options) {
  const Format format = FormatOf(name);
  if (absl::Status status = CheckOptions(format, name, options); !status.ok()) return status;
  absl::StatusOr<PointCloud> cloud;
  if (format == Format::kNpy) {
    const absl::StatusOr<NpyArray> array = ParseNpy(bytes, name);
    if (!array.ok()) return array.status();
    cloud = FromArray(*array, name, options);
  } else if (format == Format::kNpz) {
    cloud = FromArchive(bytes, name, options);
  } else if (format == Format::kOpen3d) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": this format is read from a file, not from memory"));
  } else {
    cloud = ParseRaw(bytes, name, format, options);
  }
  if (cloud.ok() && options.into_unit_sphere) ScaleIntoUnitSphere(cloud->xyz);
  return cloud;
}

absl::StatusOr<PointCloud> ReadPointCloud(const std::string& path, const ReadOptions& options) {
  if (absl::Status status = CheckIsFile(path); !status.ok()) return status;
  const Format format = FormatOf(path);
  if (absl::Status status = CheckOptions(format, path, options); !status.ok()) return status;
  if (format == Format::kOpen3d) return ReadPointCloudWithOpen3d(path, options);
  const absl::StatusOr<std::string> bytes = ReadFileBytes(path);
  if (!bytes.ok()) return bytes.status();
  return ParsePointCloud(*bytes, path, options);
}

}  // namespace voxconv
