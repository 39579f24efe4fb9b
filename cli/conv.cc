// SPDX-License-Identifier: Apache-2.0
// voxconv conv and voxconv pool: one layer on arrays, to hold voxconv against another engine.
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "voxconv/cli/command.h"
#include "voxconv/cli/input_options.h"
#include "voxconv/cli/output_path.h"
#include "voxconv/cli/standard_output.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/map_check.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/io/convention.h"
#include "voxconv/io/kernel_map_file.h"
#include "voxconv/io/output_file.h"
#include "voxconv/measure/checked_maps.h"
#include "voxconv/measure/defaults.h"

namespace voxconv::cli {
namespace {

// The defaults of a layer.
struct UsualLayer {
  const char* kind;
  const char* kernel;
  const char* stride;
};

po::options_description LayerOptions(const UsualLayer& usual) {
  po::options_description options("The layer");
  const auto text = [](const char* value) {
    return po::value<std::string>()->default_value(value);
  };
  options.add_options()  //
      ("kind", text(usual.kind),
       "kind of the layer: submanifold, strided, inverse, transposed or generative (the same as "
       "transposed)")  //
      ("rule", text("quantize"),
       "output rule of strided and inverse layers: quantize or dilate; --convention spconv has "
       "dilate only")                                                        //
      ("kernel", text(usual.kernel), "kernel size; one or three values")     //
      ("stride", text(usual.stride), "stride; one or three values")          //
      ("dilation", text("1"), "dilation; one or three values")               //
      ("padding", text("0"), "padding of rule dilate; one or three values")  //
      ("tensor-stride", po::value<std::string>(),
       "tensor stride of the input; default 1; of inverse and transposed layers the stride")  //
      ("bounds", po::value<std::string>(),
       "bounds of rule dilate's outputs in units of the output stride: six values, the least x, y, "
       "z "
       "and the greatest x, y, z")  //
      ("spatial-shape", po::value<std::string>(),
       "spatial shape of the input, for --convention spconv (as z, y, x) and torchsparse; bounds "
       "the outputs of a strided layer")  //
      ("convention", text("voxconv"),
       "how arrays and per-axis values are written: voxconv, spconv, torchsparse or minkowski");
  return options;
}

absl::StatusOr<LayerArguments> ParseLayerArguments(const po::variables_map& values) {
  LayerArguments layer;
  const auto text = [&](const char* name) { return values[name].as<std::string>(); };
  VOXCONV_ASSIGN_OR_RETURN(layer.kind, ParseConvKind(text("kind")));
  VOXCONV_ASSIGN_OR_RETURN(layer.rule, ParseOutputRule(text("rule")));
  VOXCONV_RETURN_IF_ERROR(CheckRuleOption(values, layer.kind));
  if (values.count("output-coords") != 0 && !values["output-coords"].defaulted() &&
      (layer.kind == ConvKind::kSubmanifold || layer.kind == ConvKind::kInverse)) {
    return absl::InvalidArgumentError(absl::StrCat("--output-coords ", text("output-coords"),
                                                   ": has no meaning with --kind ", text("kind"),
                                                   "; it is for strided and transposed layers"));
  }
  const bool dilates = text("convention") == "spconv" || text("convention") == "torchsparse";
  if (dilates && !values["rule"].defaulted() && layer.rule != OutputRule::kDilate) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--rule ", text("rule"), ": the ", text("convention"), " convention has rule dilate only"));
  }
  VOXCONV_ASSIGN_OR_RETURN(layer.kernel, ParseInt3("--kernel", text("kernel")));
  VOXCONV_ASSIGN_OR_RETURN(layer.stride, ParseInt3("--stride", text("stride")));
  VOXCONV_ASSIGN_OR_RETURN(layer.dilation, ParseInt3("--dilation", text("dilation")));
  VOXCONV_ASSIGN_OR_RETURN(layer.padding, ParseInt3("--padding", text("padding")));
  if (values.count("tensor-stride") != 0) {
    VOXCONV_ASSIGN_OR_RETURN(layer.tensor_stride,
                             ParseInt3("--tensor-stride", text("tensor-stride")));
  }
  if (values.count("bounds") != 0) {
    VOXCONV_ASSIGN_OR_RETURN(layer.output_bounds, ParseBox("--bounds", text("bounds")));
  }
  if (values.count("spatial-shape") != 0) {
    VOXCONV_ASSIGN_OR_RETURN(const Int3 shape, ParseInt3("--spatial-shape", text("spatial-shape")));
    if (std::min({shape.x, shape.y, shape.z}) < 1) {
      return absl::InvalidArgumentError(absl::StrCat("--spatial-shape ", text("spatial-shape"),
                                                     ": allowed are whole numbers from 1"));
    }
    layer.spatial_shape = shape;
  }
  return layer;
}

absl::StatusOr<const NpyArray*> Find(const NpzArrays& arrays, absl::string_view name) {
  const NpyArray* array = FindArray(arrays, name);
  if (array == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("IN.npz: array ", name, " is missing"));
  }
  return array;
}

