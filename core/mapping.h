// Mapping plugins: which voxels neighbour which.
#ifndef VOXCONV_CORE_MAPPING_H_
#define VOXCONV_CORE_MAPPING_H_

#include <cstdint>
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

// One way to find kernel maps on one kind of backend. Stateless and const: one instance serves any
// number of threads and streams.
//
// Callers use the public methods, which time stages, count, and check what the plugin returns. A
// plugin overrides the Do... methods. They do not throw, and what they return with OK is not null.
class Mapping {
 public:
  virtual ~Mapping() = default;

  // The instance's option values.
  virtual const Options& options() const = 0;

  // Whether it finds maps of this geometry. It never refuses by size: BuildIndex returns
  // kResourceExhausted where memory does not suffice.
  virtual Support Supports(const ConvGeometry& geometry) const = 0;

  // Builds the index over `inputs`. Queues work on the context's stream; the index may still be
  // under construction there when this returns. Records Stage::kIndexBuild and
  // Counters::index_bytes.
  absl::StatusOr<std::unique_ptr<MapIndex>> BuildIndex(const CoordinateSet& inputs,
                                                       const ExecutionContext& context) const;

  // Finds the map of `problem`. `index` comes from this mapping's BuildIndex(problem.inputs).
  // Records Stage::kMapQuery, and Stage::kIndexBuild for what the plugin sorts of the outputs.
  // kInternal for a map that CheckQueriedMap refuses.
  absl::StatusOr<KernelMap> Query(const MapIndex& index, const MapProblem& problem,
                                  const ExecutionContext& context) const;

 protected:
  virtual absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const = 0;
  // The map in either form, with the pairs of the reference exactly; pairs in canonical order. Adds
  // to Counters::queries. A scope of another stage that it opens interrupts Stage::kMapQuery.
  virtual absl::StatusOr<KernelMap> DoQuery(const MapIndex& index, const MapProblem& problem,
                                            const ExecutionContext& context) const = 0;
};

// kInternal, naming what is wrong, if `map`, which a mapping returned for `problem`, is in neither
// form, has other numbers of inputs, outputs or offsets than the problem, or arrays of other sizes
// than it says (KernelMap::CheckSizes). O(K). Queues no work. It does not look into the arrays;
// KernelMap::Validate does.
absl::Status CheckQueriedMap(const KernelMap& map, const MapProblem& problem);

// Coordinate sets whose sizes the host does not know yet.
class PendingCoordinates {
 public:
  virtual ~PendingCoordinates() = default;
  // Waits for the sizes and makes the sets. Called once, with a context of the same stream. Refuses
  // outputs outside the coordinate range, by name and value.
  virtual absl::StatusOr<std::vector<CoordinateSetPtr>> Finish(const ExecutionContext& context) = 0;
};

// One way to find the output coordinates of strided and transposed layers: the third, small plugin
// family. As with mappings, nothing throws and no pointer is null.
class OutputCoords {
 public:
  virtual ~OutputCoords() = default;
  virtual const Options& options() const = 0;
  virtual Support Supports(const ConvGeometry& geometry) const = 0;

  // The output coordinates of one layer; rows ascend by packed key. `geometry` is strided or
  // transposed and supported. Refuses outputs outside the coordinate range, by name and value.
  // Synchronises the stream on a backend whose host must learn the size. Records
  // Stage::kOutputCoords.
  absl::StatusOr<CoordinateSetPtr> Compute(const CoordinateSet& inputs,
                                           const ConvGeometry& geometry,
                                           const ExecutionContext& context) const;

  // The coordinates of a chain of layers: set i + 1 is made of set i by geometry i, the first set
  // of `inputs`. Begin queues what can be queued before the sizes are known. The host may queue
  // other work, on any stream, until it calls Finish. `inputs` and `geometries` must live until
  // then. Both halves record Stage::kOutputCoords.
  absl::StatusOr<std::unique_ptr<PendingCoordinates>> Begin(
      const CoordinateSet& inputs, absl::Span<const ConvGeometry> geometries,
      const ExecutionContext& context) const;
  static absl::StatusOr<std::vector<CoordinateSetPtr>> Finish(
      std::unique_ptr<PendingCoordinates> pending, const ExecutionContext& context);

 protected:
  virtual absl::StatusOr<CoordinateSetPtr> DoCompute(const CoordinateSet& inputs,
                                                     const ConvGeometry& geometry,
                                                     const ExecutionContext& context) const = 0;
  // By default all sets are computed one after the other, in Finish. A plugin overrides it where
  // one wait serves the whole chain.
  virtual absl::StatusOr<std::unique_ptr<PendingCoordinates>> DoBegin(
      const CoordinateSet& inputs, absl::Span<const ConvGeometry> geometries,
      const ExecutionContext& context) const;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_MAPPING_H_
