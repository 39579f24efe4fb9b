// SPDX-License-Identifier: Apache-2.0
#include "voxconv/io/kernel_map_file.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "voxconv/core/map_check.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {
namespace {

constexpr char kHeaderName[] = "voxconv_map";
constexpr int32_t kFormatVersion = 1;
constexpr size_t kHeaderSize = 25;

void Append(std::vector<int32_t>& header, const Int3& v) {
  header.insert(header.end(), {v.x, v.y, v.z});
}

std::vector<int32_t> EncodeHeader(const GeometryParams& params) {
  std::vector<int32_t> header = {kFormatVersion, static_cast<int32_t>(params.kind),
                                 static_cast<int32_t>(params.rule)};
  for (const Int3& v : {params.kernel, params.stride, params.dilation, params.padding,
                        params.input_tensor_stride}) {
    Append(header, v);
  }
  header.push_back(params.output_bounds.has_value());
  const Box bounds = params.output_bounds.value_or(Box{});
  Append(header, bounds.lo);
  Append(header, bounds.hi);
  return header;
}

absl::StatusOr<ConvGeometry> DecodeHeader(const std::vector<int32_t>& header) {
  if (header.size() != kHeaderSize || header[0] != kFormatVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat(kHeaderName, ": not a kernel map of format version ", kFormatVersion));
  }
  if (header[1] < 0 || header[1] > static_cast<int32_t>(ConvKind::kTransposed) || header[2] < 0 ||
      header[2] > static_cast<int32_t>(OutputRule::kDilate)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kHeaderName, ": kind ", header[1], " or rule ", header[2], " is unknown"));
  }
  const auto at = [&](int i) { return Int3{header[i], header[i + 1], header[i + 2]}; };
  GeometryParams params{.kind = static_cast<ConvKind>(header[1]),
                        .rule = static_cast<OutputRule>(header[2]),
                        .kernel = at(3),
                        .stride = at(6),
                        .dilation = at(9),
                        .padding = at(12),
                        .input_tensor_stride = at(15)};
  if (header[18] != 0) params.output_bounds = Box{at(19), at(22)};
  return ConvGeometry::Create(params);
}

absl::StatusOr<const NpyArray*> Find(const NpzArrays& arrays, absl::string_view name) {
  const NpyArray* array = FindArray(arrays, name);
  if (array == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("array ", name, " is missing"));
  }
  return array;
}

absl::StatusOr<CoordinateSetPtr> ReadCoordinates(const NpzArrays& arrays, absl::string_view name,
                                                 const Int3& tensor_stride,
                                                 const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const NpyArray* array, Find(arrays, name));
  VOXCONV_ASSIGN_OR_RETURN(const auto rows, CoordinatesFromArray(*array, name));
  return CoordinateSet::Create(rows, tensor_stride, context);
}

absl::StatusOr<SavedKernelMap> Decode(const NpzArrays& arrays, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const NpyArray* header_array, Find(arrays, kHeaderName));
  VOXCONV_ASSIGN_OR_RETURN(const auto header, ToInt32(*header_array, kHeaderName));
  VOXCONV_ASSIGN_OR_RETURN(ConvGeometry geometry, DecodeHeader(header));
  VOXCONV_ASSIGN_OR_RETURN(
      CoordinateSetPtr inputs,
      ReadCoordinates(arrays, "in_coords", geometry.input_tensor_stride(), context));
  VOXCONV_ASSIGN_OR_RETURN(
      CoordinateSetPtr outputs,
      ReadCoordinates(arrays, "out_coords", geometry.output_tensor_stride(), context));
  VOXCONV_ASSIGN_OR_RETURN(const NpyArray* ptr_array, Find(arrays, "map_offset_ptr"));
  VOXCONV_ASSIGN_OR_RETURN(const NpyArray* in_array, Find(arrays, "map_in"));
  VOXCONV_ASSIGN_OR_RETURN(const NpyArray* out_array, Find(arrays, "map_out"));
  VOXCONV_ASSIGN_OR_RETURN(auto offset_ptr, ToInt64(*ptr_array, "map_offset_ptr"));
  VOXCONV_ASSIGN_OR_RETURN(const auto in, ToInt32(*in_array, "map_in"));
  VOXCONV_ASSIGN_OR_RETURN(const auto out, ToInt32(*out_array, "map_out"));
  if (static_cast<int>(offset_ptr.size()) != geometry.num_offsets() + 1) {
    return absl::InvalidArgumentError(absl::StrCat("map_offset_ptr: ", offset_ptr.size(),
                                                   " entries; the kernel needs ",
                                                   geometry.num_offsets() + 1));
  }
  PairBuffers pairs;
  VOXCONV_ASSIGN_OR_RETURN(pairs.in, CopyToBackend<int32_t>(in, context));
  VOXCONV_ASSIGN_OR_RETURN(pairs.out, CopyToBackend<int32_t>(out, context));
  KernelMap map(inputs->size(), outputs->size(), std::move(offset_ptr), PairList(std::move(pairs)));
  map.set_identity_offset(geometry.center());
  map.set_symmetric(geometry.symmetric());
  VOXCONV_RETURN_IF_ERROR(map.Validate(context));
  // A map of other coordinates would give results, but wrong ones; so would one that lost pairs.
  if (const absl::Status held = CheckMapOnAllRows(map, {*inputs, *outputs, geometry}, context);
      !held.ok()) {
    return absl::InvalidArgumentError(held.message());
  }
  return SavedKernelMap{std::move(geometry), std::move(inputs), std::move(outputs), std::move(map)};
}

}  // namespace

