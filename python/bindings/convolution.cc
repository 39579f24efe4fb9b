// SPDX-License-Identifier: Apache-2.0
#include "convolution.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernel_map.h"
#include "passes.h"
#include "voxconv/core/backend_support.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/status_macros.h"

namespace voxconv::python {
namespace {

// Products are computed in the features' own precision unless another one is named.
Precision PrecisionFor(const std::optional<std::string>& text, DType dtype) {
  if (!text.has_value()) return PrecisionOf(dtype);
  const Precision precision = ToPrecision(*text);
  if (StorageOf(precision) == dtype) return precision;
  ThrowValueError(
      absl::StrCat("precision '", *text, "': has no meaning for features of ", ToString(dtype)));
}

// A bias [C_out], or none, in float32 or as the features are.
class Bias {
 public:
  Bias(nb::handle object, Giver giver, int64_t c_out, DType dtype, Engine& engine) {
    if (object.is_none()) return;
    array_.emplace("bias", object, giver);
    CheckColumn(*array_, c_out, dtype, engine);
  }

  std::optional<ConstTensorView> view() const {
    if (!array_.has_value()) return std::nullopt;
    return array_->Matrix();
  }
  // Adds the bias. `own` receives its memory if it must be converted, and must outlive the run.
  absl::StatusOr<Epilogue> AsEpilogue(const ExecutionContext& context, Tensor& own) const {
    Epilogue epilogue;
    if (!array_.has_value()) return epilogue;
    const ConstTensorView bias = array_->Matrix();
    epilogue.shift = static_cast<const float*>(bias.data);
    if (bias.dtype == DType::kF32) return epilogue;
    VOXCONV_ASSIGN_OR_RETURN(own, Tensor::Create(1, bias.channels, DType::kF32, context));
    VOXCONV_RETURN_IF_ERROR(context.backend->tensor_ops().Convert(bias, own.view(), context));
    epilogue.shift = own.view().f32();
    return epilogue;
  }

