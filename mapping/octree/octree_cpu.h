// SPDX-License-Identifier: Apache-2.0
// The octree on the CPU backend.
#ifndef VOXCONV_MAPPING_OCTREE_OCTREE_CPU_H_
#define VOXCONV_MAPPING_OCTREE_OCTREE_CPU_H_

#include "absl/status/statusor.h"
#include "voxconv/core/mapping.h"
#include "voxconv/mapping/octree/octree.h"

namespace voxconv {

// Builds the tree by a radix sort of the voxels' z-order keys and two passes over them. The result
// does not depend on the number of threads. O(depth * N). It takes 24 bytes of scratch for each
// voxel. The only error is lack of memory.
template <typename Links>
absl::StatusOr<Octree<Links>> BuildOctreeCpu(const CoordinateSet& voxels,
                                             const ExecutionContext& context);

// Makes all lookups of one problem and returns canonical pairs. O(K N_out depth). The only error is
// lack of memory.
template <typename Links>
absl::StatusOr<KernelMap> QueryOctreeCpu(const Octree<Links>& tree, const MapProblem& problem,
                                         bool symmetric, const ExecutionContext& context);

extern template absl::StatusOr<Octree<LinkWord>> BuildOctreeCpu(const CoordinateSet&,
                                                                const ExecutionContext&);
extern template absl::StatusOr<Octree<Link>> BuildOctreeCpu(const CoordinateSet&,
                                                            const ExecutionContext&);
extern template absl::StatusOr<KernelMap> QueryOctreeCpu(const Octree<LinkWord>&, const MapProblem&,
                                                         bool, const ExecutionContext&);
extern template absl::StatusOr<KernelMap> QueryOctreeCpu(const Octree<Link>&, const MapProblem&,
                                                         bool, const ExecutionContext&);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OCTREE_OCTREE_CPU_H_
