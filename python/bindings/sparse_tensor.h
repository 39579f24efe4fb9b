// SPDX-License-Identifier: Apache-2.0
// voxconv.SparseTensor.
#ifndef VOXCONV_PYTHON_BINDINGS_SPARSE_TENSOR_H_
#define VOXCONV_PYTHON_BINDINGS_SPARSE_TENSOR_H_

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <utility>

#include "array.h"
#include "engine.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/sparse_tensor.h"

namespace voxconv::python {

// The set as a pointer that also keeps the engine whose memory it is in.
CoordinateSetPtr HoldSet(const EnginePtr& engine, CoordinateSetPtr set);

// What a mapping has built over voxels, for its next query of them.
struct KeptIndex {
  std::shared_ptr<const Mapping> mapping;
  std::unique_ptr<MapIndex> index;
};

// Coordinates, and an array of Python with the features. Copying needs the GIL.
class PySparseTensor {
 public:
  // Checks the features against the coordinates.
  PySparseTensor(CoordinateSetPtr set, const InArray& features);
  // Takes over the features of a result, [set's size, channels], as an array of the framework of
  // `like`.
  PySparseTensor(EnginePtr engine, CoordinateSetPtr set, Tensor features, nb::handle like);
  // Takes over a result whose rows are voxels (checked).
  PySparseTensor(EnginePtr engine, SparseTensor result, nb::handle like);

  const EnginePtr& engine() const { return engine_; }
  const CoordinateSetPtr& set() const { return set_; }
  const nb::object& features() const { return features_; }
  const ConstTensorView& matrix() const { return matrix_; }
  SparseTensorView view() const { return {set_, matrix_}; }
  // Null pointers until a query has kept something. Changed within a call of the engine alone.
  // Needs the GIL; the reference does not.
  KeptIndex& kept_index() const {
    if (kept_index_ == nullptr) kept_index_ = Hold(engine_, std::make_unique<KeptIndex>());
    return ***kept_index_;
  }

 private:
  EnginePtr engine_;
  CoordinateSetPtr set_;
  nb::object features_;
  ConstTensorView matrix_;
  mutable HeldPtr<std::unique_ptr<KeptIndex>> kept_index_;  // after the set, over which it is built
};

void DefineSparseTensor(nb::module_& module);

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_SPARSE_TENSOR_H_
