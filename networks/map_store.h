// SPDX-License-Identifier: Apache-2.0
// The coordinates, indices and kernel maps of a run.
#ifndef VOXCONV_NETWORKS_MAP_STORE_H_
#define VOXCONV_NETWORKS_MAP_STORE_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/mapping.h"
#include "voxconv/networks/compiled_network.h"
#include "voxconv/networks/input_order.h"
#include "voxconv/networks/report.h"

namespace voxconv {

// Fills the slots of a MapPlan when they are needed. Memory is the backend's, which must outlive
// the store.
class MapStore {
 public:
  explicit MapStore(const CompiledNetwork& network);

  // Starts a run on `input`, or on its voxels in order (RunConfig::reorder_input). Drops everything
  // that was made for another coordinate set. Errors of InputOrder::Sort.
  absl::Status Start(const CoordinateSetPtr& input, const ExecutionContext& context);
  // How the rows of the input were put in order. None has moved without RunConfig::reorder_input.
  const InputOrder& input_order() const { return input_order_; }
  // Drops everything, but for what was announced.
  void Clear();
  // Queues the coordinate sets of a later run on `input`, as far as they are made of it by one
  // plugin, on the context's stream. Drops what was announced before. A plugin that cannot queue
  // them makes them in FinishAnnounced. Does not wait.
  absl::Status Announce(const CoordinateSetPtr& input, const ExecutionContext& context);
  // Waits for the sizes of what was announced. Start with that input then takes the sets. Sets that
  // cannot be made are left to the run, whose error says why. False if nothing waited to be
  // finished; then this does nothing.
  bool FinishAnnounced(const ExecutionContext& context);

  // Set `id` of the graph; null if it is not made yet.
  const CoordinateSetPtr& Coordinates(int id) const { return coordinates_[id]; }
  // Whether the node's output has coordinates, and they are made.
  bool HasCoordinates(int node) const;
  // Computes the sets of a chain, unless they are there. An asynchronous backend waits once for the
  // whole chain, where the plugin allows it. Between StartBuilding and FinishBuilding, the chain is
  // computed beside what runs on the context's stream, and `meanwhile` is called once before the
  // host waits.
  absl::Status MakeChain(const CoordinateChain& chain, const ExecutionContext& context,
                         const std::function<void()>& meanwhile);
  // Computes the node's output coordinates, unless an earlier node or chain has made them.
  absl::Status MakeOutputCoordinates(int node, const ExecutionContext& context);
  // What the node reads of its map in `pass`: the layout of its dataflow, or a form (pairs, for
  // pooling). Its coordinates are made already. Work that is queued on the context's stream from
  // now on may use it. Counts in `report` what was built.
  absl::StatusOr<std::shared_ptr<const PreparedMap>> Map(int node, Pass pass,
                                                         const ExecutionContext& context,
                                                         LayerReport& layer, RunReport& report);
  // Counts the pairs of the node's map, which Map has just given. May synchronise the stream.
  absl::Status EnsureCounts(int node, const ExecutionContext& context);
  // ForwardArgs::settled for the node's map, which Map has given: it was complete before anything
  // that is queued on the context's stream from now on can start.
  bool IsSettled(int node) const { return settled_[network_.maps.MapOf(node, Pass::kForward)]; }
  // From now on until FinishBuilding, BuildNext builds maps before their layers come, beside what
  // runs on the context's stream. That stream waits for a map where Map is called for it. Where
  // memory runs out, all maps are dropped, and each is built when its layer comes.
  absl::Status StartBuilding(const ExecutionContext& context);
  // Queues the next map in the order of layers. False if maps are not built before their layers,
  // or if no layer before position `end` of the schedule's order needs a map that can be built: the
  // map is there already, or its coordinates are not made.
  absl::StatusOr<bool> BuildNext(size_t end, RunReport& report);
  // The context's stream waits for all maps that are being built.
  absl::Status FinishBuilding();
  // The plan of the node's dataflow for `pass` and its map, which Map has given.
  absl::StatusOr<const DataflowPlan*> Plan(int node, Pass pass, const PreparedMap& map,
                                           const ExecutionContext& context);
  // Frees what no node after this one needs, unless the network keeps maps.
  void Release(int node);

  // Bytes of the indices and maps that are held now. Arrays that maps share count once.
  int64_t bytes() const;

 private:
  // What the slot holds. Null: not made, or freed.
  using Held = std::shared_ptr<const PreparedMap>;

  absl::Status Fill(int slot, const ExecutionContext& context, LayerReport& layer,
                    RunReport& report);
  // Makes what `slot` holds of `source`.
  absl::StatusOr<Held> Derive(const MapSlot& slot, const Held& source,
                              const ExecutionContext& context);
  // Frees the form that `slot` holds, if no layer reads it and all that is made of it is there.
  void FreeServedForm(int slot);
  absl::Status BuildIndex(int slot, const ExecutionContext& context, RunReport& report);
  absl::StatusOr<KernelMap> Query(const MapSlot& slot, const ExecutionContext& context,
                                  RunReport& report);

  // The queried map that slot `slot` is made of.
  const MapSlot& RootOf(int slot) const { return network_.maps.maps[RootSlotOf(slot)]; }
  int RootSlotOf(int slot) const;
  absl::Status BuildOnBranch(int slot, RunReport& report);
  absl::Status AbandonBuilding();

  // The sets of a later run: being made, then made.
  struct Announced {
    CoordinateSetPtr input;
    // By chain of the network; null where the run makes it.
    std::vector<std::unique_ptr<PendingCoordinates>> pending;
    std::vector<std::vector<CoordinateSetPtr>> sets;
  };

  const CompiledNetwork& network_;
  Announced announced_;
  // A slot that layers read, and where in the schedule's order the first of them comes.
  struct Build {
    int slot;
    size_t position;
  };
  std::vector<Build> build_order_;  // by position
  // By slot: queried maps whose pairs the backward pass needs on the host. They are counted as soon
  // as they are queried, so that the host need not wait for what is queued between.
  std::vector<bool> counted_early_;
  InputOrder input_order_;
  std::vector<CoordinateSetPtr> coordinates_;
  // Declared after the coordinates: an index must not outlive its set.
  std::vector<std::unique_ptr<MapIndex>> indices_;
  // By slot. A form that a map has already is the same object as its source.
  std::vector<Held> maps_;
  std::vector<std::unique_ptr<const DataflowPlan>> plans_;
  std::shared_ptr<Branches> branches_;  // null: maps are built when their layers come
  std::vector<bool> settled_;           // by slot: IsSettled
  std::vector<int> piece_;              // by slot: what to wait for; -1: nothing
  size_t next_build_ = 0;               // in build_order_
};

}  // namespace voxconv

#endif  // VOXCONV_NETWORKS_MAP_STORE_H_
