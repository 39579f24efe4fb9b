// SPDX-License-Identifier: Apache-2.0
#include "input.h"

#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "arguments.h"
#include "sparse_tensor.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/load_input.h"
#include "voxconv/io/range.h"
#include "voxconv/io/scenes.h"

namespace voxconv::python {
namespace {

constexpr int64_t kMaxChannels = 65536;

// The cloud in the engine's memory, with all its channels or so many.
PySparseTensor Upload(const EnginePtr& engine, const VoxelizedCloud& cloud, nb::handle channels,
                      nb::handle like) {
  const int64_t wanted =
      channels.is_none() ? cloud.channels : ToInteger("channels", channels, 1, kMaxChannels);
  auto [set, features] = RunOn(
      *engine,
      [&](const ExecutionContext& context) -> absl::StatusOr<std::pair<CoordinateSetPtr, Tensor>> {
        VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr coordinates, MakeCoordinates(cloud, context));
        VOXCONV_ASSIGN_OR_RETURN(
            Tensor tensor,
            Tensor::FromHost(FeaturesWithChannels(cloud, wanted), cloud.size(), wanted, context));
        return std::pair(std::move(coordinates), std::move(tensor));
      });
  return {engine, HoldSet(engine, std::move(set)), std::move(features), like};
}

// Without the GIL; no engine is needed.
template <typename Work>
auto WithoutGil(const Work& work) {
  auto result = [&] {
    const nb::gil_scoped_release released;
    return work();
  }();
  return ValueOf(std::move(result));
}

PySparseTensor LoadVoxels(nb::handle input, nb::handle voxel_size, nb::handle origin,
                          nb::handle batch, nb::handle range, nb::handle channels,
                          const std::string& fields, const std::string& dtype,
                          const std::string& array, nb::handle samples, nb::handle seed,
                          bool unit_sphere, const std::string& order, const std::string& device) {
  constexpr int64_t kMostSamples = int64_t{1} << 32;
  const std::string name = ToPath("input", input);
  LoadOptions options;
  options.voxelize = ToVoxelizeOptions(voxel_size, origin, batch, order);
  options.range = ToRange("range", range);
  options.read = {.fields = fields,
                  .dtype_in = dtype,
                  .array = array,
                  .samples = ToInteger("samples", samples, 1, kMostSamples),
                  .seed = static_cast<uint64_t>(ToInteger("seed", seed, 0, INT64_MAX)),
                  .into_unit_sphere = unit_sphere};
  options.voxelize.order_seed = options.read.seed;
  const EnginePtr engine = EngineNamed(device);
  const VoxelizedCloud cloud = WithoutGil([&] { return LoadInputAsAsked(name, options); });
  return Upload(engine, cloud, channels, {});
}

// Rows of float32 or float64 on the CPU, as the type of `values`.
template <typename T>
void ReadRows(const InArray& array, std::vector<T>& values) {
  if (array.engine()->backend().asynchronous()) {
    ThrowValueError(absl::StrCat(array.name(), ": lies on ", DeviceName(*array.engine()),
                                 "; points are voxelised on the CPU"));
  }
  const auto size = static_cast<size_t>(array.size());
  if (array.Is<float>()) {
    const auto* data = static_cast<const float*>(array.data());
    values.assign(data, data + size);
  } else if (array.Is<double>()) {
    const auto* data = static_cast<const double*>(array.data());
    values.assign(data, data + size);
  } else {
    ThrowValueError(absl::StrCat(array.name(), ": dtype ", array.DTypeText(),
                                 "; float32 or float64 is needed"));
  }
}

PySparseTensor VoxelizePoints(nb::handle points_object, nb::handle features_object,
                              nb::handle voxel_size, nb::handle origin, nb::handle batch,
                              nb::handle range_object, bool xyz_features, const std::string& order,
                              nb::handle seed) {
  const InArray points("points", points_object);
  if (points.ndim() != 2 || points.shape(1) != 3) points.CheckRank(-1, "[N, 3]");
  VoxelizeOptions options = ToVoxelizeOptions(voxel_size, origin, batch, order);
  options.xyz_features = xyz_features;
  options.order_seed = static_cast<uint64_t>(ToInteger("seed", seed, 0, INT64_MAX));
  const std::optional<Range> range = ToRange("range", range_object);
  PointCloud cloud;
  ReadRows(points, cloud.xyz);
  if (!features_object.is_none()) {
    const InArray features("features", features_object);
    if (features.ndim() != 2 || features.shape(0) != points.shape(0)) {
      features.CheckRank(-1, absl::StrCat("[", points.shape(0), ", C]").c_str());
    }
    ReadRows(features, cloud.features);
    for (int64_t i = 0; i < features.shape(1); ++i) {
      cloud.feature_names.push_back(absl::StrCat("f", i));
    }
  }
  if (!xyz_features && cloud.channels() == 0) {
    ThrowValueError("xyz_features False: features are missing; a voxel needs one channel or more");
  }
  const VoxelizedCloud voxels = WithoutGil([&]() -> absl::StatusOr<VoxelizedCloud> {
    if (range.has_value()) {
      CropToRange(*range, cloud);
      VOXCONV_RETURN_IF_ERROR(CheckLeft("points", cloud.size(), cloud.cropped));
    }
    return Voxelize(cloud, options);
  });
  return Upload(CpuEngine(), voxels, nb::none(), points.object());
}

nb::list Scenes() {
  nb::list scenes;
  for (const SceneInfo& info : ListScenes()) {
    nb::dict parameters;
    for (const SceneParam& param : info.params) {
      parameters[param.name.c_str()] =
          param.integer ? nb::object(nb::int_(static_cast<int64_t>(param.default_value)))
                        : nb::object(nb::float_(param.default_value));
    }
    nb::dict scene;
    scene["name"] = info.name;
    scene["summary"] = info.summary;
    scene["makes_voxels"] = info.makes_voxels;
    scene["parameters"] = parameters;
    scenes.append(scene);
  }
  return scenes;
}

}  // namespace

