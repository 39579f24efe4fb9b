// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/octree/octree_cpu.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/numeric/bits.h"
#include "voxconv/backends/cpu/pair_collector.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/backends/cpu/radix_sort.h"
#include "voxconv/core/integer.h"

namespace voxconv {
namespace {

constexpr int64_t kRowsPerTask = 1 << 13;
// Descents under way at once: enough to hide how long a link takes, and their state (4 KiB) stays
// in the L1 cache beside the links.
constexpr int64_t kDescents = 256;

// Voxels in z-order.
struct SortedVoxels {
  Array<uint64_t> keys;
  Array<int32_t> rows;

  int64_t size() const { return keys.size(); }
  // The least depth at which voxel i does not share its node with the one before.
  int FirstDepth(int64_t i, int depth) const {
    if (i == 0) return 0;
    const uint64_t difference = keys.data()[i] ^ keys.data()[i - 1];
    return DepthOfParting(absl::bit_width(difference) - 1, depth);
  }
};

absl::StatusOr<SortedVoxels> SortVoxels(const CoordinateSet& voxels, const OctreeCube& cube,
                                        const ExecutionContext& context) {
  const int64_t size = voxels.size();
  SortedVoxels sorted;
  VOXCONV_ASSIGN_OR_RETURN(sorted.keys, AllocateArray<uint64_t>(size, context));
  VOXCONV_ASSIGN_OR_RETURN(sorted.rows, AllocateArray<int32_t>(size, context));
  ParallelRanges(context, size, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      sorted.keys.data()[i] = cube.ZOrderKey(voxels.rows().data()[i]);
      sorted.rows.data()[i] = static_cast<int32_t>(i);
    }
  });
  VOXCONV_RETURN_IF_ERROR(RadixSort(sorted.keys, sorted.rows, context));
  return sorted;
}

// Counts the nodes of every depth; the result is [tasks, depth]: the nodes before each task's rows.
absl::StatusOr<Array<int64_t>> CountNodes(const SortedVoxels& sorted, const OctreeCube& cube,
                                          OctreeLevels& levels, const ExecutionContext& context) {
  const int depth = cube.depth();
  const int64_t tasks = CeilDiv(sorted.size(), kRowsPerTask);
  VOXCONV_ASSIGN_OR_RETURN(Array<int64_t> before, AllocateArray<int64_t>(tasks * depth, context));
  ParallelRanges(context, sorted.size(), kRowsPerTask, [&](int64_t begin, int64_t end) {
    int64_t first_at[kMaxOctreeDepth + 1] = {};
    for (int64_t i = begin; i < end; ++i) ++first_at[sorted.FirstDepth(i, depth)];
    int64_t nodes = 0;
    for (int d = 0; d < depth; ++d) {
      before.data()[begin / kRowsPerTask * depth + d] = nodes += first_at[d];
    }
  });
  for (int64_t task = 0; task < tasks; ++task) {
    for (int d = 0; d < depth; ++d) {
      int64_t& nodes = before.data()[task * depth + d];
      levels.nodes[d] += std::exchange(nodes, levels.nodes[d]);
    }
  }
  levels.nodes[depth] = sorted.size();
  return before;
}

// `opens_word`: the octant is the first with a child of its word. Two tasks may share a word.
void SetLink(LinkWord* level, uint64_t octant, int64_t child, bool opens_word) {
  LinkWord& word = level[octant / LinkWord::kOctants];
  std::atomic_ref<uint32_t>(word.present)
      .fetch_or(1u << octant % LinkWord::kOctants, std::memory_order_relaxed);
  if (opens_word) word.first = static_cast<uint32_t>(child);
}

void SetLink(Link* level, uint64_t octant, int64_t child, bool) {
  level[octant].child = static_cast<int32_t>(child);
}

// Links the nodes that begin with voxels [begin, end). next: of every depth, the next node's
// number.
template <typename Links>
void LinkNodes(const SortedVoxels& sorted, int64_t begin, int64_t end, int64_t* next,
               Octree<Links>& tree) {
  const int depth = tree.cube.depth();
  for (int64_t i = begin; i < end; ++i) {
    const uint64_t key = sorted.keys.data()[i];
    const int first = sorted.FirstDepth(i, depth);
    for (int level = first; level <= depth; ++level) {
      const int64_t parent = level == 0 ? 0 : next[level - 1] - 1;
      const uint64_t octant = OctantOf(key, parent, level, depth);
      // The first child of a word is that of its first node; which samples there are is any.
      bool opens_word = level > first && parent % LinkWord::kNodes == 0;
      if (level == 0) {
        opens_word = i == 0 || (sorted.keys.data()[i - 1] >> 3 * depth) / LinkWord::kOctants !=
                                   octant / LinkWord::kOctants;
      }
      const int64_t leaf = Links::kNumbersLeaves ? i : sorted.rows.data()[i];
      const int64_t child = level < depth ? next[level]++ : leaf;
      SetLink(tree.links.data() + tree.levels.begin[level], octant, child, opens_word);
    }
  }
}

