// The octree on the CUDA backend.
#ifndef VOXCONV_MAPPING_OCTREE_OCTREE_CUDA_H_
#define VOXCONV_MAPPING_OCTREE_OCTREE_CUDA_H_

#include "absl/status/statusor.h"
#include "core/mapping.h"
#include "mapping/octree/octree.h"

namespace voxconv {

// The same tree as BuildOctreeCpu's, bit by bit. Synchronises the stream once, to learn the number
// of nodes: room for the most that N voxels can have would be several times the tree. O(depth * N);
// 24 bytes a voxel of scratch, 36 where z-order keys take more than 32 bits. Fails only for lack of
// memory.
template <typename Links>
absl::StatusOr<Octree<Links>> BuildOctreeCuda(const CoordinateSet& voxels,
                                              const ExecutionContext& context);

// All lookups of one problem, as a neighbour table with masks, its pairs not counted. Queued on the
// context's stream, which it does not wait for. O(K N_out depth). Fails only for lack of memory.
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
