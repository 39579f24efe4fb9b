// SPDX-License-Identifier: Apache-2.0
// The arrays of passes on a kernel map, and runs whose results are arrays of Python.
#ifndef VOXCONV_PYTHON_BINDINGS_PASSES_H_
#define VOXCONV_PYTHON_BINDINGS_PASSES_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "array.h"
#include "engine.h"
#include "kernel_map.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/core/tensor.h"

namespace voxconv::python {

// Weights [K, C_in, C_out] of the dtype as the matrix [K * C_in, C_out]. `c_in` below 0 allows any.
ConstTensorView WeightMatrix(const InArray& weights, Engine& engine, int64_t offsets, int64_t c_in,
                             DType dtype);
// A matrix [rows, C] of one side of a map: its "inputs" or "outputs".
ConstTensorView SideMatrix(const InArray& array, Engine& engine, int64_t rows, const char* side);
// [N, C] of the shape and dtype of `x`, on its engine.
ConstTensorView MatrixLike(const InArray& array, const InArray& x);
// float32 [size] of an array that is given by name, on the engine. None gives null.
float* FloatColumn(const char* name, nb::handle object, int64_t size, Engine& engine);
// Refuses other arrays than [channels] in float32 or as the features are.
void CheckColumn(const InArray& array, int64_t channels, DType dtype, Engine& engine);

// Runs what overwrites a result of this shape, which is `out` or a new array of the framework of
// `like`. `work` is given its matrix, the workspace and the context. `inputs` may not overlap
// `out`.
template <typename Work>
nb::object RunInto(const EnginePtr& engine, const std::vector<int64_t>& shape, DType dtype,
                   nb::handle out, nb::handle like, const std::vector<ConstTensorView>& inputs,
                   const Work& work) {
  nb::object target;
  TensorView given;
  if (!out.is_none()) {
    const InArray array("out", out);
    given = OutMatrix(array, shape, dtype, *engine, inputs);
    target = array.object();
    CountWrite(target);
  } else if (std::optional<NewArray> fresh = NewArray::Create(*engine, shape, dtype, like)) {
    given = fresh->matrix;
    target = std::move(fresh->object);
  }
  int64_t rows = 1;
  for (size_t axis = 0; axis + 1 < shape.size(); ++axis) rows *= shape[axis];
  Tensor made = RunOn(*engine, [&](const ExecutionContext& context) -> absl::StatusOr<Tensor> {
    Tensor result;
    TensorView view = given;
    if (!target.is_valid()) {
      VOXCONV_ASSIGN_OR_RETURN(result, Tensor::Create(rows, shape.back(), dtype, context));
      view = result.view();
    }
    VOXCONV_RETURN_IF_ERROR(work(view, engine->workspace(), context));
    return result;
  });
  if (target.is_valid()) return target;
  return OutTensor(engine, std::move(made), shape, like);
}

// The same of a pass on a map. `work` is also given the dataflow, and what it has made of the map.
template <typename Work>
nb::object RunPass(const PyKernelMap& map, const std::string& dataflow,
                   const std::vector<int64_t>& shape, DType dtype, nb::handle out, nb::handle like,
                   const std::vector<ConstTensorView>& inputs, const Work& work) {
  const std::shared_ptr<const Dataflow> plugin = DataflowNamed(dataflow, *map.engine());
  const std::string kept_name = NameToKeep(dataflow);
  return RunInto(
      map.engine(), shape, dtype, out, like, inputs,
      [&](const TensorView& view, Workspace& workspace, const ExecutionContext& context) {
        return work(*plugin, map.KeptFor(kept_name), view, workspace, context);
      });
}

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_PASSES_H_
