// SPDX-License-Identifier: Apache-2.0
#include "sparse_tensor.h"

#include <nanobind/stl/string.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "arguments.h"
#include "voxconv/core/voxel_ops.h"

namespace voxconv::python {
namespace {

PySparseTensor MakeSparseTensor(nb::handle coords, nb::handle features, nb::handle stride) {
  const Int3 tensor_stride = ToInt3("stride", stride);
  const InArray table("coords", coords);
  CheckCoordinates(table);
  const InArray matrix("features", features);
  Engine& engine = *matrix.engine();
  VoxelOps* const ops = engine.backend().voxel_ops();
  if (engine.backend().asynchronous() && Fit(*table.engine(), engine) && ops != nullptr) {
    CoordinateSetPtr set = RunOn(engine, [&](const ExecutionContext& context) {
      return ops->AdmitCoordinates(static_cast<const Coordinate*>(table.data()), table.shape(0),
                                   tensor_stride, context);
    });
    return {HoldSet(matrix.engine(), std::move(set)), matrix};
  }
  const std::vector<Coordinate> rows = ReadCoordinates(table);
  CoordinateSetPtr set = RunOn(*matrix.engine(), [&](const ExecutionContext& context) {
    return CoordinateSet::Create(rows, tensor_stride, context);
  });
  return {HoldSet(matrix.engine(), std::move(set)), matrix};
}

// A view of the set's rows, which keeps the set.
nb::object CoordsOf(const PySparseTensor& x) {
  const Array<Coordinate>& rows = x.set()->rows();
  return ReadOnlyArray(rows.data(), {rows.size(), 4}, nb::dtype<int32_t>(),
                       x.engine()->backend().device(), Keep(x.set()));
}

std::string ReprOf(const PySparseTensor& x) {
  return absl::StrCat("SparseTensor(", x.set()->size(), " voxels, ", x.matrix().channels,
                      " channels, ", ToString(x.matrix().dtype), ", stride ",
                      ToString(x.set()->tensor_stride()), ", ", DeviceName(*x.engine()), ")");
}

}  // namespace

CoordinateSetPtr HoldSet(const EnginePtr& engine, CoordinateSetPtr set) {
  const CoordinateSet* pointer = set.get();
  return {Hold(engine, std::move(set)), pointer};
}

PySparseTensor::PySparseTensor(CoordinateSetPtr set, const InArray& features)
    : engine_(features.engine()), set_(std::move(set)), features_(features.object()) {
  features.CheckRank(2, "[N, C]");
  matrix_ = features.Matrix();
  if (matrix_.rows != set_->size()) {
    ThrowValueError(absl::StrCat(features.name(), ": shape ", features.ShapeText(), "; ",
                                 set_->size(), " rows are needed, one for each coordinate"));
  }
}

PySparseTensor::PySparseTensor(EnginePtr engine, CoordinateSetPtr set, Tensor features,
                               nb::handle like)
    : engine_(std::move(engine)), set_(std::move(set)), matrix_(features.view()) {
  features_ = OutTensor(engine_, std::move(features), {matrix_.rows, matrix_.channels}, like);
}

PySparseTensor::PySparseTensor(EnginePtr engine, SparseTensor result, nb::handle like)
    : engine_(std::move(engine)), matrix_(result.features().view()) {
  VOXCONV_CHECK(result.coordinates() != nullptr);
  const auto held = Hold(engine_, std::move(result));
  set_ = {held, (*held)->coordinates().get()};
  features_ = OutArray(const_cast<void*>(matrix_.data), {matrix_.rows, matrix_.channels},
                       DLPackOf(matrix_.dtype), matrix_.device, Keep(held), like);
}

void DefineSparseTensor(nb::module_& module) {
  nb::class_<PySparseTensor>(module, "SparseTensor", R"(Voxels and their features.

Row i of the features belongs to row i of the coordinates. A tensor is immutable, but for the
features, whose memory is the caller's.)")
      .def(
          "__init__",
          [](PySparseTensor* self, nb::handle coords, nb::handle features, nb::handle stride) {
            new (self) PySparseTensor(MakeSparseTensor(coords, features, stride));
          },
          nb::arg("coords").none(), nb::arg("features").none(), nb::arg("stride") = 1,
          nb::sig("def __init__(self, coords: typing.Any, features: typing.Any, stride: int | "
                  "tuple[int, int, int] = 1) -> None"),
          R"(Makes a tensor of two arrays.

Args:
    coords: int32 [N, 4]. Columns are batch (0..511), x, y and z (-131072..131071), in units of the
        finest voxel. Rows are unique, and positions are multiples of `stride`. They are checked and
        copied.
    features: float32 [N, C]; on CUDA also float16 and bfloat16. Contiguous. They are not copied:
        the tensor reads the caller's memory, and keeps it alive. Their device is the tensor's.
    stride: the tensor stride, one whole number or three for x, y, z.

Raises:
    ValueError: a coordinate, a shape or a dtype does not fit, or a row occurs twice.
    TypeError: an argument is no array.

Coordinates beside features on CUDA are checked there; the host waits once, for their bounds. Those on
another device or stream than the features are copied to the host, which waits for them.

>>> import numpy as np, voxconv
>>> coords = np.array([[0, 0, 0, 0], [0, 0, 0, 1]], np.int32)
>>> voxconv.SparseTensor(coords, np.ones((2, 4), np.float32))
SparseTensor(2 voxels, 4 channels, f32, stride 1, cpu)
)")
      .def_prop_ro("coords", &CoordsOf, nb::sig("def coords(self) -> typing.Any"),
                   "int32 [N, 4], read-only: batch, x, y, z. A view; nothing is copied.")
      .def_prop_ro(
          "features", [](const PySparseTensor& x) { return x.features(); },
          nb::sig("def features(self) -> typing.Any"),
          "[N, C]: the array that the tensor was made of, or that holds the result.")
      .def_prop_ro(
          "stride", [](const PySparseTensor& x) { return ToTuple(x.set()->tensor_stride()); },
          nb::sig("def stride(self) -> tuple[int, int, int]"),
          "The tensor stride along x, y and z.")
      .def_prop_ro(
          "channels", [](const PySparseTensor& x) { return x.matrix().channels; },
          "C, the number of features of a voxel.")
      .def_prop_ro(
          "batch_size", [](const PySparseTensor& x) { return x.set()->num_batches(); },
          "A number greater than every batch index.")
      .def_prop_ro(
          "device", [](const PySparseTensor& x) { return DeviceName(*x.engine()); },
          "\"cpu\" or \"cuda:INDEX\".")
      .def(
          "with_features",
          [](const PySparseTensor& x, nb::handle features) {
            const InArray matrix("features", features);
            matrix.CheckOn(*x.engine());
            return PySparseTensor(x.set(), matrix);
          },
          nb::arg("features").none(),
          nb::sig("def with_features(self, features: typing.Any) -> SparseTensor"),
          R"(Other features on the same voxels, which are shared and not checked again.

Args:
    features: [N, C], as of the constructor, on this tensor's device.

Raises:
    ValueError: the shape, dtype or device does not fit.)")
      .def(
          "_shares_voxels",
          [](const PySparseTensor& x, nb::handle other) {
            return x.set().get() == As<PySparseTensor>("other", other, "SparseTensor").set().get();
          },
          nb::arg("other").none(), nb::sig("def _shares_voxels(self, other: SparseTensor) -> bool"),
          "Whether both have the same set of coordinates.")
      .def(
          "__reduce_ex__",
          [](nb::handle self, nb::handle) {
            // A copy of the coordinates: those of the CPU are read-only, and belong to this tensor.
            nb::object coords = self.attr("coords");
            for (const char* method : {"clone", "copy"}) {
              if (!nb::hasattr(coords, method)) continue;
              coords = coords.attr(method)();
              break;
            }
            return nb::make_tuple(
                self.type(), nb::make_tuple(coords, self.attr("features"), self.attr("stride")));
          },
          "For copies and pickles, which are tensors of their own.")
      .def("__len__", [](const PySparseTensor& x) { return x.set()->size(); })
      .def("__repr__", &ReprOf);
}

}  // namespace voxconv::python
