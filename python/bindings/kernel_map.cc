// SPDX-License-Identifier: Apache-2.0
#include "kernel_map.h"

#include <nanobind/stl/string.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/kernel_map_file.h"

namespace voxconv::python {
namespace {

// Only an inverse layer is told its outputs: they are the inputs of the strided layer.
CoordinateSetPtr GivenOutputs(const ConvGeometry& geometry, nb::handle outputs, Engine& engine) {
  if (geometry.kind() != ConvKind::kInverse) {
    if (outputs.is_none()) return nullptr;
    ThrowValueError(absl::StrCat("outputs: has no meaning with kind ", ToString(geometry.kind()),
                                 "; it is for inverse layers"));
  }
  if (outputs.is_none()) {
    ThrowValueError(
        "outputs: is missing; an inverse layer needs the SparseTensor whose voxels are "
        "its outputs");
  }
  const auto& tensor = As<PySparseTensor>("outputs", outputs, "SparseTensor");
  if (!Fit(*tensor.engine(), engine)) {
    ThrowValueError("outputs: lies on another device or stream than the input");
  }
  if (tensor.set()->tensor_stride() != geometry.output_tensor_stride()) {
    ThrowValueError(absl::StrCat("outputs: tensor stride ", ToString(tensor.set()->tensor_stride()),
                                 "; ", ToString(geometry.output_tensor_stride()), " is needed"));
  }
  return tensor.set();
}

KernelMap Converted(const PyKernelMap& map, MapForm form) {
  return RunOn(*map.engine(), [&](const ExecutionContext& context) -> absl::StatusOr<KernelMap> {
    VOXCONV_ASSIGN_OR_RETURN(KernelMap converted,
                             context.backend->map_ops().To(form, map.map(), context));
    VOXCONV_RETURN_IF_ERROR(converted.EnsureCounts(context));
    return converted;
  });
}

PyKernelMap InForm(const PyKernelMap& map, const std::string& form) {
  for (const MapForm known : {MapForm::kPairs, MapForm::kNeighbourTable}) {
    if (form != ToString(known)) continue;
    return {map.engine(), map.geometry(), map.inputs(), map.outputs(), Converted(map, known)};
  }
  ThrowValueError(absl::StrCat("form '", form, "': allowed are ", ToString(MapForm::kPairs),
                               " and ", ToString(MapForm::kNeighbourTable)));
}

// QueryKernelMap with the index that `kept` has of the plugin, or with one that it keeps if it is
// small. Layers of one network query the same voxels one after the other. Null: an index is built.
absl::StatusOr<KernelMap> Query(const std::shared_ptr<const Mapping>& plugin,
                                const MapProblem& problem, KeptIndex* kept,
                                const ExecutionContext& context) {
  constexpr int64_t kMostBytes = 32 << 20;
  const ConvGeometry& geometry = problem.geometry;
  const bool fits = problem.inputs.tensor_stride() == geometry.input_tensor_stride() &&
                    plugin->Supports(geometry).ok;
  if (kept == nullptr || !fits) return QueryKernelMap(*plugin, problem, context);
  if (kept->mapping != plugin) {
    VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<MapIndex> index,
                             plugin->BuildIndex(problem.inputs, context));
    if (index->bytes() > kMostBytes) return plugin->Query(*index, problem, context);
    *kept = {plugin, std::move(index)};
  }
  return plugin->Query(*kept->index, problem, context);
}

// A host array of its own, [K + 1].
nb::object OffsetPtr(const KernelMap& map) {
  auto counts = std::make_shared<const std::vector<int64_t>>(map.offset_ptr());
  const int64_t* data = counts->data();
  const auto size = static_cast<int64_t>(counts->size());
  return ReadOnlyArray(data, {size}, nb::dtype<int64_t>(), Device{}, Keep(std::move(counts)));
}

nb::tuple Pairs(const PyKernelMap& self) {
  const auto held = Hold(self.engine(), Converted(self, MapForm::kPairs));
  const KernelMap& map = **held;
  const auto array = [&](const SharedArray<int32_t>& rows) {
    return ReadOnlyArray(rows.data(), {rows.size()}, nb::dtype<int32_t>(),
                         self.engine()->backend().device(), Keep(held));
  };
  return nb::make_tuple(array(map.pairs().in), array(map.pairs().out), OffsetPtr(map));
}

nb::object Table(const PyKernelMap& self) {
  const auto held = Hold(self.engine(), Converted(self, MapForm::kNeighbourTable));
  const KernelMap& map = **held;
  return ReadOnlyArray(map.table().table.data(), {map.num_outputs(), map.num_offsets()},
                       nb::dtype<int32_t>(), self.engine()->backend().device(), Keep(held));
}

nb::object Rows(const PyKernelMap& self, const CoordinateSetPtr& set) {
  return ReadOnlyArray(set->rows().data(), {set->size(), 4}, nb::dtype<int32_t>(),
                       self.engine()->backend().device(), Keep(set));
}

void Save(const PyKernelMap& self, nb::handle file) {
  const std::string path = ToPath("path", file);
  RunOn(*self.engine(), [&](const ExecutionContext& context) {
    return WriteKernelMap(path, self.geometry(), *self.inputs(), *self.outputs(), self.map(),
                          context);
  });
}

PyKernelMap Load(nb::handle file, const std::string& device) {
  const std::string path = ToPath("path", file);
  const EnginePtr engine = EngineNamed(device);
  SavedKernelMap saved =
      RunOn(*engine, [&](const ExecutionContext& context) { return ReadKernelMap(path, context); });
  return {engine, std::move(saved.geometry), HoldSet(engine, std::move(saved.inputs)),
          HoldSet(engine, std::move(saved.outputs)), std::move(saved.map)};
}

// A tensor on voxels of the map, which it shares.
PySparseTensor TensorOn(const PyKernelMap& self, const CoordinateSetPtr& set, nb::handle features) {
  const InArray matrix("features", features);
  matrix.CheckOn(*self.engine());
  return {set, matrix};
}

PyKernelMap InverseOf(const PyKernelMap& self) {
  absl::StatusOr<ConvGeometry> geometry = ConvGeometry::InverseOf(self.geometry());
  if (!geometry.ok()) ThrowStatus(geometry.status());
  KernelMap map = RunOn(*self.engine(), [&](const ExecutionContext& context) {
    return context.backend->map_ops().Transpose(self.map(), context);
  });
  return {self.engine(), *std::move(geometry), self.outputs(), self.inputs(), std::move(map)};
}

int64_t NumPairs(const PyKernelMap& self) {
  RunOn(*self.engine(),
        [&](const ExecutionContext& context) { return self.map().EnsureCounts(context); });
  return self.map().num_pairs();
}

std::string ReprOf(const PyKernelMap& self) {
  return absl::StrCat("KernelMap(", self.geometry().ToString(), ", ", self.map().num_inputs(),
                      " -> ", self.map().num_outputs(), " voxels, ", ToString(self.map().form()),
                      ", ", DeviceName(*self.engine()), ")");
}

}  // namespace

