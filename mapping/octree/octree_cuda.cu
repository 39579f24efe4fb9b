// SPDX-License-Identifier: Apache-2.0
// All depths of the tree at once. Of the voxels in z-order, each begins a node at every depth from
// the first on at which it does not share its node with the voxel before; so a node's number is how
// many of its depth's began before it. Blocks count these, a scan over depths and blocks makes the
// counts numbers, and every voxel then links the nodes that it begins.
#include <algorithm>
#include <utility>
#include <vector>

#include "voxconv/backends/cuda/coordinate_rows.cuh"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_primitives.h"
#include "voxconv/backends/cuda/neighbour_query.cuh"
#include "voxconv/mapping/octree/octree_cuda.h"

namespace voxconv {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;
static_assert(kMaxOctreeDepth < kWarp);

template <typename Key>
__global__ void __launch_bounds__(kThreads)
    KeyKernel(InterleavedRows voxels, int64_t size, OctreeCube cube, Key* keys) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < size) keys[i] = static_cast<Key>(cube.ZOrderKey(LoadRow(voxels, i)));
}

// Voxels in z-order; not owned.
template <typename Key>
struct SortedVoxels {
  const Key* keys;
  const int32_t* rows;
  int64_t size;
  int depth;

  // The least depth at which voxel i does not share its node with the one before; past the tree's
  // depth for what is no voxel.
  __device__ int FirstDepth(int64_t i) const {
    if (i >= size) return depth + 1;
    if (i == 0) return 0;
    const uint64_t difference = keys[i] ^ keys[i - 1];
    return DepthOfParting(63 - __clzll(static_cast<int64_t>(difference)), depth);
  }
};

// block_nodes[d * blocks + block]: nodes of depth d < depth that begin in the block; nodes[d]: in
// all blocks.
template <typename Key>
__global__ void __launch_bounds__(kThreads)
    CountKernel(SortedVoxels<Key> sorted, int32_t* block_nodes, unsigned long long* nodes) {
  __shared__ int32_t first_at[kMaxOctreeDepth + 2];
  if (threadIdx.x < kMaxOctreeDepth + 2) first_at[threadIdx.x] = 0;
  __syncthreads();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  atomicAdd(first_at + sorted.FirstDepth(i), 1);
  __syncthreads();
  const int depth = static_cast<int>(threadIdx.x);
  if (depth >= sorted.depth) return;
  int32_t count = 0;
  for (int d = 0; d <= depth; ++d) count += first_at[d];
  block_nodes[int64_t{depth} * gridDim.x + blockIdx.x] = count;
  atomicAdd(nodes + depth, static_cast<unsigned long long>(count));
}

__device__ void SetLink(LinkWord* level, uint64_t octant, int32_t child, bool opens_word) {
  LinkWord* const word = level + octant / LinkWord::kOctants;
  atomicOr(&word->present, 1u << octant % LinkWord::kOctants);
  if (opens_word) word->first = static_cast<uint32_t>(child);
}

__device__ void SetLink(Link* level, uint64_t octant, int32_t child, bool) {
  level[octant].child = child;
}

struct LevelBegin {
  int64_t at[kMaxOctreeDepth + 1];
};

// block_begin[d * blocks + block]: nodes of all depths before d, and of depth d before the block.
template <typename Links, typename Key>
__global__ void __launch_bounds__(kThreads)
    LinkKernel(SortedVoxels<Key> sorted, const int64_t* block_begin, LevelBegin level_begin,
               Links* links) {
  // Number of the node that the last voxel before the warp is in.
  __shared__ int32_t last_node[kMaxOctreeDepth][kWarps];
  const int depth = sorted.depth;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int first = sorted.FirstDepth(i);
  for (int d = 0; d < depth; ++d) {
    const unsigned begins = __ballot_sync(~0u, first <= d);
    if (lane == 0) last_node[d][warp] = __popc(begins);
  }
  __syncthreads();
  if (const int d = static_cast<int>(threadIdx.x); d < depth) {
    const int64_t* const of_depth = block_begin + int64_t{d} * gridDim.x;
    auto node = static_cast<int32_t>(of_depth[blockIdx.x] - of_depth[0]) - 1;
    for (int w = 0; w < kWarps; ++w) {
      const int32_t count = last_node[d][w];
      last_node[d][w] = node;
      node += count;
    }
  }
  __syncthreads();

  const uint64_t key = i < sorted.size ? sorted.keys[i] : 0;
  const uint32_t up_to_me = ~0u >> (kWarp - 1 - lane);
  int32_t parent = 0;
  for (int level = 0; level <= depth; ++level) {
    int32_t child = 0;
    if (level < depth) {
      const unsigned begins = __ballot_sync(~0u, first <= level);
      child = last_node[level][warp] + __popc(begins & up_to_me);
    } else if (i < sorted.size) {
      child = Links::kNumbersLeaves ? static_cast<int32_t>(i) : sorted.rows[i];
    }
    if (first <= level) {
      const uint64_t octant = OctantOf(key, parent, level, depth);
      // The first child of a word is that of its first node; which samples there are is any.
      bool opens_word = level > first && parent % LinkWord::kNodes == 0;
      if (level == 0) {
        opens_word = i == 0 || OctantOf(sorted.keys[i - 1], 0, 0, depth) / LinkWord::kOctants !=
                                   octant / LinkWord::kOctants;
      }
      SetLink(links + level_begin.at[level], octant, child, opens_word);
    }
    parent = child;
  }
}

