// SPDX-License-Identifier: Apache-2.0
// Output coordinates that are found before their layers ask for them.
#ifndef VOXCONV_PYTHON_BINDINGS_OUTPUTS_AHEAD_H_
#define VOXCONV_PYTHON_BINDINGS_OUTPUTS_AHEAD_H_

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/core/mapping.h"

namespace voxconv::python {

// Strided layers of a network follow each other, and the host waits for the size of each one's
// outputs. This object learns which layer follows which. Where it knows the layers that will
// follow, it finds their outputs together with those of the first one, and the host waits once
// (OutputCoords::Begin). Outputs that no layer has asked for are dropped when the next chain is
// found, and the layer that they were found for is forgotten. Belongs to one engine, whose memory
// it uses and whose lock guards it.
class OutputsAhead {
 public:
  // Returns the outputs of a layer on `inputs`, as OutputCoords::Compute. `plugin` names `finder`
  // for all calls. A backend that is not asynchronous has no waits to save, and finds nothing
  // ahead. Errors of Compute; those of layers that may follow are ignored.
  absl::StatusOr<CoordinateSetPtr> Find(const OutputCoords& finder, const std::string& plugin,
                                        const CoordinateSet& inputs, const ConvGeometry& geometry,
                                        const ExecutionContext& context);

 private:
  struct Layer {
    std::string plugin;
    GeometryParams geometry;  // with the tensor stride of the inputs
    friend bool operator==(const Layer&, const Layer&) = default;
  };
  // Outputs that wait for their layer.
  struct Ready {
    Layer before;     // whose outputs are the layer's inputs
    uint64_t inputs;  // their CoordinateSet::id
    Layer layer;
    CoordinateSetPtr outputs;
  };

  void Learn(uint64_t inputs, const Layer& layer, const ConvGeometry& geometry);
  void Forget(const Layer& before);
  // The layer's geometry, and those of the layers that follow it.
  std::vector<ConvGeometry> ChainOf(const Layer& layer, const ConvGeometry& geometry) const;
  CoordinateSetPtr Given(const Layer& layer, CoordinateSetPtr outputs);

  std::vector<std::pair<Layer, ConvGeometry>> next_;  // what follows a layer
  std::deque<std::pair<uint64_t, Layer>> made_;       // the last sets that were given, by id
  std::vector<Ready> ready_;
};

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_OUTPUTS_AHEAD_H_