absl::StatusOr<CoordinateSetPtr> ReadCoords(const NpzArrays& arrays, absl::string_view name,
                                            Convention convention, const Int3& tensor_stride,
                                            const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const NpyArray* array, Find(arrays, name));
  VOXCONV_ASSIGN_OR_RETURN(std::vector<Coordinate> rows, CoordinatesFromArray(*array, name));
  VOXCONV_RETURN_IF_ERROR(CoordinatesToVoxconv(convention, tensor_stride, rows));
  return CoordinateSet::Create(rows, tensor_stride, context);
}

// SpConv's spatial shape and TorchSparse's spatial range hold all inputs. Other results than theirs
// would come of coordinates outside.
absl::Status CheckInside(const NpzArrays& arrays, const Int3& shape) {
  VOXCONV_ASSIGN_OR_RETURN(const NpyArray* array, Find(arrays, "coords"));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<Coordinate> rows,
                           CoordinatesFromArray(*array, "coords"));
  for (size_t row = 0; row < rows.size(); ++row) {
    const Int3 at = rows[row].position();  // in the order of the array's columns, as the shape is
    for (int axis = 0; axis < 3; ++axis) {
      if (at[axis] >= 0 && at[axis] < shape[axis]) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "coords: ", at[axis], " in row ", row, ", column ", axis + 1, ", is outside ",
          "--spatial-shape ", ToString(shape), "; allowed are 0 .. ", shape[axis] - 1));
    }
  }
  return absl::OkStatus();
}

// TorchSparse's spatial range, where it is not given: one past the largest coordinate.
absl::StatusOr<Int3> ShapeOfCoords(const NpzArrays& arrays) {
  VOXCONV_ASSIGN_OR_RETURN(const NpyArray* array, Find(arrays, "coords"));
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<Coordinate> rows,
                           CoordinatesFromArray(*array, "coords"));
  Int3 last{0, 0, 0};
  for (const Coordinate& c : rows) {
    last = {std::max(last.x, c.x), std::max(last.y, c.y), std::max(last.z, c.z)};
  }
  // Larger ones are refused with the coordinates.
  const auto past = [](int32_t v) { return std::min(v, kMaxCoordinate) + 1; };
  return Int3{past(last.x), past(last.y), past(last.z)};
}

absl::StatusOr<Tensor> ReadFeatures(const NpzArrays& arrays, int64_t rows, Precision precision,
                                    const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const NpyArray* array, Find(arrays, "features"));
  constexpr int64_t kMostChannels = 65536;
  if (array->shape.size() != 2 || array->shape[0] != rows || array->shape[1] < 1 ||
      array->shape[1] > kMostChannels) {
    return absl::InvalidArgumentError(absl::StrCat("features: shape ", NpyShapeString(array->shape),
                                                   "; [", rows, ", C_in] is needed, with 1 .. ",
                                                   kMostChannels, " channels"));
  }
  VOXCONV_ASSIGN_OR_RETURN(const auto values, ToFloat32(*array, "features"));
  return Tensor::FromHost(values, rows, array->shape[1], context, StorageOf(precision));
}

// Null where the file has no bias.
absl::StatusOr<std::optional<Array<float>>> ReadBias(const NpzArrays& arrays, int64_t c_out,
                                                     const ExecutionContext& context) {
  const NpyArray* array = FindArray(arrays, "bias");
  if (array == nullptr) return std::optional<Array<float>>();
  if (array->shape != std::vector<int64_t>{c_out}) {
    return absl::InvalidArgumentError(
        absl::StrCat("bias: shape ", NpyShapeString(array->shape), "; [", c_out, "] is needed"));
  }
  VOXCONV_ASSIGN_OR_RETURN(const auto values, ToFloat32(*array, "bias"));
  VOXCONV_ASSIGN_OR_RETURN(auto bias, CopyToBackend<float>(values, context));
  return std::optional<Array<float>>(std::move(bias));
}

