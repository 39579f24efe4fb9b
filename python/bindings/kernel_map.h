// SPDX-License-Identifier: Apache-2.0
// voxconv.KernelMap.
#ifndef VOXCONV_PYTHON_BINDINGS_KERNEL_MAP_H_
#define VOXCONV_PYTHON_BINDINGS_KERNEL_MAP_H_

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <string>

#include "arguments.h"
#include "sparse_tensor.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/kernel_map.h"

namespace voxconv::python {

// A map with its problem: the geometry, and the coordinates of both sides.
class PyKernelMap {
 public:
  PyKernelMap(EnginePtr engine, ConvGeometry geometry, CoordinateSetPtr inputs,
              CoordinateSetPtr outputs, KernelMap map)
      : geometry_(std::move(geometry)),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        map_(Hold(engine, std::move(map))),
        prepared_(Hold(std::move(engine), std::make_unique<PreparedMaps>())) {}

  const EnginePtr& engine() const { return map_->engine(); }
  const ConvGeometry& geometry() const { return geometry_; }
  const CoordinateSetPtr& inputs() const { return inputs_; }
  const CoordinateSetPtr& outputs() const { return outputs_; }
  const KernelMap& map() const { return **map_; }
  // Keeps the arrays of the map.
  const HeldPtr<KernelMap>& held() const { return map_; }
  // What the dataflow of this name has made of the map (NameToKeep). Copies of this object share
  // it.
  KeptPasses KeptFor(absl::string_view name) const { return {(*prepared_)->get(), name}; }

 private:
  ConvGeometry geometry_;
  CoordinateSetPtr inputs_, outputs_;
  HeldPtr<KernelMap> map_;
  HeldPtr<std::unique_ptr<PreparedMaps>> prepared_;
};

// Finds the output coordinates of a layer on `x`, and queries its map. `outputs`, None or a
// SparseTensor on the finer side, is for inverse layers alone.
PyKernelMap QueryMap(const PySparseTensor& x, const LayerArguments& layer, nb::handle outputs,
                     const std::string& mapping, const std::string& output_coords);

void DefineKernelMap(nb::module_& module);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_KERNEL_MAP_H_