 private:
  std::optional<InArray> array_;
};

// What a pass computes in, and where its result goes.
struct PassOptions {
  const std::string& dataflow;
  std::optional<std::string> precision = std::nullopt;
  nb::handle out = nb::none();
  Giver giver = Giver::kModule;
};

nb::object Convolve(nb::handle map_object, nb::handle features_object, nb::handle weights_object,
                    nb::handle bias_object, const PassOptions& options) {
  const auto& map = As<PyKernelMap>("map", map_object, "KernelMap");
  const InArray features("features", features_object, options.giver);
  const InArray weights("weights", weights_object, options.giver);
  const ConstTensorView x = SideMatrix(features, *map.engine(), map.map().num_inputs(), "inputs");
  const ConstTensorView w =
      WeightMatrix(weights, *map.engine(), map.map().num_offsets(), x.channels, x.dtype);
  const Bias bias(bias_object, options.giver, w.channels, x.dtype, *map.engine());
  std::vector<ConstTensorView> inputs = {x, w};
  if (bias.view().has_value()) inputs.push_back(*bias.view());
  const Precision precision = PrecisionFor(options.precision, x.dtype);
  return RunPass(map, options.dataflow, {map.map().num_outputs(), w.channels}, x.dtype, options.out,
                 features.object(), inputs,
                 [&](const Dataflow& plugin, const KeptPasses& kept, const TensorView& y,
                     Workspace& workspace, const ExecutionContext& context) -> absl::Status {
                   Tensor own;
                   VOXCONV_ASSIGN_OR_RETURN(const Epilogue epilogue, bias.AsEpilogue(context, own));
                   return RunConvolutionOnto(plugin, map.map(), x, w, precision, y, workspace,
                                             context, epilogue, kept);
                 });
}

nb::object InputGrad(nb::handle map_object, nb::handle grad_object, nb::handle weights_object,
                     const PassOptions& options) {
  const auto& map = As<PyKernelMap>("map", map_object, "KernelMap");
  const InArray grad("output_grad", grad_object, options.giver);
  const InArray weights("weights", weights_object, options.giver);
  const ConstTensorView dy = SideMatrix(grad, *map.engine(), map.map().num_outputs(), "outputs");
  const ConstTensorView w =
      WeightMatrix(weights, *map.engine(), map.map().num_offsets(), -1, dy.dtype);
  if (w.channels != dy.channels) {
    ThrowValueError(absl::StrCat("weights: shape ", weights.ShapeText(), "; output_grad has ",
                                 dy.channels, " channels"));
  }
  const Precision precision = PrecisionFor(options.precision, dy.dtype);
  return RunPass(
      map, options.dataflow, {map.map().num_inputs(), weights.shape(1)}, dy.dtype, options.out,
      grad.object(), {dy, w},
      [&](const Dataflow& plugin, const KeptPasses& kept, const TensorView& dx,
          Workspace& workspace, const ExecutionContext& context) {
        return RunInputGrad(plugin, map.map(), {dy, w, dx}, precision, workspace, context, kept);
      });
}

nb::object WeightGrad(nb::handle map_object, nb::handle features_object, nb::handle grad_object,
                      const PassOptions& options) {
  const auto& map = As<PyKernelMap>("map", map_object, "KernelMap");
  const InArray features("features", features_object, options.giver);
  const InArray grad("output_grad", grad_object, options.giver);
  const ConstTensorView x = SideMatrix(features, *map.engine(), map.map().num_inputs(), "inputs");
  const ConstTensorView dy = SideMatrix(grad, *map.engine(), map.map().num_outputs(), "outputs");
  if (x.dtype != dy.dtype) {
    ThrowValueError(absl::StrCat("output_grad: dtype ", ToString(dy.dtype), "; ", ToString(x.dtype),
                                 " is needed, as of the features"));
  }
  const Precision precision = PrecisionFor(options.precision, x.dtype);
  return RunPass(
      map, options.dataflow, {map.map().num_offsets(), x.channels, dy.channels}, x.dtype,
      options.out, features.object(), {x, dy},
      [&](const Dataflow& plugin, const KeptPasses& kept, const TensorView& dw,
          Workspace& workspace, const ExecutionContext& context) {
        return RunWeightGrad(plugin, map.map(), {x, dy, dw}, precision, workspace, context, kept);
      });
}

// Refuses a map that was made for other voxels than those of x.
void CheckVoxels(const PyKernelMap& map, const PySparseTensor& x) {
  if (x.set()->size() != map.map().num_inputs() ||
      x.set()->tensor_stride() != map.geometry().input_tensor_stride()) {
    ThrowValueError(absl::StrCat("map: made for ", map.map().num_inputs(), " voxels of stride ",
                                 ToString(map.geometry().input_tensor_stride()), "; x has ",
                                 x.set()->size(), " of stride ",
                                 ToString(x.set()->tensor_stride())));
  }
  if (x.set() == map.inputs()) return;
  const int64_t differs =
      RunOn(*x.engine(), [&](const ExecutionContext& context) -> absl::StatusOr<int64_t> {
        VOXCONV_ASSIGN_OR_RETURN(const auto theirs, CopyToHost(map.inputs()->rows(), context));
        VOXCONV_ASSIGN_OR_RETURN(const auto ours, CopyToHost(x.set()->rows(), context));
        return std::mismatch(ours.begin(), ours.end(), theirs.begin()).first - ours.begin();
      });
  if (differs == x.set()->size()) return;
  ThrowValueError(absl::StrCat("map: made for other voxels than x has: row ", differs, " differs"));
}

PySparseTensor Conv(nb::handle x_object, nb::handle weights_object, nb::handle kernel,
                    nb::handle stride, nb::handle dilation, nb::handle padding, nb::handle kind,
                    nb::handle rule, nb::handle outputs, nb::handle bias_object,
                    nb::handle map_object, const std::string& mapping, const std::string& dataflow,
                    const std::string& output_coords,
                    const std::optional<std::string>& precision_text) {
  const auto& x = As<PySparseTensor>("x", x_object, "SparseTensor");
  const LayerArguments layer = {kind, rule, kernel, stride, dilation, padding};
  if (!map_object.is_none() && (layer.any() || !outputs.is_none())) {
    ThrowValueError("map: has the layer's geometry and outputs, which must not be given again");
  }
  const InArray weights("weights", weights_object);
  weights.CheckOn(*x.engine());
  const PyKernelMap map = map_object.is_none() ? QueryMap(x, layer, outputs, mapping, output_coords)
                                               : As<PyKernelMap>("map", map_object, "KernelMap");
  if (!Fit(*map.engine(), *x.engine())) {
    ThrowValueError("map: lies on another device or stream than x");
  }
  CheckVoxels(map, x);
  const ConstTensorView w = WeightMatrix(weights, *map.engine(), map.map().num_offsets(),
                                         x.matrix().channels, x.matrix().dtype);
  const Bias bias(bias_object, Giver::kUser, w.channels, x.matrix().dtype, *x.engine());
  const Precision precision = PrecisionFor(precision_text, x.matrix().dtype);
  Engine& engine = *map.engine();
  const std::shared_ptr<const Dataflow> plugin = DataflowNamed(dataflow, engine);
  const std::string kept_name = NameToKeep(dataflow);
  Tensor y = RunOn(engine, [&](const ExecutionContext& context) -> absl::StatusOr<Tensor> {
    Tensor own;
    VOXCONV_ASSIGN_OR_RETURN(const Epilogue epilogue, bias.AsEpilogue(context, own));
    return RunConvolution(*plugin, map.map(), x.matrix(), w, precision, engine.workspace(), context,
                          epilogue, map.KeptFor(kept_name));
  });
  return {map.engine(), map.outputs(), std::move(y), x.features()};
}

// The passes as voxconv.torch calls them. Arguments by place cost the host less.
void DefineModulePasses(nb::module_& module) {
  module.def(
      "_convolve",
      [](nb::handle map, nb::handle features, nb::handle weights, nb::handle bias,
         const std::string& dataflow) {
        return Convolve(map, features, weights, bias, {.dataflow = dataflow});
      },
      nb::arg("map").none(), nb::arg("features").none(), nb::arg("weights").none(),
      nb::arg("bias").none(), nb::arg("dataflow"), "convolve, for voxconv.torch.");
  module.def(
      "_input_grad",
      [](nb::handle map, nb::handle output_grad, nb::handle weights, const std::string& dataflow) {
        return InputGrad(map, output_grad, weights, {.dataflow = dataflow});
      },
      nb::arg("map").none(), nb::arg("output_grad").none(), nb::arg("weights").none(),
      nb::arg("dataflow"), "input_grad, for voxconv.torch.");
  module.def(
      "_weight_grad",
      [](nb::handle map, nb::handle features, nb::handle output_grad, const std::string& dataflow) {
        return WeightGrad(map, features, output_grad, {.dataflow = dataflow});
      },
      nb::arg("map").none(), nb::arg("features").none(), nb::arg("output_grad").none(),
      nb::arg("dataflow"), "weight_grad, for voxconv.torch.");
}

}  // namespace

void DefineConvolution(nb::module_& module) {
  DefineModulePasses(module);
  module.def(
      "conv", &Conv, nb::arg("x").none(), nb::arg("weights").none(), nb::kw_only(),
      nb::arg("kernel") = nb::none(), nb::arg("stride") = nb::none(),
      nb::arg("dilation") = nb::none(), nb::arg("padding") = nb::none(),
      nb::arg("kind") = nb::none(), nb::arg("rule") = nb::none(), nb::arg("outputs") = nb::none(),
      nb::arg("bias") = nb::none(), nb::arg("map") = nb::none(), nb::arg("mapping") = "hash",
      nb::arg("dataflow") = "implicit_gemm", nb::arg("output_coords") = "sort_unique",
      nb::arg("precision") = nb::none(),
      nb::sig("def conv(x: SparseTensor, weights: typing.Any, *, "
              "kernel: int | tuple[int, int, int] | None = None, "
              "stride: int | tuple[int, int, int] | None = None, "
              "dilation: int | tuple[int, int, int] | None = None, "
              "padding: int | tuple[int, int, int] | None = None, kind: str | None = None, "
              "rule: str | None = None, outputs: SparseTensor | None = None, "
              "bias: typing.Any | None = None, map: KernelMap | None = None, "
              "mapping: str = 'hash', dataflow: str = 'implicit_gemm', "
              "output_coords: str = 'sort_unique', precision: str | None = None) -> SparseTensor"),
      R"(One sparse convolution: output voxels, kernel map and features.

Args:
    x: the input, [N_in, C_in].
    weights: [K, C_in, C_out] of x's dtype and device, contiguous. Offsets are in voxconv's order: x
        slowest, z fastest.
    kernel, stride, dilation, padding, kind, rule, outputs: the layer, as for KernelMap.
    bias: [C_out], float32 or of x's dtype.
    map: a KernelMap of x's voxels, row by row; then nothing is searched, and the layer is the map's.
    mapping, dataflow, output_coords: specs of plugins (voxconv.list_plugins).
    precision: what products are computed in: the dtype's own, or "tf32" for float32 on CUDA.

Returns:
    The output, [N_out, C_out] of x's dtype, on its device and in arrays of its framework. A
    submanifold layer shares x's coordinates.

Raises:
    ValueError: an argument does not fit, or a plugin is unknown.
    NotImplementedError: a plugin gives its reason.
    MemoryError: the memory does not suffice.

Without `map`, the host may wait for a CUDA device, as KernelMap does. With a map whose voxels x shares
(it was made of x, or x is its in_tensor), the host does not wait. The voxels of another map are compared
with x's, for which it waits.

>>> import numpy as np, voxconv
>>> x = voxconv.load("scene:sphere?n=1000", channels=4)
>>> y = voxconv.conv(x, np.ones((8, 4, 16), np.float32), kernel=2, stride=2)
>>> y.stride, y.channels
((2, 2, 2), 16)
)");

  module.def(
      "convolve",
      [](nb::handle map, nb::handle features, nb::handle weights, nb::handle bias,
         const std::string& dataflow, const std::optional<std::string>& precision, nb::handle out) {
        return Convolve(map, features, weights, bias, {dataflow, precision, out, Giver::kUser});
      },
      nb::arg("map").none(), nb::arg("features").none(), nb::arg("weights").none(), nb::kw_only(),
      nb::arg("bias") = nb::none(), nb::arg("dataflow") = "implicit_gemm",
      nb::arg("precision") = nb::none(), nb::arg("out") = nb::none(),
      nb::sig("def convolve(map: KernelMap, features: typing.Any, weights: typing.Any, *, "
              "bias: typing.Any | None = None, dataflow: str = 'implicit_gemm', "
              "precision: str | None = None, out: typing.Any | None = None) -> typing.Any"),
      R"(The forward pass on a map: y[q] is the sum of x[p] w[k] over the pairs (p, q, k).

Args:
    map: the map.
    features: x, [N_in, C_in]; float32, on CUDA also float16 and bfloat16.
    weights: w, [K, C_in, C_out], of the same dtype and device.
    bias: [C_out] on the same device, float32 or of the features' dtype, added to each y[q].
    dataflow, precision: as for conv.
    out: an array [N_out, C_out] that receives y. It must not overlap an argument. Autograd of PyTorch
        learns that it is written to. Arrays of JAX are immutable, and are refused.

Returns:
    y, [N_out, C_out]: `out`, or a new array that the caller owns. Does not wait for the device,
    unless the dataflow must count pairs.

Raises:
    ValueError, NotImplementedError, MemoryError: as conv.)");

  module.def(
      "input_grad",
      [](nb::handle map, nb::handle output_grad, nb::handle weights, const std::string& dataflow,
         const std::optional<std::string>& precision, nb::handle out) {
        return InputGrad(map, output_grad, weights, {dataflow, precision, out, Giver::kUser});
      },
      nb::arg("map").none(), nb::arg("output_grad").none(), nb::arg("weights").none(),
      nb::kw_only(), nb::arg("dataflow") = "implicit_gemm", nb::arg("precision") = nb::none(),
      nb::arg("out") = nb::none(),
      nb::sig("def input_grad(map: KernelMap, output_grad: typing.Any, weights: typing.Any, *, "
              "dataflow: str = 'implicit_gemm', precision: str | None = None, "
              "out: typing.Any | None = None) -> typing.Any"),
      R"(The gradient of the features: dx[p] is the sum of dy[q] transposed(w[k]).

Args:
    map: the forward pass's map.
    output_grad: dy, [N_out, C_out].
    weights: w, [K, C_in, C_out].
    dataflow, precision, out: as for convolve; `out` is [N_in, C_in].

Returns:
    dx, [N_in, C_in]. Raises what convolve raises.)");

  module.def(
      "weight_grad",
      [](nb::handle map, nb::handle features, nb::handle output_grad, const std::string& dataflow,
         const std::optional<std::string>& precision, nb::handle out) {
        return WeightGrad(map, features, output_grad, {dataflow, precision, out, Giver::kUser});
      },
      nb::arg("map").none(), nb::arg("features").none(), nb::arg("output_grad").none(),
      nb::kw_only(), nb::arg("dataflow") = "implicit_gemm", nb::arg("precision") = nb::none(),
      nb::arg("out") = nb::none(),
      nb::sig("def weight_grad(map: KernelMap, features: typing.Any, output_grad: typing.Any, *, "
              "dataflow: str = 'implicit_gemm', precision: str | None = None, "
              "out: typing.Any | None = None) -> typing.Any"),
      R"(The gradient of the weights: dw[k] is the sum of transposed(x[p]) dy[q].

Args:
    map: the forward pass's map.
    features: x, [N_in, C_in].
    output_grad: dy, [N_out, C_out].
    dataflow, precision, out: as for convolve; `out` is [K, C_in, C_out].

Returns:
    dw, [K, C_in, C_out]. Raises what convolve raises.)");
}

}  // namespace voxconv::python