// The voxels at rows + offset, for up to kDescents rows, from `first_row` on: pairs as for
// PairProbe. All descents take a step, then those that are left the next one: alone, each would
// wait for every link, and its end would be a branch that nobody can foresee.
template <typename Links>
int64_t Descend(const OctreeView<Links>& view, const Coordinate* rows, int64_t num_rows,
                int64_t first_row, const Int3& offset, int32_t* in, int32_t* out) {
  const int depth = view.cube.depth();
  uint64_t keys[kDescents];
  int64_t count = 0;
  for (int64_t i = 0; i < num_rows; ++i) {
    const Coordinate& q = rows[i];
    uint32_t cell[3];
    const bool inside =
        view.cube.ToCell({q.b, q.x + offset.x, q.y + offset.y, q.z + offset.z}, cell);
    keys[count] = view.cube.ZOrderKey(q.b, cell);
    in[count] = 0;
    out[count] = static_cast<int32_t>(first_row + i);
    count += inside;
  }
  for (int level = 0; level <= depth; ++level) {
    const Links* links = view.links + view.level_begin[level];
    int64_t left = 0;
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t key = keys[i];
      const int32_t row = out[i];
      const int32_t child = Links::Follow(links, OctantOf(key, in[i], level, depth));
      keys[left] = key;
      in[left] = child;
      out[left] = row;
      left += child >= 0;
    }
    count = left;
  }
  if constexpr (Links::kNumbersLeaves) {
    for (int64_t i = 0; i < count; ++i) in[i] = view.rows[in[i]];
  }
  return count;
}

}  // namespace

template <typename Links>
absl::StatusOr<Octree<Links>> BuildOctreeCpu(const CoordinateSet& voxels,
                                             const ExecutionContext& context) {
  Octree<Links> tree;
  tree.cube = OctreeCube(voxels);
  if (voxels.size() == 0) return tree;
  const int depth = tree.cube.depth();
  VOXCONV_ASSIGN_OR_RETURN(SortedVoxels sorted, SortVoxels(voxels, tree.cube, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int64_t> next,
                           CountNodes(sorted, tree.cube, tree.levels, context));
  tree.levels.SetBegin(tree.cube, Links::kOctants);
  VOXCONV_ASSIGN_OR_RETURN(tree.links, AllocateArray<Links>(tree.levels.begin[depth + 1], context));
  VOXCONV_RETURN_IF_ERROR(context.backend->FillBytes(tree.links.data(), Links::kEmptyByte,
                                                     tree.links.bytes(), *context.stream));
  ParallelRanges(context, sorted.size(), kRowsPerTask, [&](int64_t begin, int64_t end) {
    LinkNodes(sorted, begin, end, next.data() + begin / kRowsPerTask * depth, tree);
  });
  if constexpr (Links::kNumbersLeaves) tree.rows = std::move(sorted.rows);
  return tree;
}

template <typename Links>
absl::StatusOr<KernelMap> QueryOctreeCpu(const Octree<Links>& tree, const MapProblem& problem,
                                         bool symmetric, const ExecutionContext& context) {
  const OctreeView<Links> view = tree.View();
  const Coordinate* rows = problem.outputs.rows().data();
  const auto probe = [&](int k, int64_t begin, int64_t end, int32_t* in, int32_t* out) {
    const Int3 offset = problem.geometry.InputOffset(k);
    int64_t count = 0;
    for (int64_t first = begin; first < end; first += kDescents) {
      count += Descend(view, rows + first, std::min(kDescents, end - first), first, offset,
                       in + count, out + count);
    }
    return count;
  };
  return CollectPairs(problem, symmetric, probe, context);
}

template absl::StatusOr<Octree<LinkWord>> BuildOctreeCpu(const CoordinateSet&,
                                                         const ExecutionContext&);
template absl::StatusOr<Octree<Link>> BuildOctreeCpu(const CoordinateSet&, const ExecutionContext&);
template absl::StatusOr<KernelMap> QueryOctreeCpu(const Octree<LinkWord>&, const MapProblem&, bool,
                                                  const ExecutionContext&);
template absl::StatusOr<KernelMap> QueryOctreeCpu(const Octree<Link>&, const MapProblem&, bool,
                                                  const ExecutionContext&);

}  // namespace voxconv
