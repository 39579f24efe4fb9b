// Mapping plugins: which voxels neighbour which.
#ifndef VOXCONV_CORE_MAPPING_H_
#define VOXCONV_CORE_MAPPING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/backend.h"
#include "core/coordinate_set.h"
#include "core/geometry.h"
#include "core/kernel_map.h"
#include "core/plugin.h"

namespace voxconv {

// Find all (p, q, k) with inputs[p] = outputs[q] + geometry.InputOffset(k) in the same batch
// sample. Holds references only.
struct MapProblem {
  const CoordinateSet& inputs;
  const CoordinateSet& outputs;
  const ConvGeometry& geometry;
};

// Whatever a mapping builds over the input coordinates to look them up; opaque, immutable, usable
// for any number of queries with any geometry. Must not outlive the CoordinateSet it was built of.
class MapIndex {
 public:
  virtual ~MapIndex() = default;
  virtual int64_t bytes() const = 0;
};

// Stateless and const: one instance may serve any number of threads and streams. No method throws,
// and what a method returns with an OK status is not null.
class Mapping {
 public:
  virtual ~Mapping() = default;

  // The instance's option values.
  virtual const Options& options() const = 0;

  // A refusal here is by kind of problem or backend, never by size: too much memory is a status
  // of BuildIndex.
  virtual Support Supports(const ConvGeometry& geometry, BackendKind backend) const = 0;

  // Work is queued on context.stream; on return the index may still be under construction there.
  // Records Stage::kIndexBuild and counters.index_bytes.
  virtual absl::StatusOr<std::unique_ptr<MapIndex>> BuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const = 0;

  // `index` must come from this mapping's BuildIndex(problem.inputs). The result is exact: its
  // pairs are those of the reference. kPairs or kNeighbourTable; pairs in canonical order. Records
  // Stage::kMapQuery (and kIndexBuild for what it sorts of the outputs), counters.queries.
  virtual absl::StatusOr<KernelMap> Query(const MapIndex& index, const MapProblem& problem,
                                          const ExecutionContext& context) const = 0;
};

// Output coordinates of strided and transposed layers: the third, small plugin family. As with
// mappings, nothing throws and no set is null.
class OutputCoords {
 public:
  virtual ~OutputCoords() = default;
  virtual const Options& options() const = 0;
  virtual Support Supports(const ConvGeometry& geometry, BackendKind backend) const = 0;
  // Rows sorted by packed key. Refuses outputs outside the coordinate range, by name and value.
  // Records Stage::kOutputCoords. `geometry` is strided or transposed (checked).
  virtual absl::StatusOr<CoordinateSetPtr> Compute(const CoordinateSet& inputs,
                                                   const ConvGeometry& geometry,
                                                   const ExecutionContext& context) const = 0;
  // The coordinates of a chain of layers: set i + 1 is made of set i by geometry i, the first of
  // `inputs`. As Compute one after the other, but a backend whose host must wait for a size waits
  // once for all of them, unless the plugin's work would grow with what it had to guess. Returns
  // one set a geometry. `meanwhile`, where it is not empty, is called once, before the host waits:
  // for what else it has to queue, on any stream.
  virtual absl::StatusOr<std::vector<CoordinateSetPtr>> ComputeChain(
      const CoordinateSet& inputs, absl::Span<const ConvGeometry> geometries,
      const ExecutionContext& context, const std::function<void()>& meanwhile) const;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_MAPPING_H_
