// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/io/npy.h"
#include "voxconv/io/sample_mesh.h"
#include "voxconv/training/data/content_hash.h"
#include "voxconv/training/data/meshes.h"
#include "voxconv/training/data/model_arrays.h"

namespace voxconv {
namespace {

// The arrays of one split.
struct MeshArrays {
  std::vector<double> vertices;                 // [V, 3]
  std::vector<int32_t> faces;                   // [F, 3], vertices of the mesh that they belong to
  std::vector<int64_t> vertex_ends, face_ends;  // [n + 1]
  std::vector<int32_t> labels;                  // [n]
};

absl::StatusOr<MeshArrays> ReadMeshSplit(const std::string& path, const std::string& split) {
  const std::string vertices = absl::StrCat("mesh_vertices_", split);
  const std::string faces = absl::StrCat("mesh_faces_", split);
  const std::string vertex_ends = absl::StrCat("mesh_voff_", split);
  const std::string face_ends = absl::StrCat("mesh_foff_", split);
  const std::string labels = absl::StrCat("labels_", split);
  VOXCONV_ASSIGN_OR_RETURN(
      const NpzArrays npz,
      ReadNpz(path, {.only = {vertices, faces, vertex_ends, face_ends, labels}}));
  MeshArrays arrays;
  VOXCONV_ASSIGN_OR_RETURN(const NpyArray* vertex_array, FindModelRows(npz, vertices));
  VOXCONV_ASSIGN_OR_RETURN(const NpyArray* face_array, FindModelRows(npz, faces));
  VOXCONV_ASSIGN_OR_RETURN(arrays.vertices, ToFloat64(*vertex_array, vertices));
  VOXCONV_ASSIGN_OR_RETURN(arrays.faces, ToInt32(*face_array, faces));
  VOXCONV_ASSIGN_OR_RETURN(arrays.labels, ReadModelLabels(npz, labels));
  VOXCONV_ASSIGN_OR_RETURN(arrays.vertex_ends, ReadModelEnds(npz, vertex_ends, vertices,
                                                             vertex_array->shape[0], labels));
  VOXCONV_ASSIGN_OR_RETURN(arrays.face_ends,
                           ReadModelEnds(npz, face_ends, faces, face_array->shape[0], labels));
  return arrays;
}

class MeshModels final : public Dataset {
 public:
  MeshModels(std::string path, std::string split, MeshArrays arrays, ModelClasses classes,
             DatasetOptions options)
      : path_(std::move(path)),
        split_(std::move(split)),
        arrays_(std::move(arrays)),
        class_names_(std::move(classes)),
        options_(options) {}

  int64_t size() const override { return static_cast<int64_t>(arrays_.labels.size()); }
  LabelKind label_kind() const override { return LabelKind::kCloud; }
  int64_t classes() const override { return static_cast<int64_t>(class_names_.size()); }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  bool draws_points() const override { return true; }
  std::string NameOf(int64_t index) const override {
    return absl::StrCat(path_, ": ", split_, " mesh ", index);
  }
  absl::StatusOr<std::string> ContentHash() const override { return HashFiles({path_}); }
  absl::StatusOr<LabelledCloud> Load(int64_t index) const override {
    Mesh mesh;
    const auto* vertices = arrays_.vertices.data();
    mesh.vertices.assign(vertices + 3 * arrays_.vertex_ends[index],
                         vertices + 3 * arrays_.vertex_ends[index + 1]);
    for (int64_t f = arrays_.face_ends[index]; f < arrays_.face_ends[index + 1]; ++f) {
      const int32_t* face = arrays_.faces.data() + 3 * f;
      mesh.triangles.push_back({face[0], face[1], face[2]});
    }
    LabelledCloud cloud{.cloud = {}, .labels = {arrays_.labels[index]}};
    // The same points every time. Augmentation makes the difference between epochs.
    VOXCONV_ASSIGN_OR_RETURN(cloud.cloud, SampleMesh(mesh, options_.samples,
                                                     static_cast<uint64_t>(index), NameOf(index)));
    return cloud;
  }

 private:
  std::string path_, split_;
  MeshArrays arrays_;
  ModelClasses class_names_;
  DatasetOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenMeshModels(const std::string& path,
                                                        const std::string& split,
                                                        const DatasetOptions& options) {
  absl::StatusOr<MeshArrays> arrays = ReadMeshSplit(path, split);
  if (!arrays.ok()) return StatusAt(path, arrays.status());
  VOXCONV_ASSIGN_OR_RETURN(ModelClasses classes, ReadModelClasses(path, split, arrays->labels));
  return std::make_unique<MeshModels>(path, split, *std::move(arrays), std::move(classes), options);
}

}  // namespace voxconv
