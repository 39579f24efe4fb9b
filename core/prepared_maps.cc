// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/prepared_maps.h"

#include <utility>

#include "voxconv/core/convolution.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {

absl::StatusOr<PreparedMaps::Prepared> PreparedMaps::Get(absl::string_view spec,
                                                         const Dataflow& dataflow, Pass pass,
                                                         const ConvShape& shape,
                                                         const KernelMap& map,
                                                         const ExecutionContext& context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Plan& plan : plans_) {
    if (plan.pass == pass && plan.shape == shape && plan.spec == spec) return plan.prepared;
  }
  Prepared prepared;
  VOXCONV_ASSIGN_OR_RETURN(prepared.map, GetMap(spec, dataflow, pass, shape, map, context));
  VOXCONV_ASSIGN_OR_RETURN(prepared.plan, dataflow.Plan(pass, *prepared.map, shape, context));
  plans_.push_back({std::string(spec), pass, shape, prepared});
  return prepared;
}

absl::StatusOr<std::shared_ptr<const PreparedMap>> PreparedMaps::GetMap(
    absl::string_view spec, const Dataflow& dataflow, Pass pass, const ConvShape& shape,
    const KernelMap& map, const ExecutionContext& context) {
  const MapNeed need = dataflow.NeededMap(pass, shape);
  for (const Map& kept : maps_) {
    if (kept.need == need && kept.spec == spec) return kept.map;
  }
  VOXCONV_ASSIGN_OR_RETURN(auto prepared, PrepareMap(dataflow, pass, shape, map, context));
  maps_.push_back({std::string(spec), need, prepared});
  return prepared;
}

int64_t PreparedMaps::bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t bytes = 0;
  for (const Map& kept : maps_) bytes += kept.map->bytes();
  return bytes;
}

}  // namespace voxconv