NpyArray CoordinatesToArray(const std::vector<Coordinate>& rows) {
  std::vector<int32_t> values;
  values.reserve(rows.size() * 4);
  for (const Coordinate& c : rows) values.insert(values.end(), {c.b, c.x, c.y, c.z});
  return MakeNpyArray({static_cast<int64_t>(rows.size()), 4}, absl::Span<const int32_t>(values));
}

absl::StatusOr<std::vector<Coordinate>> CoordinatesFromArray(const NpyArray& array,
                                                             absl::string_view name) {
  if (array.shape.size() != 2 || array.shape[1] != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": shape ", NpyShapeString(array.shape), "; [N, 4] is needed"));
  }
  VOXCONV_ASSIGN_OR_RETURN(const auto values, ToInt32(array, name));
  std::vector<Coordinate> rows(array.shape[0]);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = {values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]};
  }
  return rows;
}

absl::StatusOr<NpzArrays> KernelMapArrays(const ConvGeometry& geometry, const CoordinateSet& inputs,
                                          const CoordinateSet& outputs, const KernelMap& map,
                                          const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs,
                           context.backend->map_ops().To(MapForm::kPairs, map, context));
  VOXCONV_ASSIGN_OR_RETURN(const auto in_rows, CopyToHost(inputs.rows(), context));
  VOXCONV_ASSIGN_OR_RETURN(const auto out_rows, CopyToHost(outputs.rows(), context));
  VOXCONV_ASSIGN_OR_RETURN(const auto in, CopyToHost(pairs.pairs().in.array(), context));
  VOXCONV_ASSIGN_OR_RETURN(const auto out, CopyToHost(pairs.pairs().out.array(), context));
  const std::vector<int32_t> header = EncodeHeader(geometry.params());
  const auto array = [](const auto& values) {
    return MakeNpyArray({static_cast<int64_t>(values.size())}, absl::MakeConstSpan(values));
  };
  return NpzArrays{{kHeaderName, array(header)},
                   {"in_coords", CoordinatesToArray(in_rows)},
                   {"out_coords", CoordinatesToArray(out_rows)},
                   {"map_offset_ptr", array(pairs.offset_ptr())},
                   {"map_in", array(in)},
                   {"map_out", array(out)}};
}

absl::Status WriteKernelMap(const std::string& path, const ConvGeometry& geometry,
                            const CoordinateSet& inputs, const CoordinateSet& outputs,
                            const KernelMap& map, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const NpzArrays arrays,
                           KernelMapArrays(geometry, inputs, outputs, map, context));
  return WriteNpz(path, arrays);
}

absl::StatusOr<SavedKernelMap> ReadKernelMap(const std::string& path,
                                             const ExecutionContext& context,
                                             const NpzOptions& options) {
  VOXCONV_ASSIGN_OR_RETURN(const NpzArrays arrays, ReadNpz(path, options));
  absl::StatusOr<SavedKernelMap> saved = Decode(arrays, context);
  if (saved.ok()) return saved;
  return StatusAt(path, saved.status());
}

bool IsKernelMapFile(const std::string& path, const NpzOptions& options) {
  if (!absl::EndsWith(path, ".npz")) return false;
  const absl::StatusOr<NpzArrays> arrays = ReadNpz(path, options);
  return arrays.ok() && FindArray(*arrays, kHeaderName) != nullptr;
}

}  // namespace voxconv
