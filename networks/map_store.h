// The coordinates, indices and kernel maps of a run.
#ifndef VOXCONV_NETWORKS_MAP_STORE_H_
#define VOXCONV_NETWORKS_MAP_STORE_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/mapping.h"
#include "networks/compiled_network.h"
#include "networks/report.h"

namespace voxconv {

// Fills the slots of a MapPlan on demand. Memory is the backend's, which must outlive the store.
class MapStore {
 public:
  explicit MapStore(const CompiledNetwork& network);

  // Starts a run on `input`. Everything made for another coordinate set is dropped.
  void Start(const CoordinateSetPtr& input);
  // Drops everything.
  void Clear();

  // Set `id` of the graph; made already.
  const CoordinateSetPtr& Coordinates(int id) const { return coordinates_[id]; }
  // Computes the sets of a chain that are not there yet: with one wait on a backend whose host must
  // wait for sizes.
  absl::Status MakeChain(const CoordinateChain& chain, const ExecutionContext& context);
  // Computes the node's output coordinates if no earlier node or chain has.
  absl::Status MakeOutputCoordinates(int node, const ExecutionContext& context);
  // The node's map in the layout that it needs; its coordinates are made already. Counts what was
  // built in `report`.
  absl::StatusOr<std::shared_ptr<const KernelMap>> Map(int node, const ExecutionContext& context,
                                                       LayerReport& layer, RunReport& report);
  // Makes all maps, on as many streams as the backend has for it; all coordinates are made already.
  // Where memory runs out there are none afterwards, and no error.
  absl::Status BuildAll(const ExecutionContext& context, RunReport& report);
  // The plan of the node's dataflow for `map`, which is the node's.
  absl::StatusOr<const DataflowPlan*> Plan(int node, const KernelMap& map,
                                           const ExecutionContext& context);
  // Frees what no node after this one needs, unless the network keeps maps.
  void Release(int node);

  // Bytes of indices and maps held now.
  int64_t bytes() const;

 private:
  absl::Status Fill(int slot, const ExecutionContext& context, LayerReport& layer,
                    RunReport& report);
  absl::Status BuildIndex(int slot, const ExecutionContext& context, RunReport& report);
  absl::StatusOr<KernelMap> Query(const MapSlot& slot, const ExecutionContext& context,
                                  RunReport& report);

  const CompiledNetwork& network_;
  std::vector<CoordinateSetPtr> coordinates_;
  // Declared after the coordinates: an index must not outlive its set.
  std::vector<std::unique_ptr<MapIndex>> indices_;
  // Shared, because a conversion to the layout that a map has already is the map itself.
  std::vector<std::shared_ptr<const KernelMap>> maps_;
  std::vector<std::unique_ptr<const DataflowPlan>> plans_;
};

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_MAP_STORE_H_