void DefineInput(nb::module_& module) {
  module.def(
      "load", &LoadVoxels, nb::arg("input").none(), nb::kw_only(), nb::arg("voxel_size") = 0.05,
      nb::arg("origin") = 0.0, nb::arg("batch") = 0, nb::arg("range") = nb::none(),
      nb::arg("channels") = nb::none(), nb::arg("fields") = "", nb::arg("dtype") = "",
      nb::arg("array") = "", nb::arg("samples") = 100000, nb::arg("seed") = 0,
      nb::arg("unit_sphere") = false, nb::arg("order") = "scan", nb::arg("device") = "cpu",
      nb::sig(
          "def load(input: str | os.PathLike[str], *, "
          "voxel_size: float | tuple[float, float, float] = 0.05, "
          "origin: float | tuple[float, float, float] = 0.0, batch: int = 0, "
          "range: collections.abc.Sequence[float] | None = None, "
          "channels: int | None = None, fields: str = '', dtype: str = '', "
          "array: str = '', samples: int = 100000, seed: int = 0, "
          "unit_sphere: bool = False, order: str = 'scan', device: str = 'cpu') -> SparseTensor"),
      R"(Reads a point cloud or makes a synthetic scene, and voxelises it.

Args:
    input: a file (KITTI .bin, nuScenes .pcd.bin, .npy, .npz; with Open3D also .ply, .pcd, .xyz and
        meshes), or "scene:NAME?key=value&..." (voxconv.scenes).
    voxel_size, origin: the edge of a voxel and the corner of voxel (0, 0, 0), in the cloud's unit;
        one number, or three for x, y, z. A scene of voxels has neither.
    batch: the batch index of all voxels.
    range: cut the input to this part before it is voxelised: xmin, ymin, zmin, xmax, ymax, zmax in
        the cloud's unit; the greatest values are excluded. For voxel inputs, the unit is the voxel.
    channels: the number of features of a voxel. Surplus ones are left out, and missing ones are 1.
        Without it, all features that the input has.
    fields, dtype: the columns and the number type of a raw file, such as "x,y,z,intensity" and
        "f32".
    array: the array of an .npz file.
    samples, seed: the points that are drawn on a mesh. The seed is also that of order "shuffled".
    unit_sphere: scale the cloud into the unit sphere first.
    order: the order of the rows. "scan": a voxel comes where its first point does; what is voxels
        already keeps its order. "sorted": by batch, x, y, z. "shuffled": a permutation by the seed.
        "morton": by batch, then along the Z-order curve.
    device: "cpu" or "cuda:INDEX".

Returns:
    Voxels of stride 1 in that order. float32 features are the means of each voxel's
    points: x, y, z, then what the file has.

Raises:
    ValueError: the file or an argument does not fit.
    NotImplementedError: the build has no Open3D, or no CUDA.

>>> import voxconv
>>> voxconv.load("scene:sphere?n=1000", voxel_size=0.1).stride
(1, 1, 1)
)");
  module.def(
      "voxelize", &VoxelizePoints, nb::arg("points").none(), nb::arg("features") = nb::none(),
      nb::kw_only(), nb::arg("voxel_size") = 0.05, nb::arg("origin") = 0.0, nb::arg("batch") = 0,
      nb::arg("range") = nb::none(), nb::arg("xyz_features") = true, nb::arg("order") = "scan",
      nb::arg("seed") = 0,
      nb::sig("def voxelize(points: typing.Any, features: typing.Any | None = None, *, "
              "voxel_size: float | tuple[float, float, float] = 0.05, "
              "origin: float | tuple[float, float, float] = 0.0, batch: int = 0, "
              "range: collections.abc.Sequence[float] | None = None, "
              "xyz_features: bool = True, order: str = 'scan', seed: int = 0) -> SparseTensor"),
      R"(Makes voxels of points, on the CPU.

Args:
    points: float32 or float64 [N, 3]: x, y, z.
    features: float32 or float64 [N, C].
    voxel_size, origin, batch, range, order: as for load.
    xyz_features: lead the features by the mean x, y, z of a voxel's points.
    seed: of order "shuffled".

Returns:
    Voxels of stride 1 in that order. float32 features are the means of each voxel's points.

Raises:
    ValueError: a shape, a dtype or a value does not fit. NaN is refused in `points`, also with a
        range; a NaN of `features` makes its voxel's mean NaN.

>>> import numpy as np, voxconv
>>> points = np.array([[0.01, 0, 0], [0.02, 0, 0], [0.35, 0, 0]])
>>> voxconv.voxelize(points, voxel_size=0.1).coords.tolist()
[[0, 0, 0, 0], [0, 3, 0, 0]]
)");
  module.def("scenes", &Scenes, nb::sig("def scenes() -> list[dict[str, typing.Any]]"),
             "The synthetic scenes that load makes: dicts with name, summary, makes_voxels and "
             "parameters, which are the defaults by name.");
}

}  // namespace voxconv::python