PyKernelMap QueryMap(const PySparseTensor& x, const LayerArguments& layer, nb::handle outputs,
                     const std::string& mapping, const std::string& output_coords) {
  ConvGeometry geometry = ToGeometry(layer, x.set()->tensor_stride());
  CoordinateSetPtr set =
      geometry.keeps_coordinates() ? x.set() : GivenOutputs(geometry, outputs, *x.engine());
  if (geometry.keeps_coordinates()) GivenOutputs(geometry, outputs, *x.engine());
  const bool computes_set = set == nullptr;
  const std::shared_ptr<const Mapping> plugin = MappingNamed(mapping, *x.engine());
  std::shared_ptr<const OutputCoords> finder;
  if (computes_set) finder = OutputCoordsNamed(output_coords, *x.engine());
  const std::string finder_name = NameToKeep(output_coords);
  KeptIndex* const kept = x.engine()->backend().asynchronous() ? &x.kept_index() : nullptr;
  KernelMap map =
      RunOn(*x.engine(), [&](const ExecutionContext& context) -> absl::StatusOr<KernelMap> {
        if (computes_set) {
          VOXCONV_ASSIGN_OR_RETURN(set, x.engine()->outputs_ahead().Find(
                                            *finder, finder_name, *x.set(), geometry, context));
        }
        return Query(plugin, {*x.set(), *set, geometry}, kept, context);
      });
  if (computes_set) set = HoldSet(x.engine(), std::move(set));
  return {x.engine(), std::move(geometry), x.set(), std::move(set), std::move(map)};
}

