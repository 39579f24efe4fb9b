// SPDX-License-Identifier: Apache-2.0
#include "pooling.h"

#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernel_map.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/io/convention.h"

namespace voxconv::python {
namespace {

Pooling ToPooling(const std::string& mode, const std::string& convention = "voxconv") {
  if (convention == "voxconv") return ValueOf(PoolingOf(Convention::kVoxconv, mode));
  if (convention == "spconv") return ValueOf(PoolingOf(Convention::kSpconv, mode));
  ThrowValueError(absl::StrCat("convention '", convention, "': allowed are voxconv and spconv"));
}

PySparseTensor Pool(nb::handle x_object, const std::string& mode_text, nb::handle kernel,
                    nb::handle stride, nb::handle padding, nb::handle kind, nb::handle rule,
                    const std::string& mapping, const std::string& output_coords,
                    const std::string& convention) {
  const auto& x = As<PySparseTensor>("x", x_object, "SparseTensor");
  const Pooling pooling = ToPooling(mode_text, convention);
  const PyKernelMap map = QueryMap(x, {kind, rule, kernel, stride, nb::none(), padding}, nb::none(),
                                   mapping, output_coords);
  Tensor y = RunOn(*x.engine(), [&](const ExecutionContext& context) -> absl::StatusOr<Tensor> {
    VOXCONV_ASSIGN_OR_RETURN(const KernelMap pairs,
                             context.backend->map_ops().To(MapForm::kPairs, map.map(), context));
    VOXCONV_ASSIGN_OR_RETURN(Tensor result, Tensor::Create(pairs.num_outputs(), x.matrix().channels,
                                                           x.matrix().dtype, context));
    TensorOps& ops = context.backend->tensor_ops();
    VOXCONV_RETURN_IF_ERROR(ops.Pool(pairs, pooling.mode, x.matrix(), result.view(),
                                     /*switches=*/nullptr, context));
    if (pooling.from_zero) {
      VOXCONV_RETURN_IF_ERROR(
          ops.ScaleShift(result.view(), nullptr, nullptr, /*relu=*/true, result.view(), context));
    }
    return result;
  });
  return {x.engine(), map.outputs(), std::move(y), x.features()};
}

nb::object GlobalPool(nb::handle x_object, const std::string& mode_text) {
  const auto& x = As<PySparseTensor>("x", x_object, "SparseTensor");
  const PoolMode mode = ToPooling(mode_text).mode;
  const int64_t samples = x.set()->num_batches(), channels = x.matrix().channels;
  Tensor y = RunOn(*x.engine(), [&](const ExecutionContext& context) -> absl::StatusOr<Tensor> {
    VOXCONV_ASSIGN_OR_RETURN(Tensor result,
                             Tensor::Create(samples, channels, x.matrix().dtype, context));
    VOXCONV_RETURN_IF_ERROR(context.backend->tensor_ops().GlobalPool(*x.set(), mode, x.matrix(),
                                                                     result.view(), context));
    return result;
  });
  return OutTensor(x.engine(), std::move(y), {samples, channels}, x.features());
}

}  // namespace

void DefinePooling(nb::module_& module) {
  module.def(
      "pool", &Pool, nb::arg("x").none(), nb::arg("mode") = "max", nb::kw_only(),
      nb::arg("kernel") = 2, nb::arg("stride") = 2, nb::arg("padding") = nb::none(),
      nb::arg("kind") = nb::none(), nb::arg("rule") = nb::none(), nb::arg("mapping") = "hash",
      nb::arg("output_coords") = "sort_unique", nb::arg("convention") = "voxconv",
      nb::sig("def pool(x: SparseTensor, mode: str = 'max', *, "
              "kernel: int | tuple[int, int, int] = 2, stride: int | tuple[int, int, int] = 2, "
              "padding: int | tuple[int, int, int] | None = None, kind: str | None = None, "
              "rule: str | None = None, mapping: str = 'hash', "
              "output_coords: str = 'sort_unique', convention: str = 'voxconv') -> SparseTensor"),
      R"(Pools the voxels in a window.

Args:
    x: the input, [N_in, C].
    mode: "max", "sum", "average" (divides by the kernel's volume) or "average_present" (divides by
        the number of voxels in the window).
    kernel, stride, padding, kind, rule, mapping, output_coords: as for KernelMap.
    convention: how a window's voxels become one. With "spconv" as SpConv 2.3.8 does: "max" is 0
        where all are negative, and "average" divides by the number of voxels in the window; it has
        no other modes. The windows stay those of the arguments before.

Returns:
    [N_out, C] of x's dtype, on its device and in an array of its framework.

Raises:
    ValueError, NotImplementedError, MemoryError: as KernelMap.

On CUDA the host waits for the device: pooling reads pairs, which must be counted.

>>> import voxconv
>>> x = voxconv.load("scene:sphere?n=1000")
>>> voxconv.pool(x, "average_present").stride
(2, 2, 2)
)");
  module.def("global_pool", &GlobalPool, nb::arg("x").none(), nb::arg("mode") = "average_present",
             nb::sig("def global_pool(x: SparseTensor, mode: str = 'average_present') -> "
                     "typing.Any"),
             R"(Pools all voxels of each batch sample.

Args:
    x: the input, [N, C].
    mode: "max", "sum" or "average_present".

Returns:
    [x.batch_size, C]: a row for each sample; 0 for a sample without voxels. May wait for the
    device.

Raises:
    ValueError: another mode.)");
}

}  // namespace voxconv::python
