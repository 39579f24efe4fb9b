// The octree on the CPU backend.
#ifndef VOXCONV_MAPPING_OCTREE_OCTREE_CPU_H_
#define VOXCONV_MAPPING_OCTREE_OCTREE_CPU_H_

#include "absl/status/statusor.h"
#include "core/mapping.h"
#include "mapping/octree/octree.h"

namespace voxconv {

// A radix sort of the voxels' z-order keys, and two passes over them. The result does not depend on
// the number of threads. O(depth * N); 24 bytes a voxel of scratch. Fails only for lack of memory.
template <typename Links>
absl::StatusOr<Octree<Links>> BuildOctreeCpu(const CoordinateSet& voxels,
                                             const ExecutionContext& context);

// All lookups of one problem, as canonical pairs. O(K N_out depth). Fails only for lack of memory.
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