void DefineKernelMap(nb::module_& module) {
  nb::class_<PyKernelMap>(module, "KernelMap", R"(Which voxels meet under which kernel offset.

A map says that input row p meets output row q under offset k. It depends on the voxels and the
geometry alone, so that one map serves any features and weights, and all three passes. Offsets are
in voxconv's order: x slowest, z fastest.)")
      .def(
          "__init__",
          [](PyKernelMap* self, nb::handle x, nb::handle kernel, nb::handle stride,
             nb::handle dilation, nb::handle padding, nb::handle kind, nb::handle rule,
             nb::handle outputs, const std::string& mapping, const std::string& output_coords) {
            new (self) PyKernelMap(QueryMap(As<PySparseTensor>("x", x, "SparseTensor"),
                                            {kind, rule, kernel, stride, dilation, padding},
                                            outputs, mapping, output_coords));
          },
          nb::arg("x").none(), nb::kw_only(), nb::arg("kernel") = nb::none(),
          nb::arg("stride") = nb::none(), nb::arg("dilation") = nb::none(),
          nb::arg("padding") = nb::none(), nb::arg("kind") = nb::none(),
          nb::arg("rule") = nb::none(), nb::arg("outputs") = nb::none(),
          nb::arg("mapping") = "hash", nb::arg("output_coords") = "sort_unique",
          nb::sig("def __init__(self, x: SparseTensor, *, "
                  "kernel: int | tuple[int, int, int] | None = None, "
                  "stride: int | tuple[int, int, int] | None = None, "
                  "dilation: int | tuple[int, int, int] | None = None, "
                  "padding: int | tuple[int, int, int] | None = None, kind: str | None = None, "
                  "rule: str | None = None, outputs: SparseTensor | None = None, "
                  "mapping: str = 'hash', output_coords: str = 'sort_unique') -> None"),
          R"(Finds the output coordinates of a layer, and queries its map.

Args:
    x: the input. Its features are not read.
    kernel: the kernel size, 3 unless given.
    stride, dilation, padding: 1, 1 and 0 unless given. Padding needs the rule dilate.
    kind: "submanifold", "strided", "inverse" or "transposed", which "generative" also names. Without
        it, a stride of 1 means submanifold and another one strided.
    rule: how a strided layer finds its outputs: "quantize" or "dilate".
    outputs: for inverse layers, a tensor with the output voxels.
    mapping, output_coords: specs of plugins (voxconv.list_plugins).

Raises:
    ValueError: an argument does not fit, or a plugin is unknown.
    NotImplementedError: a plugin does not support the geometry or the device.
    MemoryError: the memory does not suffice.

On CUDA the host waits for the device where the mapping or the output coordinates must learn a size.

>>> import voxconv
>>> x = voxconv.load("scene:sphere?n=1000")
>>> voxconv.KernelMap(x, kernel=3, mapping="sorted_search").num_offsets
27
)")
      .def_prop_ro(
          "num_inputs", [](const PyKernelMap& m) { return m.map().num_inputs(); },
          "N_in, the number of input voxels.")
      .def_prop_ro(
          "num_outputs", [](const PyKernelMap& m) { return m.map().num_outputs(); },
          "N_out, the number of output voxels.")
      .def_prop_ro(
          "num_offsets", [](const PyKernelMap& m) { return m.map().num_offsets(); },
          "K, the number of kernel offsets.")
      .def_prop_ro("num_pairs", &NumPairs,
                   "The number of pairs. On CUDA the first use may wait for the device.")
      .def_prop_ro(
          "form", [](const PyKernelMap& m) { return std::string(ToString(m.map().form())); },
          "How the mapping stored it: \"pairs\", \"neighbour_table\" or \"lookup\", which has no "
          "arrays.")
      .def_prop_ro(
          "geometry", [](const PyKernelMap& m) { return m.geometry().ToString(); },
          "The layer in words, such as \"submanifold k3\".")
      .def_prop_ro(
          "kernel", [](const PyKernelMap& m) { return ToTuple(m.geometry().params().kernel); },
          nb::sig("def kernel(self) -> tuple[int, int, int]"), "The kernel size along x, y and z.")
      .def_prop_ro(
          "input_stride",
          [](const PyKernelMap& m) { return ToTuple(m.geometry().input_tensor_stride()); },
          nb::sig("def input_stride(self) -> tuple[int, int, int]"),
          "The tensor stride of the inputs.")
      .def_prop_ro(
          "output_stride",
          [](const PyKernelMap& m) { return ToTuple(m.geometry().output_tensor_stride()); },
          nb::sig("def output_stride(self) -> tuple[int, int, int]"),
          "The tensor stride of the outputs.")
      .def_prop_ro(
          "device", [](const PyKernelMap& m) { return DeviceName(*m.engine()); },
          "Where the map lies: \"cpu\" or \"cuda:INDEX\".")
      .def_prop_ro(
          "in_coords", [](const PyKernelMap& m) { return Rows(m, m.inputs()); },
          nb::sig("def in_coords(self) -> typing.Any"),
          "int32 [N_in, 4], read-only: batch, x, y, z. A view.")
      .def_prop_ro(
          "out_coords", [](const PyKernelMap& m) { return Rows(m, m.outputs()); },
          nb::sig("def out_coords(self) -> typing.Any"), "int32 [N_out, 4], read-only. A view.")
      .def_prop_ro(
          "keeps_coordinates",
          [](const PyKernelMap& m) { return m.geometry().keeps_coordinates(); },
          "Whether the outputs are the voxels of the inputs, as in a submanifold layer.")
      .def(
          "in_tensor",
          [](const PyKernelMap& m, nb::handle features) {
            return TensorOn(m, m.inputs(), features);
          },
          nb::arg("features").none(),
          nb::sig("def in_tensor(self, features: typing.Any) -> SparseTensor"),
          "Features [N_in, C] on the map's input voxels, which are shared.")
      .def(
          "out_tensor",
          [](const PyKernelMap& m, nb::handle features) {
            return TensorOn(m, m.outputs(), features);
          },
          nb::arg("features").none(),
          nb::sig("def out_tensor(self, features: typing.Any) -> SparseTensor"),
          "Features [N_out, C] on the map's output voxels, which are shared.\n\nRaises ValueError "
          "if the shape, dtype or device does not fit.")
      .def("inverse", &InverseOf,
           "The map of the inverse layer, from the outputs of a strided layer to its inputs: each "
           "pair the other way round.\n\nValueError for another kind of layer. On CUDA the host "
           "may wait for the device.")
      .def("to", &InForm, nb::arg("form"),
           "The map in the form \"pairs\" or \"neighbour_table\". A map of that form is shared.\n\n"
           "On CUDA the host may wait for the device. ValueError for another form.")
      .def("pairs", &Pairs, nb::sig("def pairs(self) -> tuple[typing.Any, typing.Any, typing.Any]"),
           R"(The pairs in canonical order, converted if the map is a table.

Returns:
    (in_rows, out_rows, offset_ptr): int32 [pairs], int32 [pairs] on the map's device, and int64
    [K + 1] in host memory. The pairs of offset k are at offset_ptr[k] .. offset_ptr[k + 1], and
    ascend by output row. All are read-only views. On CUDA the host may wait for the device.)")
      .def("table", &Table, nb::sig("def table(self) -> typing.Any"),
           "int32 [N_out, K], read-only: the input row that output row q meets under offset k, or "
           "-1."
           "\n\nConverted if the map is a list of pairs.")
      .def("save", &Save, nb::arg("path").none(),
           nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
           "Writes the map, its geometry and its coordinates to an .npz file. Waits for the device."
           "\n\nRaises ValueError or RuntimeError if the file cannot be written.")
      .def_static(
          "load", &Load, nb::arg("path").none(), nb::arg("device") = "cpu",
          nb::sig("def load(path: str | os.PathLike[str], device: str = 'cpu') -> KernelMap"),
          R"(Reads a map that `save` or `voxconv conv --save-map` wrote.

Every pair is checked against the coordinates. Raises ValueError for a file that does not fit.)")
      .def("__reduce_ex__",
           [](nb::handle, nb::handle) -> nb::object {
             ThrowTypeError("KernelMap: has no copies and no pickles; use save and load");
           })
      .def("__repr__", &ReprOf);
}

}  // namespace voxconv::python
