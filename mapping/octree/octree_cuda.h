// SPDX-License-Identifier: Apache-2.0
// The octree on the CUDA backend.
#ifndef VOXCONV_MAPPING_OCTREE_OCTREE_CUDA_H_
#define VOXCONV_MAPPING_OCTREE_OCTREE_CUDA_H_

#include "absl/status/statusor.h"
#include "voxconv/core/mapping.h"
#include "voxconv/mapping/octree/octree.h"

namespace voxconv {

// Builds the same tree as BuildOctreeCpu, bit by bit. It synchronises the stream once, to learn the
// number of nodes. Room for the most nodes that N voxels can have would be several times the tree.
// O(depth * N). It takes 24 bytes of scratch for each voxel, or 36 if z-order keys have more than
// 32 bits. The only error is lack of memory.
template <typename Links>
absl::StatusOr<Octree<Links>> BuildOctreeCuda(const CoordinateSet& voxels,
                                              const ExecutionContext& context);

// Makes all lookups of one problem and returns a neighbour table with masks, whose pairs are not
// counted. It queues its work on the context's stream and does not synchronise it. O(K N_out
// depth). The only error is lack of memory.
template <typename Links>
absl::StatusOr<KernelMap> QueryOctreeCuda(const Octree<Links>& tree, const MapProblem& problem,
                                          bool symmetric, const ExecutionContext& context);

extern template absl::StatusOr<Octree<LinkWord>> BuildOctreeCuda(const CoordinateSet&,
                                                                 const ExecutionContext&);
extern template absl::StatusOr<Octree<Link>> BuildOctreeCuda(const CoordinateSet&,
                                                             const ExecutionContext&);
extern template absl::StatusOr<KernelMap> QueryOctreeCuda(const Octree<LinkWord>&,
                                                          const MapProblem&, bool,
                                                          const ExecutionContext&);
extern template absl::StatusOr<KernelMap> QueryOctreeCuda(const Octree<Link>&, const MapProblem&,
                                                          bool, const ExecutionContext&);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OCTREE_OCTREE_CUDA_H_