template <typename Links, typename Key>
class Builder {
 public:
  Builder(const CoordinateSet& voxels, const OctreeCube& cube, const ExecutionContext& context)
      : voxels_(voxels), context_(context), size_(voxels.size()), depth_(cube.depth()) {
    tree_.cube = cube;
  }

  absl::StatusOr<Octree<Links>> Build() {
    VOXCONV_RETURN_IF_ERROR(Sort());
    VOXCONV_RETURN_IF_ERROR(CountNodes());
    VOXCONV_ASSIGN_OR_RETURN(tree_.links,
                             AllocateArray<Links>(tree_.levels.begin[depth_ + 1], context_));
    VOXCONV_RETURN_IF_ERROR(Fill(tree_.links, Links::kEmptyByte));
    LevelBegin level_begin{};
    std::copy_n(tree_.levels.begin.begin(), depth_ + 1, level_begin.at);
    const auto kernel = LinkKernel<Links, Key>;
    VOXCONV_LAUNCH(kernel, Grid(), kThreads, 0, context_, Sorted(), block_begin_.data(),
                   level_begin, tree_.links.data());
    if constexpr (Links::kNumbersLeaves) tree_.rows = std::move(rows_);
    return std::move(tree_);
  }

 private:
  dim3 Grid() const { return GridFor(size_, kThreads); }
  SortedVoxels<Key> Sorted() const { return {keys_.data(), rows_.data(), size_, depth_}; }
  template <typename T>
  absl::Status Fill(Array<T>& array, uint8_t value) const {
    return context_.backend->FillBytes(array.data(), value, array.bytes(), *context_.stream);
  }

  absl::Status Sort() {
    VOXCONV_ASSIGN_OR_RETURN(Array<Key> keys, AllocateArray<Key>(size_, context_));
    VOXCONV_ASSIGN_OR_RETURN(keys_, AllocateArray<Key>(size_, context_));
    VOXCONV_ASSIGN_OR_RETURN(rows_, AllocateArray<int32_t>(size_, context_));
    VOXCONV_LAUNCH(KeyKernel<Key>, Grid(), kThreads, 0, context_,
                   InterleavedRows{voxels_.rows().data()}, size_, tree_.cube, keys.data());
    return SortByKey(keys.data(), keys_.data(), /*values=*/nullptr, rows_.data(), size_,
                     std::max(1, tree_.cube.key_bits()), context_);
  }

  absl::Status CountNodes() {
    tree_.levels.nodes[depth_] = size_;
    if (depth_ > 0) {
      const int64_t counts = depth_ * CeilDiv(size_, kThreads);
      VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> block_nodes,
                               AllocateArray<int32_t>(counts, context_));
      VOXCONV_ASSIGN_OR_RETURN(block_begin_, AllocateArray<int64_t>(counts, context_));
      VOXCONV_ASSIGN_OR_RETURN(Array<unsigned long long> nodes,
                               AllocateArray<unsigned long long>(depth_, context_));
      VOXCONV_RETURN_IF_ERROR(Fill(nodes, 0));
      VOXCONV_LAUNCH(CountKernel<Key>, Grid(), kThreads, 0, context_, Sorted(), block_nodes.data(),
                     nodes.data());
      VOXCONV_RETURN_IF_ERROR(
          ExclusiveSum(block_nodes.data(), block_begin_.data(), counts, context_));
      VOXCONV_ASSIGN_OR_RETURN(const std::vector<unsigned long long> host,
                               CopyToHost(nodes, context_));
      std::copy(host.begin(), host.end(), tree_.levels.nodes.begin());
    }
    tree_.levels.SetBegin(tree_.cube, Links::kOctants);
    return absl::OkStatus();
  }

  const CoordinateSet& voxels_;
  const ExecutionContext& context_;
  int64_t size_;
  int depth_;
  Octree<Links> tree_;
  Array<Key> keys_;             // [size], in z-order
  Array<int32_t> rows_;         // [size], in z-order
  Array<int64_t> block_begin_;  // [depth, blocks]
};

template <typename Links>
struct Lookup {
  OctreeView<Links> view;
  __device__ int32_t operator()(const Coordinate& position, uint64_t) const {
    return view.Find(position);
  }
};

}  // namespace

template <typename Links>
absl::StatusOr<Octree<Links>> BuildOctreeCuda(const CoordinateSet& voxels,
                                              const ExecutionContext& context) {
  const OctreeCube cube(voxels);
  if (voxels.size() == 0) return Octree<Links>{.cube = cube};
  // Half the traffic of the sort, which is most of the work.
  if (cube.key_bits() <= 32) return Builder<Links, uint32_t>(voxels, cube, context).Build();
  return Builder<Links, uint64_t>(voxels, cube, context).Build();
}

template <typename Links>
absl::StatusOr<KernelMap> QueryOctreeCuda(const Octree<Links>& tree, const MapProblem& problem,
                                          bool symmetric, const ExecutionContext& context) {
  return QueryNeighbours(Lookup<Links>{tree.View()}, problem, symmetric, context);
}

template absl::StatusOr<Octree<LinkWord>> BuildOctreeCuda(const CoordinateSet&,
                                                          const ExecutionContext&);
template absl::StatusOr<Octree<Link>> BuildOctreeCuda(const CoordinateSet&,
                                                      const ExecutionContext&);
template absl::StatusOr<KernelMap> QueryOctreeCuda(const Octree<LinkWord>&, const MapProblem&, bool,
                                                   const ExecutionContext&);
template absl::StatusOr<KernelMap> QueryOctreeCuda(const Octree<Link>&, const MapProblem&, bool,
                                                   const ExecutionContext&);

}  // namespace voxconv
