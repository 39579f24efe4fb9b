// SPDX-License-Identifier: Apache-2.0
#include "voxconv/networks/map_store.h"

#include <algorithm>
#include <set>
#include <utility>

#include "voxconv/core/map_ops.h"

namespace voxconv {
namespace {

// Lanes of branches. Chains of output coordinates have one of their own, because the host waits for
// them. Each index has one for itself and its maps, so that none of them waits for another index.
constexpr int kChainLane = 0;
constexpr int LaneOfIndex(int index) { return 1 + index; }

// Adds up the bytes of maps. Copies of a map share its arrays, which count once.
class ByteCounter {
 public:
  void Add(const PreparedMap& prepared) {
    const KernelMap& map = prepared.map();
    bytes_ += prepared.bytes() - map.bytes();  // of the layout alone
    if (map.bytes() > 0 && counted_.insert(FirstArray(map)).second) bytes_ += map.bytes();
  }
  int64_t bytes() const { return bytes_; }

 private:
  static const void* FirstArray(const KernelMap& map) {
    if (map.form() == MapForm::kLookup) return &map.lookup();
    return map.form() == MapForm::kPairs ? map.pairs().in.data() : map.table().table.data();
  }

  std::set<const void*> counted_;
  int64_t bytes_ = 0;
};

}  // namespace

MapStore::MapStore(const CompiledNetwork& network) : network_(network) {
  std::vector<bool> listed(network.maps.maps.size(), false);
  for (size_t i = 0; i < network.schedule.order.size(); ++i) {
    const int slot = network.maps.MapOf(network.schedule.order[i], Pass::kForward);
    if (slot < 0 || listed[slot]) continue;
    listed[slot] = true;
    build_order_.push_back({slot, i});
  }
  counted_early_.assign(network.maps.maps.size(), false);
  for (size_t slot = 0; network.config.trains && slot < network.maps.maps.size(); ++slot) {
    const MapSlot& made = network.maps.maps[slot];
    if (made.origin != MapSlot::Origin::kForm || made.form != MapForm::kPairs) continue;
    counted_early_[RootSlotOf(static_cast<int>(slot))] = true;
  }
  Clear();
}

absl::Status MapStore::Start(const CoordinateSetPtr& input, const ExecutionContext& context) {
  const CoordinateSetPtr& before =
      input_order_.given() != nullptr ? input_order_.given() : coordinates_[0];
  const bool same = before != nullptr && before->id() == input->id();
  if (!same || !network_.config.keep_maps) Clear();
  coordinates_[0] = input;
  if (network_.config.reorder_input) {
    VOXCONV_RETURN_IF_ERROR(input_order_.Sort(input, context));
    coordinates_[0] = input_order_.set();
    return absl::OkStatus();
  }
  if (announced_.input == nullptr || announced_.input->id() != input->id()) return absl::OkStatus();
  const Announced announced = std::exchange(announced_, {});
  for (size_t chain = 0; chain < announced.sets.size(); ++chain) {
    for (size_t i = 0; i < announced.sets[chain].size(); ++i) {
      CoordinateSetPtr& set = coordinates_[network_.chains[chain].sets[i]];
      if (set == nullptr) set = announced.sets[chain][i];
    }
  }
  return absl::OkStatus();
}

absl::Status MapStore::Announce(const CoordinateSetPtr& input, const ExecutionContext& context) {
  announced_ = {};
  if (network_.config.reorder_input) return absl::OkStatus();  // the run's set is not this one
  const bool kept = coordinates_[0] != nullptr && coordinates_[0]->id() == input->id();
  if (kept && network_.config.keep_maps) return absl::OkStatus();
  Announced announced{.input = input};
  for (const CoordinateChain& chain : network_.chains) {
    announced.pending.emplace_back();
    announced.sets.emplace_back();
    if (chain.from != 0) continue;
    VOXCONV_ASSIGN_OR_RETURN(announced.pending.back(),
                             chain.output_coords->Begin(*input, chain.geometries, context));
  }
  announced_ = std::move(announced);
  return absl::OkStatus();
}

bool MapStore::FinishAnnounced(const ExecutionContext& context) {
  bool finished = false;
  for (size_t chain = 0; chain < announced_.pending.size(); ++chain) {
    if (announced_.pending[chain] == nullptr) continue;
    finished = true;
    absl::StatusOr<std::vector<CoordinateSetPtr>> sets =
        OutputCoords::Finish(std::move(announced_.pending[chain]), context);
    if (sets.ok()) announced_.sets[chain] = *std::move(sets);
  }
  announced_.pending.clear();
  return finished;
}

void MapStore::Clear() {
  plans_.clear();
  maps_.clear();
  indices_.clear();
  coordinates_.clear();
  input_order_.Clear();
  coordinates_.resize(network_.graph.coordinates().size());
  indices_.resize(network_.maps.indices.size());
  maps_.resize(network_.maps.maps.size());
  settled_.assign(network_.maps.maps.size(), false);
  plans_.resize(network_.plans.size());
}

bool MapStore::HasCoordinates(int node) const {
  const int id = network_.graph.node(node).coordinates;
  return id >= 0 && coordinates_[id] != nullptr;
}

absl::Status MapStore::MakeChain(const CoordinateChain& chain, const ExecutionContext& context,
                                 const std::function<void()>& meanwhile) {
  if (coordinates_[chain.sets.front()] != nullptr) return absl::OkStatus();
  const auto begin = [&](const ExecutionContext& where) {
    return chain.output_coords->Begin(*coordinates_[chain.from], chain.geometries, where);
  };
  const auto finish = [&](std::unique_ptr<PendingCoordinates> pending,
                          const ExecutionContext& where) -> absl::Status {
    VOXCONV_ASSIGN_OR_RETURN(std::vector<CoordinateSetPtr> sets,
                             OutputCoords::Finish(std::move(pending), where));
    VOXCONV_CHECK(sets.size() == chain.sets.size());
    for (size_t i = 0; i < sets.size(); ++i) coordinates_[chain.sets[i]] = std::move(sets[i]);
    return absl::OkStatus();
  };
  if (branches_ == nullptr) {
    VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<PendingCoordinates> pending, begin(context));
    return finish(std::move(pending), context);
  }
  // Held here, because `meanwhile` abandons building if memory runs out.
  const std::shared_ptr<Branches> branches = branches_;
  const auto work = [&](const ExecutionContext& branch) -> absl::Status {
    VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<PendingCoordinates> pending, begin(branch));
    // The chain's first half goes to the device before what `meanwhile` queues.
    VOXCONV_RETURN_IF_ERROR(branch.stream->Submit());
    meanwhile();
    return finish(std::move(pending), branch);
  };
  VOXCONV_ASSIGN_OR_RETURN(const int piece, branches->Run(kChainLane, work));
  VOXCONV_RETURN_IF_ERROR(branches->Wait(piece));
  return branches->Follow(piece);
}