absl::StatusOr<CoordinateSetPtr> OutputSet(const NpzArrays& arrays, Convention convention,
                                           const ConvGeometry& geometry,
                                           const CoordinateSetPtr& inputs,
                                           const OutputCoords& output_coords,
                                           const ExecutionContext& context) {
  switch (geometry.kind()) {
    case ConvKind::kSubmanifold:
      return inputs;
    case ConvKind::kInverse:
      // The finer coordinates cannot be computed: they are those of the strided layer's input.
      return ReadCoords(arrays, "out_coords", convention, geometry.output_tensor_stride(), context);
    default:
      return output_coords.Compute(*inputs, geometry, context);
  }
}

// The map's arrays, offsets in the convention's order.
absl::Status AppendMap(const KernelMap& map, const std::vector<int>& order,
                       const ExecutionContext& context, NpzArrays& arrays) {
  VOXCONV_ASSIGN_OR_RETURN(const auto in, CopyToHost(map.pairs().in.array(), context));
  VOXCONV_ASSIGN_OR_RETURN(const auto out, CopyToHost(map.pairs().out.array(), context));
  std::vector<int32_t> ordered_in, ordered_out;
  std::vector<int64_t> offset_ptr = {0};
  for (int k : order) {
    const int64_t begin = map.offset_ptr()[k], end = map.offset_ptr()[k + 1];
    ordered_in.insert(ordered_in.end(), in.begin() + begin, in.begin() + end);
    ordered_out.insert(ordered_out.end(), out.begin() + begin, out.begin() + end);
    offset_ptr.push_back(static_cast<int64_t>(ordered_in.size()));
  }
  const auto array = [](const auto& values) {
    return MakeNpyArray({static_cast<int64_t>(values.size())}, absl::MakeConstSpan(values));
  };
  arrays.emplace_back("map_in", array(ordered_in));
  arrays.emplace_back("map_out", array(ordered_out));
  arrays.emplace_back("map_offset_ptr", array(offset_ptr));
  return absl::OkStatus();
}

