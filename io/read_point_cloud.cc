// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/read_point_cloud.h"

#include <filesystem>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/io/mesh_file.h"
#include "voxconv/io/npy.h"
#include "voxconv/io/point_file.h"
#include "voxconv/io/read_raw.h"
#include "voxconv/io/sample_mesh.h"

namespace voxconv {
namespace {

enum class Format {
  kKitti,
  kNuScenes,
  kNpy,
  kNpz,
  kPly,
  kObj,
  kOff,
  kStl,
  kGltf,
  kPcd,
  kXyz,
  kXyzn,
  kXyzrgb,
  kPts,
  kUnknown
};

struct FormatExtension {
  absl::string_view extension;
  Format format;
};
// The first that fits is taken.
constexpr FormatExtension kFormats[] = {
    {".pcd.bin", Format::kNuScenes}, {".bin", Format::kKitti},     {".npy", Format::kNpy},
    {".npz", Format::kNpz},          {".ply", Format::kPly},       {".obj", Format::kObj},
    {".off", Format::kOff},          {".stl", Format::kStl},       {".gltf", Format::kGltf},
    {".glb", Format::kGltf},         {".pcd", Format::kPcd},       {".xyz", Format::kXyz},
    {".xyzn", Format::kXyzn},        {".xyzrgb", Format::kXyzrgb}, {".pts", Format::kPts}};

Format FormatOf(absl::string_view path) {
  const std::string name = absl::AsciiStrToLower(path);
  for (const FormatExtension& known : kFormats) {
    if (absl::EndsWith(name, known.extension)) return known.format;
  }
  return Format::kUnknown;
}

absl::Status CheckOptions(Format format, const std::string& path, const ReadOptions& options) {
  if (format == Format::kUnknown) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": unknown extension; allowed: ",
        absl::StrJoin(kFormats, " ", [](std::string* out, const FormatExtension& known) {
          absl::StrAppend(out, known.extension);
        })));
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
  const bool table = raw || format == Format::kNpy || format == Format::kNpz;
  if (!options.fields.empty() && !table) {
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
  return ParseRawPoints(
      bytes, RawFormat{.fields = *std::move(fields), .dtype = *dtype, .origin = options.origin},
      name);
}

absl::StatusOr<RawFormat> FormatOfArray(const NpyArray& array, const std::string& name,
                                        const ReadOptions& options) {
  RawFormat format{.dtype_known = true, .origin = options.origin};
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

// The array with the points where the caller names none and none is called "points": the only
// table of numbers. Which of two tables are the points cannot be told. Without one, the first array
// is taken, which FromArray refuses.
absl::StatusOr<std::string> NameOfTable(const NpzArrays& arrays, const std::string& name) {
  std::vector<std::string> tables;
  for (const auto& [key, array] : arrays) {
    const bool floats = array.dtype == NpyDtype::kFloat16 || array.dtype == NpyDtype::kFloat32 ||
                        array.dtype == NpyDtype::kFloat64;
    if (floats && array.shape.size() == 2 && array.shape[1] >= 3) tables.push_back(key);
  }
  if (tables.empty()) return arrays.front().first;
  if (tables.size() == 1) return tables.front();
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", absl::StrJoin(tables, " and "),
                                                 " could all be the points; give array"));
}

absl::StatusOr<PointCloud> FromArchive(absl::string_view bytes, const std::string& name,
                                       const ReadOptions& options) {
  NpzOptions npz{.max_bytes = options.npz_limit_mib << 20, .supported_only = true};
  if (!options.array.empty()) npz.only = {options.array};
  VOXCONV_ASSIGN_OR_RETURN(const NpzArrays arrays, ParseNpz(bytes, name, npz));
  if (arrays.empty() && !options.array.empty()) {
    VOXCONV_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListNpzOf(bytes, name));
    return absl::NotFoundError(absl::StrCat(
        name, ": array ", options.array, ": no such array; it holds ", absl::StrJoin(names, ", ")));
  }
  if (arrays.empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": holds no arrays"));
  std::string array = options.array.empty() ? "points" : options.array;
  if (FindArray(arrays, array) == nullptr) {
    VOXCONV_ASSIGN_OR_RETURN(array, NameOfTable(arrays, name));
  }
  return FromArray(*FindArray(arrays, array), absl::StrCat(name, "[", array, "]"), options);
}