absl::Status MapStore::MakeOutputCoordinates(int node, const ExecutionContext& context) {
  const int id = network_.graph.node(node).coordinates;
  if (coordinates_[id] != nullptr) return absl::OkStatus();
  const LayerSetup& layer = network_.layers[node];
  VOXCONV_CHECK(layer.output_coords != nullptr);
  const CoordinateSetPtr& inputs = coordinates_[network_.graph.coordinates()[id].from];
  VOXCONV_ASSIGN_OR_RETURN(coordinates_[id],
                           layer.output_coords->Compute(*inputs, *layer.geometry, context));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const PreparedMap>> MapStore::Map(int node, Pass pass,
                                                                 const ExecutionContext& context,
                                                                 LayerReport& layer,
                                                                 RunReport& report) {
  const int slot = network_.maps.MapOf(node, pass);
  VOXCONV_CHECK(slot >= 0);
  layer.map_origin = MapOrigin::kReused;
  while (maps_[slot] == nullptr) {
    VOXCONV_ASSIGN_OR_RETURN(const bool built, BuildNext(build_order_.back().position + 1, report));
    if (!built) break;
  }
  if (branches_ != nullptr && piece_[slot] >= 0) {
    VOXCONV_RETURN_IF_ERROR(branches_->Wait(piece_[slot]));
    piece_[slot] = -1;
    settled_[slot] = true;
  }
  VOXCONV_RETURN_IF_ERROR(Fill(slot, context, layer, report));
  return maps_[slot];
}

absl::Status MapStore::EnsureCounts(int node, const ExecutionContext& context) {
  // A layout may keep no arrays that could be counted. What it was made of has the same counts.
  for (int slot = network_.maps.MapOf(node, Pass::kForward); slot >= 0;
       slot = network_.maps.maps[slot].source) {
    if (maps_[slot] == nullptr) continue;
    const KernelMap& map = maps_[slot]->map();
    if (map.counts_known() || map.form() != MapForm::kNone) return map.EnsureCounts(context);
  }
  return absl::OkStatus();
}

absl::StatusOr<const DataflowPlan*> MapStore::Plan(int node, Pass pass, const PreparedMap& map,
                                                   const ExecutionContext& context) {
  const auto which = static_cast<int>(pass);
  std::unique_ptr<const DataflowPlan>& plan = plans_[network_.plans_of_node[node][which]];
  if (plan == nullptr) {
    const LayerSetup& layer = network_.layers[node];
    VOXCONV_ASSIGN_OR_RETURN(plan, layer.dataflow->Plan(pass, map, layer.shapes[which], context));
  }
  return plan.get();
}

absl::Status MapStore::Fill(int slot, const ExecutionContext& context, LayerReport& layer,
                            RunReport& report) {
  if (maps_[slot] != nullptr) return absl::OkStatus();
  const MapSlot& plan = network_.maps.maps[slot];
  if (plan.origin == MapSlot::Origin::kQuery) {
    VOXCONV_ASSIGN_OR_RETURN(KernelMap map, Query(plan, context, report));
    if (counted_early_[slot]) VOXCONV_RETURN_IF_ERROR(map.StartCounting(context));
    maps_[slot] = std::make_shared<const PreparedMap>(std::move(map));
    layer.map_origin = MapOrigin::kQueried;
    return absl::OkStatus();
  }
  VOXCONV_RETURN_IF_ERROR(Fill(plan.source, context, layer, report));
  VOXCONV_ASSIGN_OR_RETURN(maps_[slot], Derive(plan, maps_[plan.source], context));
  if (maps_[slot] == maps_[plan.source]) return absl::OkStatus();
  const bool transposed = plan.origin == MapSlot::Origin::kTranspose;
  ++(transposed ? report.maps_transposed : report.maps_converted);
  if (layer.map_origin == MapOrigin::kReused) {
    layer.map_origin = transposed ? MapOrigin::kTransposed : MapOrigin::kConverted;
  }
  if (plan.origin == MapSlot::Origin::kPrepare) FreeServedForm(plan.source);
  return absl::OkStatus();
}

absl::StatusOr<MapStore::Held> MapStore::Derive(const MapSlot& slot, const Held& source,
                                                const ExecutionContext& context) {
  MapOps& ops = context.backend->map_ops();
  if (slot.origin == MapSlot::Origin::kPrepare) {
    return network_.layers[slot.node].dataflow->Prepare(source->map(), slot.need, context);
  }
  if (slot.origin == MapSlot::Origin::kTranspose) {
    VOXCONV_ASSIGN_OR_RETURN(KernelMap map, ops.Transpose(source->map(), context));
    return std::make_shared<const PreparedMap>(std::move(map));
  }
  if (source->map().form() == slot.form) return source;
  VOXCONV_ASSIGN_OR_RETURN(KernelMap map, ops.To(slot.form, source->map(), context));
  return std::make_shared<const PreparedMap>(std::move(map));
}

void MapStore::FreeServedForm(int slot) {
  const std::vector<MapSlot>& maps = network_.maps.maps;
  if (maps[slot].read) return;
  for (size_t other = 0; other < maps.size(); ++other) {
    if (maps[other].source == slot && maps_[other] == nullptr) return;
  }
  maps_[slot] = nullptr;
}

absl::Status MapStore::BuildIndex(int slot, const ExecutionContext& context, RunReport& report) {
  if (indices_[slot] != nullptr) return absl::OkStatus();
  const IndexSlot& plan = network_.maps.indices[slot];
  VOXCONV_ASSIGN_OR_RETURN(indices_[slot], network_.layers[plan.node].mapping->BuildIndex(
                                               *coordinates_[plan.coordinates], context));
  ++report.indices_built;
  return absl::OkStatus();
}

absl::Status MapStore::StartBuilding(const ExecutionContext& context) {
  VOXCONV_CHECK(branches_ == nullptr);
  next_build_ = 0;
  piece_.assign(maps_.size(), -1);
  const bool kept = std::all_of(build_order_.begin(), build_order_.end(),
                                [&](const Build& build) { return maps_[build.slot] != nullptr; });
  if (kept) return absl::OkStatus();
  VOXCONV_ASSIGN_OR_RETURN(branches_, context.backend->OpenBranches(context));
  return absl::OkStatus();
}

int MapStore::RootSlotOf(int slot) const {
  const std::vector<MapSlot>& maps = network_.maps.maps;
  while (maps[slot].origin != MapSlot::Origin::kQuery) slot = maps[slot].source;
  return slot;
}

absl::StatusOr<bool> MapStore::BuildNext(size_t end, RunReport& report) {
  if (branches_ == nullptr) return false;
  while (next_build_ < build_order_.size() && maps_[build_order_[next_build_].slot] != nullptr) {
    ++next_build_;
  }
  if (next_build_ == build_order_.size() || build_order_[next_build_].position >= end) return false;
  const int slot = build_order_[next_build_].slot;
  const MapSlot& root = RootOf(slot);
  const int inputs = network_.maps.indices[root.index].coordinates;
  const int outputs = network_.graph.node(root.node).coordinates;
  if (coordinates_[inputs] == nullptr || coordinates_[outputs] == nullptr) return false;
  const absl::Status status = BuildOnBranch(slot, report);
  if (!absl::IsResourceExhausted(status)) {
    VOXCONV_RETURN_IF_ERROR(InLayer(network_.graph.node(root.node), status));
    ++next_build_;
    return true;
  }
  VOXCONV_RETURN_IF_ERROR(AbandonBuilding());
  return false;
}

absl::Status MapStore::BuildOnBranch(int slot, RunReport& report) {
  const auto build = [&](const ExecutionContext& branch) {
    LayerReport ignored;
    return Fill(slot, branch, ignored, report);
  };
  VOXCONV_ASSIGN_OR_RETURN(piece_[slot], branches_->Run(LaneOfIndex(RootOf(slot).index), build));
  return absl::OkStatus();
}

absl::Status MapStore::AbandonBuilding() {
  VOXCONV_RETURN_IF_ERROR(FinishBuilding());
  for (auto& plan : plans_) plan = nullptr;
  for (auto& map : maps_) map = nullptr;
  for (auto& index : indices_) index = nullptr;
  settled_.assign(settled_.size(), false);
  return absl::OkStatus();
}

absl::Status MapStore::FinishBuilding() {
  if (branches_ == nullptr) return absl::OkStatus();
  const absl::Status status = branches_->Join();
  branches_ = nullptr;
  return status;
}

absl::StatusOr<KernelMap> MapStore::Query(const MapSlot& slot, const ExecutionContext& context,
                                          RunReport& report) {
  VOXCONV_RETURN_IF_ERROR(BuildIndex(slot.index, context, report));
  const LayerSetup& layer = network_.layers[slot.node];
  const CoordinateSet& inputs = *coordinates_[network_.maps.indices[slot.index].coordinates];
  const CoordinateSet& outputs = *coordinates_[network_.graph.node(slot.node).coordinates];
  ++report.maps_queried;
  return layer.mapping->Query(*indices_[slot.index], {inputs, outputs, *layer.geometry}, context);
}

void MapStore::Release(int node) {
  if (network_.config.keep_maps) return;
  for (size_t slot = 0; slot < plans_.size(); ++slot) {
    if (network_.plans[slot].last_user == node) plans_[slot] = nullptr;
  }
  for (size_t slot = 0; slot < maps_.size(); ++slot) {
    if (network_.maps.maps[slot].last_user == node) maps_[slot] = nullptr;
  }
  for (size_t slot = 0; slot < indices_.size(); ++slot) {
    if (network_.maps.indices[slot].last_user == node) indices_[slot] = nullptr;
  }
}

int64_t MapStore::bytes() const {
  ByteCounter maps;
  std::set<const PreparedMap*> counted;  // the same object may fill two slots
  for (const Held& map : maps_) {
    if (map != nullptr && counted.insert(map.get()).second) maps.Add(*map);
  }
  int64_t bytes = maps.bytes();
  for (const auto& index : indices_) {
    if (index != nullptr) bytes += index->bytes();
  }
  return bytes;
}

}  // namespace voxconv
