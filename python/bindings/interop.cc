// SPDX-License-Identifier: Apache-2.0
#include "interop.h"

#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "arguments.h"
#include "array.h"
#include "voxconv/io/convention.h"
#include "voxconv/io/npy.h"
#include "voxconv/training/weights.h"

namespace voxconv::python {
namespace {

// A layer whose weights are converted. The engine must have it: MakeGeometry says which do not.
// `strided` stands for both directions, whose bounds and padding do not change the weights.
void CheckLayer(Convention convention, const std::string& kind, const Int3& kernel,
                const Int3& stride, const Int3& dilation) {
  const ConvKind layer = ValueOf(ParseConvKind(kind));
  const voxconv::LayerArguments arguments{
      .kind = layer == ConvKind::kStrided ? ConvKind::kInverse : layer,
      .kernel = AxesToXyz(convention, kernel),
      .stride = AxesToXyz(convention, stride),
      .dilation = AxesToXyz(convention, dilation)};
  ThrowIfError(MakeGeometry(convention, arguments).status());
}

nb::object WeightsFrom(const std::string& convention_text, nb::handle weights, nb::handle kernel,
                       nb::handle stride, nb::handle dilation, const std::string& kind) {
  const Convention convention = ValueOf(ParseConvention(convention_text));
  const Int3 size = ToInt3("kernel", kernel), step = ToInt3("stride", stride);
  CheckLayer(convention, kind, size, step, ToInt3("dilation", dilation));
  const NpyArray array = HostFloats("weights", weights);
  Weights converted = ValueOf(WeightsToVoxconv(convention, size, array, step));
  auto values = std::make_shared<std::vector<float>>(std::move(converted.values));
  const auto per_offset = converted.c_in * converted.c_out;
  const auto volume = static_cast<int64_t>(values->size()) / per_offset;
  float* data = values->data();
  return OutArray(data, {volume, converted.c_in, converted.c_out}, DLPackOf(DType::kF32), Device{},
                  Keep(std::move(values)), {});
}

nb::list Order(const std::string& convention, nb::handle kernel) {
  // A kernel that voxconv has no geometry for would be too large to list.
  const Int3 size = ToInt3("kernel", kernel);
  ThrowIfError(ConvGeometry::Create({.kernel = size}).status());
  nb::list order;
  for (const int k : OffsetOrder(ValueOf(ParseConvention(convention)), size)) order.append(k);
  return order;
}

nb::tuple Padding(nb::handle padding, nb::handle kernel, nb::handle dilation) {
  const Int3 p = ToInt3("padding", padding), k = ToInt3("kernel", kernel);
  const Int3 d = ToInt3("dilation", dilation);
  Int3 result;
  for (int axis = 0; axis < 3; ++axis) result[axis] = PaddingFromSpconv(p[axis], k[axis], d[axis]);
  return ToTuple(result);
}

// {name: (dtype, shape, bytes)}: NumPy makes arrays of them, which lacks bfloat16.
nb::dict ReadFile(nb::handle path_object) {
  const std::string path = ToPath("path", path_object);
  auto read = [&] {
    const nb::gil_scoped_release released;
    return ReadWeights(path, NpzOptions{});
  }();
  nb::dict arrays;
  for (const SafeTensor& tensor : ValueOf(std::move(read)).tensors) {
    nb::list shape;
    for (const int64_t size : tensor.shape) shape.append(size);
    arrays[tensor.name.c_str()] = nb::make_tuple(
        tensor.dtype, nb::tuple(shape), nb::bytearray(tensor.bytes.data(), tensor.bytes.size()));
  }
  return arrays;
}

}  // namespace

void DefineInterop(nb::module_& module) {
  module.def("weights_from", &WeightsFrom, nb::arg("convention"), nb::arg("weights").none(),
             nb::arg("kernel").none(), nb::kw_only(), nb::arg("stride") = 1,
             nb::arg("dilation") = 1, nb::arg("kind") = "submanifold",
             nb::sig("def weights_from(convention: str, weights: typing.Any, "
                     "kernel: int | tuple[int, int, int], *, "
                     "stride: int | tuple[int, int, int] = 1, "
                     "dilation: int | tuple[int, int, int] = 1, "
                     "kind: str = 'submanifold') -> typing.Any"),
             R"(The weights of one convolution of another engine, in voxconv's order.

Args:
    convention: "spconv" ([C_out, kz, ky, kx, C_in]), "torchsparse" or "minkowski"
        ([K, C_in, C_out]; [C_in, C_out] if K is 1), or "voxconv".
    weights: float32 on the CPU. A copy is made.
    kernel, stride, dilation: those of the layer; one whole number, or three for x, y, z. SpConv
        reads a kernel of 1 with stride 1 as a view [C_in, C_out], and one with another stride not.
    kind: "submanifold", "strided", "inverse" or "transposed".

Returns:
    A NumPy array, float32 [K, C_in, C_out], offsets with x slowest and z fastest.

Raises:
    ValueError: the shape is not the convention's for this kernel, or the engine has no such layer.
    NotImplementedError: voxconv does not cover this layer of the engine.

>>> import numpy as np
>>> from voxconv import interop
>>> interop.weights_from("spconv", np.ones((16, 3, 3, 3, 4), np.float32), 3).shape
(27, 4, 16)
)");
  module.def("offset_order", &Order, nb::arg("convention"), nb::arg("kernel").none(),
             nb::sig("def offset_order(convention: str, kernel: int | tuple[int, int, int]) -> "
                     "list[int]"),
             R"(order[j] is voxconv's index of the convention's kernel offset j.

Args:
    convention, kernel: as for weights_from.

Raises:
    ValueError: an unknown convention, or a kernel that is no kernel.

>>> from voxconv import interop
>>> interop.offset_order("minkowski", (2, 1, 2))
[0, 2, 1, 3]
)");
  module.def("padding_from_spconv", &Padding, nb::arg("padding").none(), nb::arg("kernel").none(),
             nb::arg("dilation") = 1,
             nb::sig("def padding_from_spconv(padding: int | tuple[int, int, int], "
                     "kernel: int | tuple[int, int, int], "
                     "dilation: int | tuple[int, int, int] = 1) -> tuple[int, int, int]"),
             R"(The padding of a strided layer (rule "dilate") for that of SpConv or TorchSparse.

These count kernel offsets from zero; voxconv centres those of odd kernels.

Args:
    padding, kernel, dilation: one whole number, or three for x, y, z.

Raises:
    ValueError: no whole numbers.

>>> from voxconv import interop
>>> interop.padding_from_spconv(1, 3)
(0, 0, 0)
)");
  module.def("_read_weights", &ReadFile, nb::arg("path").none(),
             nb::sig("def _read_weights(path: str | os.PathLike[str]) -> dict[str, tuple[str, "
                     "tuple[int, ...], bytearray]]"),
             "The arrays of a .safetensors or .npz file: dtype, shape and bytes by name.");
}

}  // namespace voxconv::python