absl::StatusOr<PointCloud> SampleSurface(absl::StatusOr<Mesh> mesh, const std::string& name,
                                         const ReadOptions& options) {
  if (!mesh.ok()) return mesh.status();
  if (options.into_unit_sphere) ScaleIntoUnitSphere(mesh->vertices);
  return SampleMesh(*mesh, options.samples, options.seed, name);
}

absl::StatusOr<PointCloud> FinitePoints(absl::StatusOr<PointCloud> cloud, const std::string& name,
                                        const ReadOptions& options) {
  if (!cloud.ok()) return cloud;
  if (cloud->size() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": holds no points"));
  }
  DropNonFiniteRows(*cloud);
  if (cloud->size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": none of the ", cloud->dropped, " points is free of NaN and Inf"));
  }
  if (options.into_unit_sphere) ScaleIntoUnitSphere(cloud->xyz);
  return cloud;
}

absl::StatusOr<PointCloud> FromPly(absl::string_view bytes, const std::string& name,
                                   const ReadOptions& options) {
  absl::StatusOr<std::variant<PointCloud, Mesh>> content = io_internal::ParsePly(bytes, name);
  if (!content.ok()) return content.status();
  if (Mesh* mesh = std::get_if<Mesh>(&*content)) {
    return SampleSurface(std::move(*mesh), name, options);
  }
  return FinitePoints(std::get<PointCloud>(*std::move(content)), name, options);
}

absl::StatusOr<PointCloud> FromTable(absl::string_view bytes, const std::string& name,
                                     Format format, const ReadOptions& options) {
  absl::StatusOr<PointCloud> cloud;
  if (format == Format::kNpy) {
    const absl::StatusOr<NpyArray> array = ParseNpy(bytes, name);
    if (!array.ok()) return array.status();
    cloud = FromArray(*array, name, options);
  } else if (format == Format::kNpz) {
    cloud = FromArchive(bytes, name, options);
  } else {
    cloud = ParseRaw(bytes, name, format, options);
  }
  if (cloud.ok() && options.into_unit_sphere) ScaleIntoUnitSphere(cloud->xyz);
  return cloud;
}

absl::StatusOr<PointCloud> Parse(absl::string_view bytes, const std::string& name,
                                 const ReadOptions& options,
                                 const io_internal::ReadSibling& read_sibling) {
  const Format format = FormatOf(name);
  if (absl::Status status = CheckOptions(format, name, options); !status.ok()) return status;
  switch (format) {
    case Format::kPly:
      return FromPly(bytes, name, options);
    case Format::kObj:
      return SampleSurface(io_internal::ParseObj(bytes, name), name, options);
    case Format::kOff:
      return SampleSurface(io_internal::ParseOff(bytes, name), name, options);
    case Format::kStl:
      return SampleSurface(io_internal::ParseStl(bytes, name), name, options);
    case Format::kGltf:
      return SampleSurface(io_internal::ParseGltf(bytes, name, read_sibling), name, options);
    case Format::kPcd:
      return FinitePoints(io_internal::ParsePcd(bytes, name), name, options);
    case Format::kXyz:
      return FinitePoints(io_internal::ParseXyz(bytes, name), name, options);
    case Format::kXyzn:
      return FinitePoints(io_internal::ParseXyzn(bytes, name), name, options);
    case Format::kXyzrgb:
      return FinitePoints(io_internal::ParseXyzrgb(bytes, name), name, options);
    case Format::kPts:
      return FinitePoints(io_internal::ParsePts(bytes, name), name, options);
    default:
      return FromTable(bytes, name, format, options);
  }
}

}  // namespace

bool HasPointCloudExtension(absl::string_view path) { return FormatOf(path) != Format::kUnknown; }

absl::StatusOr<PointCloud> ParsePointCloud(absl::string_view bytes, const std::string& name,
                                           const ReadOptions& options) {
  return Parse(bytes, name, options, [&](const std::string& file) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": needs the file ", absl::CEscape(file), " beside it"));
  });
}

absl::StatusOr<PointCloud> ReadPointCloud(const std::string& path, const ReadOptions& options) {
  if (absl::Status status = CheckIsFile(path); !status.ok()) return status;
  if (absl::Status status = CheckOptions(FormatOf(path), path, options); !status.ok()) {
    return status;
  }
  const absl::StatusOr<std::string> bytes = ReadFileBytes(path);
  if (!bytes.ok()) return bytes.status();
  return Parse(*bytes, path, options, [&](const std::string& file) {
    return ReadFileBytes((std::filesystem::path(path).parent_path() / file).string());
  });
}

}  // namespace voxconv