// Both files are written in the end, or neither: what can be said of them is said first.
absl::Status CheckFiles(const po::variables_map& values) {
  const auto text = [&](const char* name) { return values[name].as<std::string>(); };
  std::vector<NamedPath> written = GivenPaths(values, {"save-map"});
  if (!written.empty() && !absl::EndsWith(written[0].path, ".npz")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--save-map ", written[0].path, ": the name must end in .npz"));
  }
  written.insert(written.begin(), {"OUT.npz", text("out")});
  VOXCONV_RETURN_IF_ERROR(CheckOutputs({{"IN.npz", text("in")}}, written));
  for (const NamedPath& file : written) {
    if (file.path == kStandardOutput) continue;
    const absl::Status status = CheckWriteFile(file.path);
    if (status.ok()) continue;
    return absl::Status(status.code(), absl::StrCat(file.argument, " ", status.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Precision> ParseDtype(const po::variables_map& values, BackendKind backend) {
  const std::string& text = values["dtype"].as<std::string>();
  VOXCONV_ASSIGN_OR_RETURN(const Precision precision, ParsePrecision(text));
  if (precision == Precision::kF32 || backend == BackendKind::kCuda) return precision;
  return absl::InvalidArgumentError(
      absl::StrCat("--dtype ", text, ": allowed with --backend cpu is f32"));
}

// Names the arrays that this layer does not read: one of them may be a name that is nearly right.
void SayUnread(const po::variables_map& values, const NpzArrays& arrays) {
  std::set<std::string> read = {"coords", "features"};
  if (values.count("mode") == 0) read.insert({"weights", "bias"});
  if (values["kind"].as<std::string>() == "inverse") read.insert("out_coords");
  std::vector<std::string> unread;
  for (const auto& [name, array] : arrays) {
    if (!read.contains(name)) unread.push_back(name);
  }
  if (!unread.empty()) std::cout << "IN.npz: not read: " << absl::StrJoin(unread, ", ") << "\n";
}

// What both commands read before they run.
struct Layer {
  Convention convention;
  ConvGeometry geometry;
  Precision precision;
  std::unique_ptr<const Mapping> mapping;
  std::unique_ptr<const OutputCoords> output_coords;
  NpzArrays arrays;
  CoordinateSetPtr inputs;
  Tensor features;
};

absl::StatusOr<Layer> ReadLayer(const po::variables_map& values, Session& session) {
  const auto text = [&](const char* name) { return values[name].as<std::string>(); };
  const ExecutionContext context = session.Context();
  const BackendKind backend = session.backend().kind();
  VOXCONV_RETURN_IF_ERROR(CheckFiles(values));
  VOXCONV_ASSIGN_OR_RETURN(const Convention convention, ParseConvention(text("convention")));
  VOXCONV_ASSIGN_OR_RETURN(LayerArguments arguments, ParseLayerArguments(values));
  VOXCONV_ASSIGN_OR_RETURN(const Precision precision, ParseDtype(values, backend));
  VOXCONV_ASSIGN_OR_RETURN(const NpzOptions npz, ParseNpzLimit(values));
  VOXCONV_ASSIGN_OR_RETURN(NpzArrays arrays, ReadNpz(text("in"), npz));
  if (convention == Convention::kTorchsparse && arguments.kind == ConvKind::kStrided &&
      !arguments.spatial_shape.has_value()) {
    VOXCONV_ASSIGN_OR_RETURN(arguments.spatial_shape, ShapeOfCoords(arrays));
  }
  VOXCONV_ASSIGN_OR_RETURN(const ConvGeometry geometry, MakeGeometry(convention, arguments));
  if (values.count("spatial-shape") != 0) {
    VOXCONV_RETURN_IF_ERROR(CheckInside(arrays, *arguments.spatial_shape));
  }
  VOXCONV_ASSIGN_OR_RETURN(auto mapping,
                           session.registry().mappings().Create(text("mapping"), backend));
  VOXCONV_ASSIGN_OR_RETURN(auto output_coords, session.registry().output_coords().Create(
                                                   text("output-coords"), backend));
  Layer layer{
      convention,        geometry,      precision, std::move(mapping), std::move(output_coords),
      std::move(arrays), /*inputs=*/{}, {}};
  VOXCONV_ASSIGN_OR_RETURN(layer.inputs, ReadCoords(layer.arrays, "coords", convention,
                                                    geometry.input_tensor_stride(), context));
  VOXCONV_ASSIGN_OR_RETURN(layer.features,
                           ReadFeatures(layer.arrays, layer.inputs->size(), precision, context));
  SayUnread(values, layer.arrays);
  return layer;
}

// The map of the layer, which rows are read by.
absl::StatusOr<KernelMap> QueryMap(const po::variables_map& values, const Layer& layer,
                                   const CoordinateSet& outputs, const ExecutionContext& context) {
  const MapProblem problem{*layer.inputs, outputs, layer.geometry};
  VOXCONV_ASSIGN_OR_RETURN(KernelMap map, QueryPairs(*layer.mapping, problem, context));
  const std::string& mapping = values["mapping"].as<std::string>();
  if (!measure::IsLoadedMapping(mapping)) return map;
  const absl::Status held = CheckMapOnAllRows(map, problem, context);
  if (!held.ok()) return StatusAt(absl::StrCat("mapping '", mapping, "'"), held);
  return map;
}

// Writes OUT.npz and what --save-map names, and says what was done.
absl::Status WriteLayer(const po::variables_map& values, const Layer& layer,
                        const CoordinateSet& outputs, const KernelMap& map, const Tensor& result,
                        StandardOutput& output, const ExecutionContext& context) {
  const auto text = [&](const char* name) { return values[name].as<std::string>(); };
  const ConvGeometry& geometry = layer.geometry;
  VOXCONV_ASSIGN_OR_RETURN(std::vector<Coordinate> rows, CopyToHost(outputs.rows(), context));
  CoordinatesFromVoxconv(layer.convention, geometry.output_tensor_stride(), rows);
  VOXCONV_ASSIGN_OR_RETURN(const auto result_host, result.ToHost(context));
  NpzArrays written;
  written.emplace_back("out_coords", CoordinatesToArray(rows));
  written.emplace_back("out_features", MakeNpyArray({result.rows(), result.channels()},
                                                    absl::MakeConstSpan(result_host)));
  VOXCONV_RETURN_IF_ERROR(
      AppendMap(map, OffsetOrder(layer.convention, geometry.params().kernel), context, written));
  VOXCONV_ASSIGN_OR_RETURN(const std::string out, SerializeNpz(written));
  std::string saved_map;
  std::vector<FileContent> files = {{text("out"), out}};
  if (values.count("save-map") != 0) {
    VOXCONV_ASSIGN_OR_RETURN(const NpzArrays map_arrays,
                             KernelMapArrays(geometry, *layer.inputs, outputs, map, context));
    VOXCONV_ASSIGN_OR_RETURN(saved_map, SerializeNpz(map_arrays));
    files.push_back({text("save-map"), saved_map});
  }
  VOXCONV_RETURN_IF_ERROR(output.WriteFiles(files));
  std::cout << geometry.ToString() << ": " << layer.inputs->size() << " -> " << outputs.size()
            << " voxels, " << layer.features.channels() << " -> " << result.channels()
            << " channels, " << map.num_pairs() << " pairs -> " << text("out") << "\n";
  return absl::OkStatus();
}

absl::Status Convolve(const po::variables_map& values, Session& session) {
  StandardOutput output({values["out"].as<std::string>()});
  const ExecutionContext context = session.Context();
  VOXCONV_ASSIGN_OR_RETURN(const auto dataflow,
                           session.registry().dataflows().Create(
                               values["dataflow"].as<std::string>(), session.backend().kind()));
  VOXCONV_ASSIGN_OR_RETURN(const Layer layer, ReadLayer(values, session));
  const ConvGeometry& geometry = layer.geometry;
  VOXCONV_ASSIGN_OR_RETURN(const NpyArray* weight_array, Find(layer.arrays, "weights"));
  VOXCONV_ASSIGN_OR_RETURN(const Weights weights,
                           WeightsToVoxconv(layer.convention, geometry.params().kernel,
                                            *weight_array, geometry.params().stride));
  if (weights.c_in != layer.features.channels()) {
    return absl::InvalidArgumentError(absl::StrCat("weights: ", weights.c_in,
                                                   " input channels; the features have ",
                                                   layer.features.channels()));
  }
  VOXCONV_ASSIGN_OR_RETURN(const Tensor weight_tensor,
                           Tensor::FromHost(weights.values, geometry.num_offsets() * weights.c_in,
                                            weights.c_out, context, StorageOf(layer.precision)));
  VOXCONV_ASSIGN_OR_RETURN(const auto bias, ReadBias(layer.arrays, weights.c_out, context));
  VOXCONV_ASSIGN_OR_RETURN(const CoordinateSetPtr outputs,
                           OutputSet(layer.arrays, layer.convention, geometry, layer.inputs,
                                     *layer.output_coords, context));
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap map, QueryMap(values, layer, *outputs, context));
  Workspace workspace;
  VOXCONV_ASSIGN_OR_RETURN(
      const Tensor result,
      RunConvolution(*dataflow, map, layer.features.view(), weight_tensor.view(), layer.precision,
                     workspace, context));
  if (bias.has_value()) {
    VOXCONV_RETURN_IF_ERROR(context.backend->tensor_ops().ScaleShift(
        result.view(), nullptr, bias->data(), false, result.view(), context));
  }
  return WriteLayer(values, layer, *outputs, map, result, output, context);
}

// By the dataflow that is asked for, or by the backend's operator.
absl::Status RunPooling(const po::variables_map& values, Session& session, const KernelMap& map,
                        const PoolArgs& args) {
  const ExecutionContext context = session.Context();
  if (values.count("dataflow") == 0) {
    return context.backend->tensor_ops().Pool(map, args.mode, args.input, args.output,
                                              args.switches, context);
  }
  const std::string& spec = values["dataflow"].as<std::string>();
  VOXCONV_ASSIGN_OR_RETURN(const auto dataflow,
                           session.registry().dataflows().Create(spec, context.backend->kind()));
  if (dataflow->pools()) return RunPool(*dataflow, map, args, context);
  return absl::InvalidArgumentError(absl::StrCat(
      "--dataflow ", spec, ": it does not pool in its own way; of the built-in dataflows hash2col ",
      "does. Without --dataflow the backend's operator pools"));
}

absl::Status Pool(const po::variables_map& values, Session& session) {
  StandardOutput output({values["out"].as<std::string>()});
  const ExecutionContext context = session.Context();
  VOXCONV_ASSIGN_OR_RETURN(const Convention convention,
                           ParseConvention(values["convention"].as<std::string>()));
  const absl::StatusOr<Pooling> pooling = PoolingOf(convention, values["mode"].as<std::string>());
  if (!pooling.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--", pooling.status().message()));
  }
  const std::string& kind_name = values["kind"].as<std::string>();
  VOXCONV_ASSIGN_OR_RETURN(const ConvKind kind, ParseConvKind(kind_name));
  if (kind != ConvKind::kStrided && kind != ConvKind::kSubmanifold) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kind ", kind_name, ": allowed for pooling are submanifold and strided"));
  }
  VOXCONV_ASSIGN_OR_RETURN(const Layer layer, ReadLayer(values, session));
  VOXCONV_ASSIGN_OR_RETURN(const CoordinateSetPtr outputs,
                           OutputSet(layer.arrays, layer.convention, layer.geometry, layer.inputs,
                                     *layer.output_coords, context));
  VOXCONV_ASSIGN_OR_RETURN(const KernelMap map, QueryMap(values, layer, *outputs, context));
  VOXCONV_ASSIGN_OR_RETURN(const Tensor result,
                           Tensor::Create(outputs->size(), layer.features.channels(),
                                          StorageOf(layer.precision), context));
  VOXCONV_RETURN_IF_ERROR(
      RunPooling(values, session, map, {pooling->mode, layer.features.view(), result.view()}));
  if (pooling->from_zero) {
    VOXCONV_RETURN_IF_ERROR(context.backend->tensor_ops().ScaleShift(
        result.view(), nullptr, nullptr, true, result.view(), context));
  }
  return WriteLayer(values, layer, *outputs, map, result, output, context);
}

// The options of both commands behind those of the layer, and their positions.
void AddPluginOptions(const LayerChoice& layer, po::options_description& options) {
  options.add_options()  //
      ("mapping", po::value<std::string>()->default_value(layer.mapping),
       "spec of the mapping")  //
      ("output-coords", po::value<std::string>()->default_value(layer.output_coords),
       "spec of the output coordinates")  //
      ("dtype", po::value<std::string>()->default_value("f32"),
       "dtype of features and weights: f32; on CUDA also tf32, f16, bf16. Arrays of the file are "
       "rounded to it, and results are written as float32")  //
      ("save-map", po::value<std::string>(),
       "also write the kernel map and its coordinates to this .npz file")  //
      ("npz-limit-mib", po::value<int64_t>()->default_value(256), kNpzLimitHelp);
  options.add(SessionOptions());
}

constexpr char kOutHelp[] =
    "OUT.npz: gets out_coords, out_features, map_in, map_out, map_offset_ptr; - is standard output";

po::positional_options_description Positions() {
  po::positional_options_description positional;
  positional.add("in", 1).add("out", 1);
  return positional;
}

}  // namespace

absl::Status RunConv(const std::vector<std::string>& args) {
  VOXCONV_ASSIGN_OR_RETURN(const measure::Defaults defaults, measure::LoadDefaults());
  const LayerChoice& layer = defaults.single_layer;
  po::options_description options =
      LayerOptions({.kind = "submanifold", .kernel = "3", .stride = "1"});
  options.add_options()  //
      ("in", po::value<std::string>()->required(),
       "IN.npz: coords int32 [N, 4], features [N, C_in], weights, optionally bias [C_out]; --kind "
       "inverse also needs out_coords")                        //
      ("out", po::value<std::string>()->required(), kOutHelp)  //
      ("dataflow", po::value<std::string>()->default_value(layer.dataflow), "spec of the dataflow");
  AddPluginOptions(layer, options);
  VOXCONV_ASSIGN_OR_RETURN(
      const po::variables_map values,
      ParseArguments("conv IN.npz OUT.npz [OPTIONS]", options, Positions(), args));
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Open(values));
  return Convolve(values, *session);
}

