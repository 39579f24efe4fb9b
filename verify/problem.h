// SPDX-License-Identifier: Apache-2.0
// The coordinates and geometries of the verify matrix, with the oracle's answers.
#ifndef VOXCONV_VERIFY_PROBLEM_H_
#define VOXCONV_VERIFY_PROBLEM_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/core/geometry.h"
#include "voxconv/reference_cpu/kernel_map.h"

namespace voxconv::verify {

// Small coordinate sets, each with one property that has broken a sparse convolution engine.
struct Scene {
  std::string name;
  std::vector<Coordinate> rows;
  // Rows are near the end of the coordinate range. The scene then applies only to kinds of layers
  // whose outputs stay in the range.
  bool at_range_edge = false;
  // The bounds are too large for an array over all cells. kResourceExhausted is an allowed answer.
  bool huge_bounds = false;
};
const std::vector<Scene>& Scenes();
// Several of every plugin's tasks, and several passes of buffers of 1 MiB, with about as many
// neighbours a voxel as a LiDAR scan has. It is none of Scenes(), since the reference takes its
// time on it.
const Scene& LargeScene();

struct NamedGeometry {
  std::string name;
  GeometryParams params;  // of the fine side: input_tensor_stride is the scene's, 1
};
const std::vector<NamedGeometry>& Geometries();
// One of them (checked).
const NamedGeometry& GeometryNamed(absl::string_view name);
// Names of one geometry of each kind and output rule. The cases of dataflows use these.
std::vector<std::string> GeometryOfEachKind();

// One scene under one geometry: the inputs, and the outputs and the map by the reference. The scene
// is the input, except for inverse layers, where it is the output. For transposed layers its rows
// are multiplied by the stride.
struct Problem {
  std::string id;  // "<geometry>/<scene>"
  ConvGeometry geometry;
  std::vector<Coordinate> inputs, outputs;
  reference::KernelMap map;
  bool huge_bounds = false;

  absl::StatusOr<CoordinateSetPtr> MakeInputs(const ExecutionContext& context) const;
  // The inputs themselves where the geometry keeps them.
  absl::StatusOr<CoordinateSetPtr> MakeOutputs(const CoordinateSetPtr& inputs,
                                               const ExecutionContext& context) const;
};

// `geometry` describes a layer from its fine side at tensor stride 1. Returns it with the tensor
// stride of its inputs.
GeometryParams PlacedGeometry(GeometryParams geometry);

// Null if the scene does not apply to the geometry.
std::unique_ptr<Problem> MakeProblem(const NamedGeometry& geometry, const Scene& scene);

std::vector<reference::Coord> ToReference(const std::vector<Coordinate>& rows);
std::vector<Coordinate> FromReference(absl::Span<const reference::Coord> rows);

// The indices, ascending, of at most `limit` rows: those nearest to the middle row.
std::vector<int64_t> CropRows(absl::Span<const Coordinate> rows, int64_t limit);

// Makes each problem on first use and owns it. Not thread-safe.
class ProblemCache {
 public:
  // May be null (see MakeProblem).
  const Problem* Get(const NamedGeometry& geometry, const Scene& scene);

 private:
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Problem>> problems_;
};

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_PROBLEM_H_
