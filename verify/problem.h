// The coordinates and geometries that the verify matrix is spanned by, with the oracle's answer.
#ifndef VOXCONV_VERIFY_PROBLEM_H_
#define VOXCONV_VERIFY_PROBLEM_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/coordinate_set.h"
#include "core/geometry.h"
#include "reference_cpu/kernel_map.h"

namespace voxconv::verify {

// Small coordinate sets, each with one property that has broken a sparse convolution engine.
struct Scene {
  std::string name;
  std::vector<Coordinate> rows;
  // Rows near the end of the coordinate range: only kinds whose outputs stay inside apply.
  bool at_range_edge = false;
  // Bounds too large for an array over all cells: running out of memory is an answer here.
  bool huge_bounds = false;
};
const std::vector<Scene>& Scenes();

struct NamedGeometry {
  std::string name;
  GeometryParams params;  // of the fine side: input_tensor_stride is the scene's, 1
};
const std::vector<NamedGeometry>& Geometries();
// One of them (checked).
const NamedGeometry& GeometryNamed(absl::string_view name);
// One geometry of each kind and output rule: what the dataflows are multiplied with.
std::vector<std::string> GeometryOfEachKind();

// One scene under one geometry: what goes in and, by the reference, what must come out. For
// inverse the scene is the output; for transposed its rows are scaled by the stride.
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

// A layer that is named from its fine side at tensor stride 1, with its inputs' tensor stride.
GeometryParams PlacedGeometry(GeometryParams geometry);

// nullptr where the scene does not apply to the geometry.
std::unique_ptr<Problem> MakeProblem(const NamedGeometry& geometry, const Scene& scene);

std::vector<reference::Coord> ToReference(const std::vector<Coordinate>& rows);
std::vector<Coordinate> FromReference(absl::Span<const reference::Coord> rows);

// At most `limit` of the rows, those nearest to the middle one: their numbers, ascending.
std::vector<int64_t> CropRows(absl::Span<const Coordinate> rows, int64_t limit);

// Problems by id, made on first use.
class ProblemCache {
 public:
  // May be null (see MakeProblem).
  const Problem* Get(const NamedGeometry& geometry, const Scene& scene);

 private:
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Problem>> problems_;
};

}  // namespace voxconv::verify

#endif  // VOXCONV_VERIFY_PROBLEM_H_
