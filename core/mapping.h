// SPDX-License-Identifier: Apache-2.0
// Mapping plugins: which voxels neighbour which.
#ifndef VOXCONV_CORE_MAPPING_H_
#define VOXCONV_CORE_MAPPING_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/core/geometry.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/plugin.h"

namespace voxconv {

// The question that a mapping answers: which (p, q, k) have inputs[p] = outputs[q] +
// geometry.InputOffset(k), with p and q in the same batch sample? Holds references only. Both sets
// are in the memory of the backend that answers.
struct MapProblem {
  const CoordinateSet& inputs;
  const CoordinateSet& outputs;
  const ConvGeometry& geometry;
};

// What a mapping builds over the input coordinates to look them up. Opaque to callers. Immutable.
// Serves any number of queries with any geometry. Must not outlive the CoordinateSet that it was
// built of.
class MapIndex {
 public:
  virtual ~MapIndex() = default;
  // Bytes of the index in the backend's memory.
  virtual int64_t bytes() const = 0;
};

// One way to find kernel maps on one kind of backend. Stateless and const: one instance serves any
// number of threads and streams.
//
// Callers use the public methods. These time stages, count work, and check what the plugin returns.
// A plugin overrides the Do... methods. A Do... method must not throw, and must not return OK with
// a null pointer. One that does gives kInternal, with the plugin and the method in the message.
class Mapping : public NamedPlugin {
 public:
  Mapping() : NamedPlugin("mapping") {}
  virtual ~Mapping() = default;

  // The instance's option values.
  virtual const Options& options() const = 0;

  // Whether the mapping finds maps of this geometry. It never refuses a size: BuildIndex and Query
  // return kResourceExhausted if the memory does not suffice. O(1). Queues no work.
  Support Supports(const ConvGeometry& geometry) const;

  // Builds the index over `inputs`. The work is queued on the context's stream, and the index may
  // still be under construction there when this returns. A mapping whose host code must learn a
  // size synchronises the stream. Records Stage::kIndexBuild and Counters::index_bytes.
  // kResourceExhausted if the memory does not suffice.
  absl::StatusOr<std::unique_ptr<MapIndex>> BuildIndex(const CoordinateSet& inputs,
                                                       const ExecutionContext& context) const;

  // Finds the map of `problem`, in the form that the mapping makes. `index` must come from
  // BuildIndex(problem.inputs) of this mapping. Queued on the context's stream. A mapping that
  // makes pairs on an asynchronous backend synchronises the stream to learn their number. Records
  // Stage::kMapQuery, and Stage::kIndexBuild for the time in which the plugin sorts the outputs.
  // kResourceExhausted if the memory does not suffice. kInternal for a map that CheckQueriedMap
  // refuses.
  absl::StatusOr<KernelMap> Query(const MapIndex& index, const MapProblem& problem,
                                  const ExecutionContext& context) const;

 protected:
  virtual Support DoSupports(const ConvGeometry& geometry) const = 0;
  virtual absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const = 0;
  // Returns the map in any form. It must have exactly the pairs of the reference. Pairs are in
  // canonical order. Adds the number of lookups to Counters::queries. A StageScope that this
  // function opens for another stage interrupts Stage::kMapQuery.
  virtual absl::StatusOr<KernelMap> DoQuery(const MapIndex& index, const MapProblem& problem,
                                            const ExecutionContext& context) const = 0;
};

// Checks a map that a mapping returned for `problem`. kInternal says what is wrong: the map has no
// arrays, its numbers of inputs, outputs or offsets are not those of the problem, or its arrays
// have wrong sizes (KernelMap::CheckSizes). O(K). Queues no work. This function does not look into
// the arrays; KernelMap::Validate does.
absl::Status CheckQueriedMap(const KernelMap& map, const MapProblem& problem);

class OutputCoords;

// Coordinate sets whose sizes the host does not know yet. Made by OutputCoords::Begin.
class PendingCoordinates {
 public:
  virtual ~PendingCoordinates() = default;
  // Waits for the sizes and makes the sets. Must be called once, with a context of the stream that
  // Begin was given. Errors of OutputCoords::Compute.
  virtual absl::StatusOr<std::vector<CoordinateSetPtr>> Finish(const ExecutionContext& context) = 0;

 private:
  friend class OutputCoords;
  const OutputCoords* maker_ = nullptr;  // whose Begin has returned this
  size_t num_sets_ = 0;
};

// One way to find the output coordinates of strided and transposed layers. This is the third, small
// plugin family. Stateless and const. A Do... method must not throw, and must not return OK with a
// null pointer.
class OutputCoords : public NamedPlugin {
 public:
  OutputCoords() : NamedPlugin("output_coords") {}
  virtual ~OutputCoords() = default;
  // The instance's option values.
  virtual const Options& options() const = 0;
  // Whether the plugin finds the outputs of this geometry. O(1). Queues no work.
  Support Supports(const ConvGeometry& geometry) const;

  // Finds the output coordinates of one layer. Rows ascend by packed key. `geometry` is strided or
  // transposed, and supported. The result is in the backend's memory. An asynchronous backend
  // synchronises the stream to learn the size. Records Stage::kOutputCoords. kOutOfRange for
  // outputs outside the coordinate range; the message gives axis, value and what is allowed.
  // kResourceExhausted if the memory does not suffice.
  absl::StatusOr<CoordinateSetPtr> Compute(const CoordinateSet& inputs,
                                           const ConvGeometry& geometry,
                                           const ExecutionContext& context) const;

  // Begin and Finish find the coordinates of a chain of layers. Geometry 0 makes the first set of
  // `inputs`; geometry i makes set i of set i - 1. Begin queues the work that can be queued before
  // the sizes are known, and does not wait for them. The host may then queue other work, on any
  // stream, until it calls Finish, which waits for the sizes and returns one set for each geometry.
  // `inputs` and `geometries` must live until Finish returns. Both record Stage::kOutputCoords.
  // Errors of Compute.
  absl::StatusOr<std::unique_ptr<PendingCoordinates>> Begin(
      const CoordinateSet& inputs, absl::Span<const ConvGeometry> geometries,
      const ExecutionContext& context) const;
  static absl::StatusOr<std::vector<CoordinateSetPtr>> Finish(
      std::unique_ptr<PendingCoordinates> pending, const ExecutionContext& context);

 protected:
  virtual Support DoSupports(const ConvGeometry& geometry) const = 0;
  virtual absl::StatusOr<CoordinateSetPtr> DoCompute(const CoordinateSet& inputs,
                                                     const ConvGeometry& geometry,
                                                     const ExecutionContext& context) const = 0;
  // The default computes all sets one after the other in Finish. A plugin overrides this if one
  // wait serves the whole chain.
  virtual absl::StatusOr<std::unique_ptr<PendingCoordinates>> DoBegin(
      const CoordinateSet& inputs, absl::Span<const ConvGeometry> geometries,
      const ExecutionContext& context) const;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_MAPPING_H_
