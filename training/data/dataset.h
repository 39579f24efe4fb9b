// SPDX-License-Identifier: Apache-2.0
// Sets of labelled clouds in files.
#ifndef VOXCONV_TRAINING_DATA_DATASET_H_
#define VOXCONV_TRAINING_DATA_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/training/data/labelled_cloud.h"

namespace voxconv {

// Immutable. Any number of threads may load clouds at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;
  virtual LabelKind label_kind() const = 0;
  virtual int64_t classes() const = 0;
  // One for each class.
  virtual const std::vector<std::string>& class_names() const = 0;
  // The label of points, or clouds, that count for nothing.
  virtual int32_t ignored() const { return -1; }
  // Whether clouds may be drawn on meshes, so that DatasetOptions::samples counts.
  virtual bool draws_points() const { return false; }
  // Names a cloud in messages.
  virtual std::string NameOf(int64_t index) const = 0;
  // A hash of what the clouds are read from, as 16 hex digits: of the bytes of .npz files, in their
  // order; of a folder's files the paths within it, and the sizes. O(bytes of .npz files). Errors
  // of HashFile.
  virtual absl::StatusOr<std::string> ContentHash() const = 0;
  // Cloud `index` of [0, size()). Labels are classes or ignored(). Errors name the cloud.
  virtual absl::StatusOr<LabelledCloud> Load(int64_t index) const = 0;
};

struct DatasetOptions {
  int64_t samples = 30'000;  // meshes: points drawn on the surface (io/sample_mesh.h)
};

// Opens the set that `path` names. `split` is "train" or "test".
// - An .npz file with coords_SPLIT (uint8, int32 or int64 [M, 3]), offsets_SPLIT (int64 [n + 1])
//   and labels_SPLIT (uint8 or int [n]): voxel models, one label a model. A cell is a point in its
//   middle. Models without cells are left out.
// - An .npz file with mesh_vertices_SPLIT (float [V, 3]), mesh_faces_SPLIT (int [F, 3], vertices of
//   the same mesh, from 0), mesh_voff_SPLIT and mesh_foff_SPLIT (int [n + 1], where the vertices
//   and faces of each mesh begin) and labels_SPLIT: meshes, one label a mesh. Points are drawn on
//   them, with normals as features; they are the same points each time.
// - An .npz file with xyz (float [N, 3]) and label (uint8 or int [N]): one frame, one label a
//   point. 0 is ignored, and class c is label c + 1. `intensity` [N] is its feature, if it is
//   there. A frame belongs to every split.
// - A list of such frames, separated by commas.
// - A folder as SemanticKITTI has it: sequences/NN/velodyne/*.bin and sequences/NN/labels/*.label.
//   Sequence 08 is "test"; 00 to 07, 09 and 10 are "train". Labels are mapped as its authors do.
// - A folder with a folder for each class: CLASS/SPLIT/* or SPLIT/CLASS/*. The files are points or
//   meshes (io/read_point_cloud.h). Classes are numbered in the order of their names.
// Names of classes of .npz files come from an array class_names, if it is there. No two are equal.
// Without them the classes are those up to the greatest label of both splits, which is less than
// 4096. Either all frames of a list have an intensity, or none has.
// kInvalidArgument for another kind of file, for a split without clouds, and for labels that are no
// class; the message names the file, the array and the value. Errors of ReadNpz.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const std::string& path,
                                                     const std::string& split,
                                                     const DatasetOptions& options = {});

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_DATA_DATASET_H_
