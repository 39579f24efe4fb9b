// SPDX-License-Identifier: Apache-2.0
// Saved kernel maps: a map and its problem in one .npz file, so that dataflows can be replayed on
// exactly the same pairs.
//
// Arrays: in_coords, out_coords int32 [N, 4] (b, x, y, z); map_offset_ptr int64 [K + 1]; map_in,
// map_out int32 [pairs], canonical order; voxconv_map int32 [25]: format version, kind, rule, then
// kernel, stride, dilation, padding, input tensor stride (x, y, z each), whether the outputs are
// bounded, and the bounds lo, hi.
#ifndef VOXCONV_IO_KERNEL_MAP_FILE_H_
#define VOXCONV_IO_KERNEL_MAP_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/core/geometry.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/io/npy.h"

namespace voxconv {

struct SavedKernelMap {
  ConvGeometry geometry;
  CoordinateSetPtr inputs, outputs;
  KernelMap map;  // kPairs
};

// The arrays of a map with its geometry and coordinates, as pairs. `map` may have any form, and
// is in the backend's memory like both sets. Synchronises the stream. Errors of MapOps::To.
absl::StatusOr<NpzArrays> KernelMapArrays(const ConvGeometry& geometry, const CoordinateSet& inputs,
                                          const CoordinateSet& outputs, const KernelMap& map,
                                          const ExecutionContext& context);
// Writes them. Errors of WriteNpz also.
absl::Status WriteKernelMap(const std::string& path, const ConvGeometry& geometry,
                            const CoordinateSet& inputs, const CoordinateSet& outputs,
                            const KernelMap& map, const ExecutionContext& context);

// Reads such a file into the backend's memory. Synchronises the stream. Refuses other files, maps
// that KernelMap::Validate refuses, and maps that do not fit their coordinates: the pairs must be
// all those with p = q + InputOffset(k), and no others. Errors of ReadNpz.
absl::StatusOr<SavedKernelMap> ReadKernelMap(const std::string& path,
                                             const ExecutionContext& context,
                                             const NpzOptions& options = {});

// Whether `path` is an .npz file with an array voxconv_map. False for a file that cannot be read.
bool IsKernelMapFile(const std::string& path, const NpzOptions& options = {});

// Turn rows into an int32 array [N, 4] and back. kInvalidArgument for other shapes and dtypes; the
// message calls the array `name`.
NpyArray CoordinatesToArray(const std::vector<Coordinate>& rows);
absl::StatusOr<std::vector<Coordinate>> CoordinatesFromArray(const NpyArray& array,
                                                             absl::string_view name);

}  // namespace voxconv

#endif  // VOXCONV_IO_KERNEL_MAP_FILE_H_
