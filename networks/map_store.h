// The coordinates, indices and kernel maps of a run.
#ifndef VOXCONV_NETWORKS_MAP_STORE_H_
#define VOXCONV_NETWORKS_MAP_STORE_H_

#include <functional>
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
  // Whether what the node puts out has coordinates, and they are made.
  bool HasCoordinates(int node) const;
  // Computes the sets of a chain that are not there yet: with one wait on a backend whose host must
  // wait for sizes. Between StartBuilding and FinishBuilding beside what runs in the context's
  // stream, and `meanwhile` is called once before the host waits.
  absl::Status MakeChain(const CoordinateChain& chain, const ExecutionContext& context,
                         const std::function<void()>& meanwhile);
  // Computes the node's output coordinates if no earlier node or chain has.
  absl::Status MakeOutputCoordinates(int node, const ExecutionContext& context);
  // The node's map in the layout that it needs, for work queued on the context's stream; its
  // coordinates are made already. Counts what was built in `report`.
  absl::StatusOr<std::shared_ptr<const KernelMap>> Map(int node, const ExecutionContext& context,
                                                       LayerReport& layer, RunReport& report);
  // Whether the node's map, which Map has given, was complete before anything that is queued on the
  // context's stream now could start: ForwardArgs::settled.
  bool IsSettled(int node) const { return settled_[network_.maps.map_of_node[node]]; }
  // From now on until FinishBuilding, maps are built before their layers come, beside what runs in
  // the context's stream: it waits for a map only where Map is called for it. Where memory runs out
  // all are dropped, and each is built when its layer comes.
  absl::Status StartBuilding(const ExecutionContext& context);
  // Queues the next map in the order of layers. False where there is none, of those that some layer
  // before position `end` of the schedule's order reads, whose coordinates are made; or maps are
  // not built before their layers.
  absl::StatusOr<bool> BuildNext(size_t end, RunReport& report);
  // The context's stream waits for whatever is still being built.
  absl::Status FinishBuilding();
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

  // The queried map that map `slot` is made of.
  const MapSlot& RootOf(int slot) const;
  absl::Status BuildOnBranch(int slot, RunReport& report);
  absl::Status AbandonBuilding();

  const CompiledNetwork& network_;
  // A map that layers read, and where in the schedule's order it is needed.
  struct Build {
    int slot;
    size_t position;
  };
  std::vector<Build> build_order_;  // by position
  std::vector<CoordinateSetPtr> coordinates_;
  // Declared after the coordinates: an index must not outlive its set.
  std::vector<std::unique_ptr<MapIndex>> indices_;
  // Shared, because a conversion to the layout that a map has already is the map itself.
  std::vector<std::shared_ptr<const KernelMap>> maps_;
  std::vector<std::unique_ptr<const DataflowPlan>> plans_;
  std::shared_ptr<Branches> branches_;  // null: maps are built when their layers come
  std::vector<bool> settled_;           // by slot: IsSettled
  std::vector<int> piece_;              // by slot: what to wait for; -1: nothing
  size_t next_build_ = 0;               // in build_order_
};

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_MAP_STORE_H_