absl::Status RunPool(const std::vector<std::string>& args) {
  VOXCONV_ASSIGN_OR_RETURN(const measure::Defaults defaults, measure::LoadDefaults());
  po::options_description options = LayerOptions({.kind = "strided", .kernel = "2", .stride = "2"});
  options.add_options()  //
      ("in", po::value<std::string>()->required(),
       "IN.npz: coords int32 [N, 4], features [N, C]")         //
      ("out", po::value<std::string>()->required(), kOutHelp)  //
      ("mode", po::value<std::string>()->default_value("max"),
       "max, sum, average (the sum by the number of kernel offsets) or average_present (by the "
       "voxels in the window). With --convention spconv: max, which is 0 where all are negative, "
       "and average, by the voxels in the window")  //
      ("dataflow", po::value<std::string>(),
       "spec of a dataflow that pools in its own way: hash2col, which pools the columns that it "
       "fills. Without it the backend's operator pools");
  AddPluginOptions(defaults.single_layer, options);
  VOXCONV_ASSIGN_OR_RETURN(
      const po::variables_map values,
      ParseArguments("pool IN.npz OUT.npz [OPTIONS]", options, Positions(), args));
  VOXCONV_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Open(values));
  return Pool(values, *session);
}

}  // namespace voxconv::cli
