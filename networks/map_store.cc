#include "networks/map_store.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/convolution.h"

namespace voxconv {
namespace {

// Lanes of branches: one for the chains of output coordinates, which the host waits for, and what
// comes of each index in one, so that none has to wait for another.
constexpr int kChainLane = 0;
constexpr int LaneOfIndex(int index) { return 1 + index; }

}  // namespace

MapStore::MapStore(const CompiledNetwork& network) : network_(network) {
  std::vector<bool> listed(network.maps.maps.size(), false);
  for (size_t i = 0; i < network.schedule.order.size(); ++i) {
    const int slot = network.maps.map_of_node[network.schedule.order[i]];
    if (slot < 0 || listed[slot]) continue;
    listed[slot] = true;
    build_order_.push_back({slot, i});
  }
  Clear();
}

void MapStore::Start(const CoordinateSetPtr& input) {
  const bool same = coordinates_[0] != nullptr && coordinates_[0]->id() == input->id();
  if (!same || !network_.config.keep_maps) Clear();
  coordinates_[0] = input;
}

void MapStore::Clear() {
  plans_.clear();
  maps_.clear();
  indices_.clear();
  coordinates_.clear();
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
  const auto compute = [&](const ExecutionContext& where,
                           const std::function<void()>& before_waiting) -> absl::Status {
    VOXCONV_ASSIGN_OR_RETURN(
        std::vector<CoordinateSetPtr> sets,
        chain.output_coords->ComputeChain(*coordinates_[chain.from], chain.geometries, where,
                                          before_waiting));
    VOXCONV_CHECK(sets.size() == chain.sets.size());
    for (size_t i = 0; i < sets.size(); ++i) coordinates_[chain.sets[i]] = std::move(sets[i]);
    return absl::OkStatus();
  };
  if (branches_ == nullptr) return compute(context, {});
  // Held here: if memory runs out meanwhile, building is abandoned.
  const std::shared_ptr<Branches> branches = branches_;
  VOXCONV_ASSIGN_OR_RETURN(const int piece,
                           branches->Run(kChainLane, [&](const ExecutionContext& branch) {
                             absl::Status queued;
                             const absl::Status status = compute(branch, [&] {
                               queued = branch.stream->Submit();  // before what is queued beside it
                               if (queued.ok()) meanwhile();
                             });
                             VOXCONV_RETURN_IF_ERROR(queued);
                             return status;
                           }));
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
                           NonNull(layer.output_coords->Compute(*inputs, *layer.geometry, context),
                                   "output_coords: Compute"));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const KernelMap>> MapStore::Map(int node,
                                                               const ExecutionContext& context,
                                                               LayerReport& layer,
                                                               RunReport& report) {
  const int slot = network_.maps.map_of_node[node];
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

absl::StatusOr<const DataflowPlan*> MapStore::Plan(int node, const KernelMap& map,
                                                   const ExecutionContext& context) {
  std::unique_ptr<const DataflowPlan>& plan = plans_[network_.plan_of_node[node]];
  if (plan == nullptr) {
    const Node& layer = network_.graph.node(node);
    const ConvShape shape{network_.graph.InputChannels(layer), layer.channels,
                          network_.config.dtype};
    VOXCONV_ASSIGN_OR_RETURN(
        plan, NonNull(network_.layers[node].dataflow->Plan(map, shape, context), "dataflow: Plan"));
  }
  return plan.get();
}

absl::Status MapStore::Fill(int slot, const ExecutionContext& context, LayerReport& layer,
                            RunReport& report) {
  if (maps_[slot] != nullptr) return absl::OkStatus();
  const MapSlot& plan = network_.maps.maps[slot];
  if (plan.origin == MapSlot::Origin::kQuery) {
    VOXCONV_ASSIGN_OR_RETURN(KernelMap map, Query(plan, context, report));
    maps_[slot] = std::make_shared<const KernelMap>(std::move(map));
    layer.map_origin = MapOrigin::kQueried;
    return absl::OkStatus();
  }
  VOXCONV_RETURN_IF_ERROR(Fill(plan.source, context, layer, report));
  const std::shared_ptr<const KernelMap>& source = maps_[plan.source];
  if (plan.origin == MapSlot::Origin::kTranspose) {
    VOXCONV_ASSIGN_OR_RETURN(KernelMap map, context.backend->TransposeKernelMap(*source, context));
    maps_[slot] = std::make_shared<const KernelMap>(std::move(map));
    ++report.maps_transposed;
    if (layer.map_origin == MapOrigin::kReused) layer.map_origin = MapOrigin::kTransposed;
    return absl::OkStatus();
  }
  if (source->layout() == plan.layout) {
    maps_[slot] = source;
    return absl::OkStatus();
  }
  VOXCONV_ASSIGN_OR_RETURN(KernelMap map,
                           context.backend->ConvertKernelMap(*source, plan.layout, context));
  maps_[slot] = std::make_shared<const KernelMap>(std::move(map));
  ++report.maps_converted;
  if (layer.map_origin == MapOrigin::kReused) layer.map_origin = MapOrigin::kConverted;
  return absl::OkStatus();
}

absl::Status MapStore::BuildIndex(int slot, const ExecutionContext& context, RunReport& report) {
  if (indices_[slot] != nullptr) return absl::OkStatus();
  const IndexSlot& plan = network_.maps.indices[slot];
  VOXCONV_ASSIGN_OR_RETURN(indices_[slot], NonNull(network_.layers[plan.node].mapping->BuildIndex(
                                                       *coordinates_[plan.coordinates], context),
                                                   "mapping: BuildIndex"));
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

const MapSlot& MapStore::RootOf(int slot) const {
  const std::vector<MapSlot>& maps = network_.maps.maps;
  while (maps[slot].origin != MapSlot::Origin::kQuery) slot = maps[slot].source;
  return maps[slot];
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
  const MapProblem problem{inputs, outputs, *layer.geometry};
  VOXCONV_ASSIGN_OR_RETURN(KernelMap map,
                           layer.mapping->Query(*indices_[slot.index], problem, context));
  VOXCONV_RETURN_IF_ERROR(CheckQueriedMap(map, problem));
  return map;
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
  int64_t bytes = 0;
  std::set<const KernelMap*> counted;
  for (const auto& map : maps_) {
    if (map != nullptr && counted.insert(map.get()).second) bytes += map->bytes();
  }
  for (const auto& index : indices_) {
    if (index != nullptr) bytes += index->bytes();
  }
  return bytes;
}

}  // namespace voxconv
