// SPDX-License-Identifier: Apache-2.0
#include "outputs_ahead.h"

#include <algorithm>
#include <memory>

#include "voxconv/core/status_macros.h"

namespace voxconv::python {
namespace {

constexpr size_t kMostSets = 64;    // that are remembered
constexpr size_t kMostLayers = 64;  // that are known to be followed by another one
constexpr size_t kLongestChain = 8;

absl::StatusOr<std::vector<CoordinateSetPtr>> FindChain(const OutputCoords& finder,
                                                        const CoordinateSet& inputs,
                                                        const std::vector<ConvGeometry>& chain,
                                                        const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<PendingCoordinates> pending,
                           finder.Begin(inputs, chain, context));
  return OutputCoords::Finish(std::move(pending), context);
}

}  // namespace

absl::StatusOr<CoordinateSetPtr> OutputsAhead::Find(const OutputCoords& finder,
                                                    const std::string& plugin,
                                                    const CoordinateSet& inputs,
                                                    const ConvGeometry& geometry,
                                                    const ExecutionContext& context) {
  if (!context.backend->asynchronous()) return finder.Compute(inputs, geometry, context);
  const Layer layer = {plugin, geometry.params()};
  Learn(inputs.id(), layer, geometry);
  const auto waits = std::find_if(ready_.begin(), ready_.end(), [&](const Ready& ready) {
    return ready.inputs == inputs.id() && ready.layer == layer;
  });
  if (waits != ready_.end()) {
    CoordinateSetPtr outputs = std::move(waits->outputs);
    ready_.erase(waits);
    return Given(layer, std::move(outputs));
  }
  if (!ready_.empty()) Forget(ready_.front().before);
  ready_.clear();
  const std::vector<ConvGeometry> chain = ChainOf(layer, geometry);
  if (chain.size() > 1) {
    absl::StatusOr<std::vector<CoordinateSetPtr>> sets = FindChain(finder, inputs, chain, context);
    if (sets.ok()) {
      for (size_t i = 1; i < chain.size(); ++i) {
        ready_.push_back({.before = {plugin, chain[i - 1].params()},
                          .inputs = (*sets)[i - 1]->id(),
                          .layer = {plugin, chain[i].params()},
                          .outputs = (*sets)[i]});
      }
      return Given(layer, sets->front());
    }
    Forget(layer);
  }
  VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr outputs, finder.Compute(inputs, geometry, context));
  return Given(layer, std::move(outputs));
}

void OutputsAhead::Learn(uint64_t inputs, const Layer& layer, const ConvGeometry& geometry) {
  const auto made = std::find_if(made_.begin(), made_.end(),
                                 [&](const auto& set) { return set.first == inputs; });
  if (made == made_.end() || made->second.plugin != layer.plugin) return;
  const auto known = std::find_if(next_.begin(), next_.end(),
                                  [&](const auto& step) { return step.first == made->second; });
  if (known != next_.end()) {
    if (known->second.params() != geometry.params()) known->second = geometry;
  } else if (next_.size() < kMostLayers) {
    next_.emplace_back(made->second, geometry);
  }
}

void OutputsAhead::Forget(const Layer& before) {
  std::erase_if(next_, [&](const auto& step) { return step.first == before; });
}

std::vector<ConvGeometry> OutputsAhead::ChainOf(const Layer& layer,
                                                const ConvGeometry& geometry) const {
  std::vector<ConvGeometry> chain = {geometry};
  while (chain.size() < kLongestChain) {
    const Layer last = {layer.plugin, chain.back().params()};
    const auto known = std::find_if(next_.begin(), next_.end(),
                                    [&](const auto& step) { return step.first == last; });
    if (known == next_.end()) break;
    chain.push_back(known->second);
  }
  return chain;
}

CoordinateSetPtr OutputsAhead::Given(const Layer& layer, CoordinateSetPtr outputs) {
  made_.emplace_back(outputs->id(), layer);
  if (made_.size() > kMostSets) made_.pop_front();
  return outputs;
}

}  // namespace voxconv::python
