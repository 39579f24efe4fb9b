// SPDX-License-Identifier: Apache-2.0
// What mapping "octree" is on every backend: its options and its index.
#ifndef VOXCONV_MAPPING_OCTREE_OCTREE_MAPPING_H_
#define VOXCONV_MAPPING_OCTREE_OCTREE_MAPPING_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/options.h"
#include "voxconv/core/plugin.h"
#include "voxconv/mapping/octree/octree.h"

namespace voxconv {

// Owns a tree, which lies in the memory of the backend that built it.
template <typename Links>
class OctreeIndex final : public MapIndex {
 public:
  explicit OctreeIndex(Octree<Links> tree) : tree_(std::move(tree)) {}

  int64_t bytes() const override { return tree_.bytes(); }
  const Octree<Links>& tree() const { return tree_; }

 private:
  Octree<Links> tree_;
};

class OctreeMapping : public Mapping {
 public:
  static PluginDescription Describe();

  const Options& options() const final { return options_; }
  Support DoSupports(const ConvGeometry&) const final { return Support::Yes(); }

 protected:
  explicit OctreeMapping(Options options);

  // Whether nodes keep all eight children. The type of links is then Link, otherwise LinkWord.
  bool keeps_all() const { return keeps_all_; }
  // Whether half of the offsets are looked up.
  bool Mirrors(const MapProblem& problem) const {
    return symmetric_ && problem.geometry.symmetric();
  }

  template <typename Links>
  static absl::StatusOr<std::unique_ptr<MapIndex>> MakeIndex(absl::StatusOr<Octree<Links>> tree) {
    if (!tree.ok()) return tree.status();
    return std::make_unique<OctreeIndex<Links>>(*std::move(tree));
  }
  template <typename Links>
  static const Octree<Links>& TreeOf(const MapIndex& index) {
    return static_cast<const OctreeIndex<Links>&>(index).tree();
  }

 private:
  Options options_;
  bool keeps_all_;
  bool symmetric_;
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OCTREE_OCTREE_MAPPING_H_
