#include "networks/map_store.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace voxconv {

MapStore::MapStore(const CompiledNetwork& network) : network_(network) { Clear(); }

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
  plans_.resize(network_.plans.size());
}

absl::Status MapStore::MakeChain(const CoordinateChain& chain, const ExecutionContext& context) {
  if (coordinates_[chain.sets.front()] != nullptr) return absl::OkStatus();
  VOXCONV_ASSIGN_OR_RETURN(
      std::vector<CoordinateSetPtr> sets,
      chain.output_coords->ComputeChain(*coordinates_[chain.from], chain.geometries, context));
  VOXCONV_CHECK(sets.size() == chain.sets.size());
  for (size_t i = 0; i < sets.size(); ++i) coordinates_[chain.sets[i]] = std::move(sets[i]);
  return absl::OkStatus();
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

absl::StatusOr<std::shared_ptr<const KernelMap>> MapStore::Map(int node,
                                                               const ExecutionContext& context,
                                                               LayerReport& layer,
                                                               RunReport& report) {
  const int slot = network_.maps.map_of_node[node];
  VOXCONV_CHECK(slot >= 0);
  layer.map_origin = MapOrigin::kReused;
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
    VOXCONV_ASSIGN_OR_RETURN(plan, network_.layers[node].dataflow->Plan(map, shape, context));
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
  VOXCONV_ASSIGN_OR_RETURN(indices_[slot], network_.layers[plan.node].mapping->BuildIndex(
                                               *coordinates_[plan.coordinates], context));
  ++report.indices_built;
  return absl::OkStatus();
}

absl::Status MapStore::BuildAll(const ExecutionContext& context, RunReport& report) {
  // First every index, then every queried map with all that is made of it.
  std::vector<Backend::Branch> builds;
  for (size_t slot = 0; slot < indices_.size(); ++slot) {
    if (indices_[slot] != nullptr) continue;
    builds.emplace_back([this, slot, &report](const ExecutionContext& branch) {
      return BuildIndex(static_cast<int>(slot), branch, report);
    });
  }
  std::map<int, std::vector<int>> families;  // by queried map
  for (int slot = 0; slot < static_cast<int>(maps_.size()); ++slot) {
    if (maps_[slot] != nullptr) continue;
    int root = slot;
    while (network_.maps.maps[root].origin != MapSlot::Origin::kQuery) {
      root = network_.maps.maps[root].source;
    }
    families[root].push_back(slot);
  }
  std::vector<Backend::Branch> queries;
  queries.reserve(families.size());
  for (const auto& family : families) {
    queries.emplace_back([this, &slots = family.second, &report](const ExecutionContext& branch) {
      LayerReport ignored;
      for (int slot : slots) VOXCONV_RETURN_IF_ERROR(Fill(slot, branch, ignored, report));
      return absl::OkStatus();
    });
  }
  absl::Status status = context.backend->RunBranches(builds, context);
  if (status.ok()) status = context.backend->RunBranches(queries, context);
  if (!absl::IsResourceExhausted(status)) return status;
  for (auto& map : maps_) map = nullptr;
  for (auto& index : indices_) index = nullptr;
  return absl::OkStatus();
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
