// SPDX-License-Identifier: Apache-2.0
// Construction of the tables on the device: voxels by bucket, offsets of large buckets in rounds
// (psh_place_cuda.cu), the slots that are left for buckets of one voxel, tags.
#include <thrust/iterator/counting_iterator.h>

#include <algorithm>
#include <cub/device/device_select.cuh>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/mapping/perfect_hash/psh_cuda.h"
#include "voxconv/mapping/perfect_hash/psh_place_cuda.h"

namespace voxconv {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
// Voxels of an entry of the first offset table. With the host's 6, hardly a bucket has one voxel,
// and those of two search a table that is nearly full. With 2, 7 to 28 % of the voxels of LiDAR
// frames get the slots that are left, and a frame takes 19 to 64 rounds (emulated on the host).
constexpr double kFirstBucketSize = 2;

// The rows, and what the kernels that sort them by bucket write.
struct Sorting {
  const Coordinate* rows;
  int64_t num_rows;
  Int3 stride;
  const PshSample* samples;
  uint32_t num_buckets;
  uint32_t* bucket_of;  // [rows]
  uint32_t* rank;       // [rows]: place in its bucket, in any order
  uint32_t* size;       // [buckets], 0 at first
  uint32_t* begin;      // [buckets]
  PshMember* members;   // [rows], by bucket
  uint32_t* order;      // [rows / 2]: buckets of two voxels and more, the largest first
  PshCounts* counts;
};

// In units of the tensor stride, relative to the sample's corner.
__device__ void ToVoxel(const Coordinate& c, const PshSample& sample, const Int3& stride,
                        uint32_t p[3]) {
  p[0] = static_cast<uint32_t>(c.x - sample.lo.x) / static_cast<uint32_t>(stride.x);
  p[1] = static_cast<uint32_t>(c.y - sample.lo.y) / static_cast<uint32_t>(stride.y);
  p[2] = static_cast<uint32_t>(c.z - sample.lo.z) / static_cast<uint32_t>(stride.z);
}

__global__ void __launch_bounds__(kThreads)
    CountSamplesKernel(const Coordinate* rows, int64_t num_rows, unsigned long long* counts) {
  __shared__ uint32_t block[kMaxBatch + 1];
  for (int i = threadIdx.x; i <= kMaxBatch; i += kThreads) block[i] = 0;
  __syncthreads();
  if (const int64_t row = GlobalThread(); row < num_rows) atomicAdd(block + rows[row].b, 1u);
  __syncthreads();
  for (int i = threadIdx.x; i <= kMaxBatch; i += kThreads) {
    if (block[i] > 0) atomicAdd(counts + i, static_cast<unsigned long long>(block[i]));
  }
}

// Arrays of a try that kernels expect to have one value each. One kernel fills them all, because a
// call to fill one takes the host longer than the device, which waits for the host here.
struct Initial {
  static constexpr int kArrays = 6;
  struct Words {
    uint32_t* data;
    int64_t size;
    uint32_t value;
  };
  Words arrays[kArrays];
};

__global__ void __launch_bounds__(kThreads) FillKernel(const __grid_constant__ Initial initial) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (const Initial::Words& words : initial.arrays) {
    for (int64_t i = GlobalThread(); i < words.size; i += stride) words.data[i] = words.value;
  }
}

__global__ void __launch_bounds__(kThreads) AssignKernel(Sorting sorting) {
  const int64_t row = GlobalThread();
  if (row >= sorting.num_rows) return;
  const Coordinate c = sorting.rows[row];
  const PshSample& sample = sorting.samples[c.b];
  uint32_t p[3];
  ToVoxel(c, sample, sorting.stride, p);
  const auto bucket = static_cast<uint32_t>(sample.PhiIndex(p));
  sorting.bucket_of[row] = bucket;
  sorting.rank[row] = atomicAdd(sorting.size + bucket, 1u);
}

__device__ int ClassOf(uint32_t size) {
  return static_cast<int>(min(size, static_cast<uint32_t>(kPshClasses - 1)));
}

// Gives each bucket a part of `members`, in any order, and counts the buckets of each size.
__global__ void __launch_bounds__(kThreads) BeginKernel(Sorting sorting) {
  __shared__ uint32_t in_class[kPshClasses], voxels[kPshClasses];
  for (int c = threadIdx.x; c < kPshClasses; c += kThreads) in_class[c] = voxels[c] = 0;
  __syncthreads();
  const int64_t bucket = GlobalThread();
  const bool inside = bucket < sorting.num_buckets;
  const uint32_t size = inside ? sorting.size[bucket] : 0;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  uint32_t end = size;  // of this lane's part, in the warp's
  for (int step = 1; step < kWarp; step *= 2) {
    const uint32_t before = __shfl_up_sync(~0u, end, step);
    if (lane >= step) end += before;
  }
  uint32_t first = 0;
  if (lane == kWarp - 1) first = atomicAdd(&sorting.counts->members, end);
  first = __shfl_sync(~0u, first, kWarp - 1);
  if (inside) sorting.begin[bucket] = first + end - size;
  if (size >= 2) {
    atomicAdd(in_class + ClassOf(size), 1u);
    atomicAdd(voxels + ClassOf(size), size);
  }
  __syncthreads();
  for (int c = threadIdx.x; c < kPshClasses; c += kThreads) {
    if (in_class[c] == 0) continue;
    atomicAdd(sorting.counts->in_class + c, in_class[c]);
    atomicAdd(sorting.counts->voxels + c, voxels[c]);
  }
}

__global__ void __launch_bounds__(kThreads) MembersKernel(Sorting sorting) {
  const int64_t row = GlobalThread();
  if (row >= sorting.num_rows) return;
  const Coordinate c = sorting.rows[row];
  const PshSample& sample = sorting.samples[c.b];
  uint32_t p[3];
  ToVoxel(c, sample, sorting.stride, p);
  const uint32_t h0 = PackPhi(sample.mod_m(p[0]), sample.mod_m(p[1]), sample.mod_m(p[2]));
  sorting.members[sorting.begin[sorting.bucket_of[row]] + sorting.rank[row]] = {
      h0, static_cast<int32_t>(row)};
}

// Lists the buckets of two voxels and more by size, those of a size in any order.
__global__ void __launch_bounds__(kThreads) OrderKernel(Sorting sorting) {
  __shared__ uint32_t first[kPshClasses], listed[kPshClasses];
  for (int c = threadIdx.x; c < kPshClasses; c += kThreads) {
    first[c] = listed[c] = 0;
    for (int larger = c + 1; larger < kPshClasses; ++larger) {
      first[c] += sorting.counts->in_class[larger];
    }
  }
  __syncthreads();
  const int64_t bucket = GlobalThread();
  const uint32_t size = bucket < sorting.num_buckets ? sorting.size[bucket] : 0;
  const int c = ClassOf(size);
  uint32_t place = 0;
  if (size >= 2) place = atomicAdd(listed + c, 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < kPshClasses; i += kThreads) {
    if (listed[i] > 0) first[i] += atomicAdd(sorting.counts->listed + i, listed[i]);
  }
  __syncthreads();
  if (size >= 2) sorting.order[first[c] + place] = static_cast<uint32_t>(bucket);
}

struct HasOneVoxel {
  const uint32_t* size;
  __device__ bool operator()(int32_t bucket) const { return size[bucket] == 1; }
};
struct IsFree {
  const int32_t* h;
  __device__ bool operator()(int32_t slot) const { return h[slot] < 0; }
};

// Numbers in ascending order.
struct Selected {
  Array<int32_t> numbers;
  const int32_t* count;  // in device memory
};

// The first of `numbers` that is not below `bound`.
__device__ int32_t LowerBound(const int32_t* numbers, int32_t count, int64_t bound) {
  int32_t first = 0;
  while (count > 0) {
    const int32_t half = count / 2;
    if (numbers[first + half] < bound) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

// The i-th bucket of one voxel of a sample gets the i-th slot that the other buckets left.
__global__ void __launch_bounds__(kThreads)
    PlaceSinglesKernel(PshBuckets buckets, const int32_t* singles, const int32_t* num_singles,
                       const int32_t* slots, const int32_t* num_slots) {
  const int64_t i = GlobalThread();
  if (i >= *num_singles) return;
  const int32_t bucket = singles[i];
  const PshMember member = buckets.members[buckets.begin[bucket]];
  const PshSample& sample = buckets.samples[buckets.SampleOf(member.row)];
  int64_t at = i;
  if (buckets.num_samples > 1) {
    at += LowerBound(slots, *num_slots, sample.first_slot) -
          LowerBound(singles, *num_singles, sample.first_phi);
  }
  const int32_t slot = slots[at];
  const uint32_t m = sample.m_bar;
  const auto number = static_cast<uint32_t>(slot - sample.first_slot);
  const uint32_t x = number / (m * m), y = number / m % m, z = number % m;
  const uint32_t h0 = member.h0;
  buckets.phi[bucket] =
      PackPhi(sample.Wrap(x + m - (h0 >> (2 * kPhiBits))),
              sample.Wrap(y + m - (h0 >> kPhiBits) % kMaxMBar), sample.Wrap(z + m - h0 % kMaxMBar));
  buckets.h[slot] = member.row;
}

template <typename Tag>
__global__ void __launch_bounds__(kThreads)
    TagKernel(const Coordinate* rows, Int3 stride, const PshSample* samples, const int32_t* h,
              int64_t num_slots, Tag* tags) {
  const int64_t slot = GlobalThread();
  if (slot >= num_slots) return;
  uint32_t p[3] = {0, 0, 0};
  if (const int32_t row = h[slot]; row >= 0) {
    ToVoxel(rows[row], samples[rows[row].b], stride, p);
  }
  for (int axis = 0; axis < 3; ++axis) tags[3 * slot + axis] = static_cast<Tag>(p[axis]);
}

absl::StatusOr<std::vector<unsigned long long>> CountSamples(const CoordinateSet& voxels,
                                                             const ExecutionContext& context) {
  if (voxels.num_batches() == 1) {
    return std::vector<unsigned long long>{static_cast<unsigned long long>(voxels.size())};
  }
  VOXCONV_ASSIGN_OR_RETURN(Array<unsigned long long> counts,
                           AllocateArray<unsigned long long>(kMaxBatch + 1, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(counts.data(), 0, counts.bytes(), *context.stream));
  VOXCONV_LAUNCH(CountSamplesKernel, GridFor(voxels.size(), kThreads), kThreads, 0, context,
                 voxels.rows().data(), voxels.size(), counts.data());
  return CopyToHost(counts, context);
}

template <typename Tag>
absl::StatusOr<Array<Tag>> MakeTags(const CoordinateSet& voxels, const PshCuda& psh,
                                    const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<Tag> tags, AllocateArray<Tag>(3 * psh.h.size(), context));
  VOXCONV_LAUNCH(TagKernel<Tag>, GridFor(psh.h.size(), kThreads), kThreads, 0, context,
                 voxels.rows().data(), voxels.tensor_stride(), psh.samples.data(), psh.h.data(),
                 psh.h.size(), tags.data());
  return tags;
}

// The sizes of every sample's tables, in growing tries.
class Samples {
 public:
  Samples(const CoordinateSet& voxels, const std::vector<unsigned long long>& counts,
          const PshOptions& options)
      : voxels_(voxels) {
    for (int32_t b = 0; b < voxels.num_batches(); ++b) {
      sizes_.emplace_back();
      if (counts[b] > 0)
        sizes_.back().emplace(static_cast<int64_t>(counts[b]), options, kFirstBucketSize);
    }
  }

  // The next try: all samples at first, then those that failed.
  absl::Status Grow(const std::vector<int32_t>& failed) {
    for (size_t b = 0; b < sizes_.size(); ++b) {
      if (!sizes_[b].has_value() || (!failed.empty() && failed[b] == 0)) continue;
      if (absl::Status status = sizes_[b]->Next(); !status.ok()) {
        return absl::Status(status.code(), absl::StrCat("sample ", b, ": ", status.message()));
      }
    }
    Lay();
    return absl::OkStatus();
  }

  const std::vector<PshSample>& tables() const { return tables_; }
  const std::vector<PshFreeBits>& free_bits() const { return free_bits_; }
  int64_t num_slots() const { return num_slots_; }
  int64_t num_buckets() const { return num_buckets_; }
  int64_t num_words() const { return num_words_; }
  int num_filled() const { return num_filled_; }

 private:
  // The tables of all samples, one after the other. All are relative to the corner of the set's
  // bounds, which the host need not ask the device for.
  void Lay() {
    tables_.assign(sizes_.size(), {});
    free_bits_.assign(sizes_.size(), {});
    num_slots_ = num_buckets_ = num_words_ = 0;
    num_filled_ = 0;
    const Box& bounds = voxels_.bounds();
    for (size_t b = 0; b < sizes_.size(); ++b) {
      if (!sizes_[b].has_value()) continue;
      const int64_t m_bar = sizes_[b]->m_bar(), r_bar = sizes_[b]->r_bar();
      PshSample& sample = tables_[b];
      sample.lo = bounds.lo;
      for (int axis = 0; axis < 3; ++axis) {
        sample.span[axis] = static_cast<uint32_t>(bounds.hi[axis] - bounds.lo[axis]);
      }
      sample.m_bar = static_cast<uint32_t>(m_bar);
      sample.r_bar = static_cast<uint32_t>(r_bar);
      sample.mod_m = FastMod(sample.m_bar);
      sample.mod_r = FastMod(sample.r_bar);
      sample.first_slot = num_slots_;
      sample.first_phi = num_buckets_;
      free_bits_[b] = {num_words_, PshFreeBits::WordsPerLine(sizes_[b]->m_bar())};
      num_slots_ += m_bar * m_bar * m_bar;
      num_buckets_ += r_bar * r_bar * r_bar;
      num_words_ += m_bar * m_bar * free_bits_[b].words_per_line;
      ++num_filled_;
    }
  }

  const CoordinateSet& voxels_;
  std::vector<std::optional<PshSizes>> sizes_;  // of samples with voxels
  std::vector<PshSample> tables_;
  std::vector<PshFreeBits> free_bits_;
  int64_t num_slots_ = 0, num_buckets_ = 0, num_words_ = 0;
  int num_filled_ = 0;
};

bool FitsNarrowTags(const CoordinateSet& voxels) {
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t span = int64_t{voxels.bounds().hi[axis]} - voxels.bounds().lo[axis];
    if (span / voxels.tensor_stride()[axis] > UINT16_MAX) return false;
  }
  return true;
}

template <typename Predicate>
absl::StatusOr<Selected> Select(int64_t size, const Predicate& predicate,
                                const ExecutionContext& context) {
  Selected selected;
  VOXCONV_ASSIGN_OR_RETURN(selected.numbers, AllocateArray<int32_t>(size + 1, context));
  int32_t* const count = selected.numbers.data() + size;
  selected.count = count;
  VOXCONV_RETURN_IF_ERROR(RunCub(context, [&](void* temp, size_t& bytes) {
    return cub::DeviceSelect::If(temp, bytes, thrust::counting_iterator<int32_t>(0),
                                 selected.numbers.data(), count, static_cast<int>(size), predicate,
                                 CudaStreamOf(context));
  }));
  return selected;
}

absl::Status PlaceSingles(const PshBuckets& buckets, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const Selected singles,
                           Select(buckets.num_buckets, HasOneVoxel{buckets.size}, context));
  VOXCONV_ASSIGN_OR_RETURN(const Selected slots,
                           Select(buckets.num_slots, IsFree{buckets.h}, context));
  const int64_t most = std::min(buckets.num_voxels, int64_t{buckets.num_buckets});
  VOXCONV_LAUNCH(PlaceSinglesKernel, GridFor(most, kThreads), kThreads, 0, context, buckets,
                 singles.numbers.data(), singles.count, slots.numbers.data(), slots.count);
  return absl::OkStatus();
}

// One try with sizes given by `samples`; which samples failed.
absl::StatusOr<std::vector<int32_t>> TryPlace(const CoordinateSet& voxels, const Samples& samples,
                                              PshCuda& psh, const ExecutionContext& context) {
  const int64_t num_rows = voxels.size(), num_buckets = samples.num_buckets();
  const auto words = [](auto& array, uint32_t value) -> Initial::Words {
    return {reinterpret_cast<uint32_t*>(array.data()),
            array.bytes() / static_cast<int64_t>(sizeof(uint32_t)), value};
  };
  VOXCONV_ASSIGN_OR_RETURN(psh.h, AllocateArray<int32_t>(samples.num_slots(), context));
  VOXCONV_ASSIGN_OR_RETURN(psh.phi, AllocateArray<uint32_t>(num_buckets, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> free_bits,
                           AllocateArray<uint32_t>(samples.num_words(), context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> failed,
                           AllocateArray<int32_t>(samples.tables().size(), context));
  VOXCONV_ASSIGN_OR_RETURN(Array<PshCounts> counts, AllocateArray<PshCounts>(1, context));
  // bucket_of and rank; size and cursor
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> by_row, AllocateArray<uint32_t>(2 * num_rows, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> zeroed,
                           AllocateArray<uint32_t>(2 * num_buckets, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> begin, AllocateArray<uint32_t>(num_buckets, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<PshMember> members, AllocateArray<PshMember>(num_rows, context));
  // Three lists of buckets of two voxels and more.
  const int64_t most = num_rows / 2;
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> lists, AllocateArray<uint32_t>(3 * most, context));
  const Initial initial{{words(psh.h, ~0u), words(psh.phi, 0), words(free_bits, ~0u),
                         words(failed, 0), words(counts, 0), words(zeroed, 0)}};
  const int64_t longest = std::max({psh.h.size(), free_bits.size(), zeroed.size()});
  VOXCONV_LAUNCH(FillKernel, GridFor(longest, kThreads), kThreads, 0, context, initial);
  VOXCONV_ASSIGN_OR_RETURN(psh.samples, CopyToBackend<PshSample>(samples.tables(), context));
  VOXCONV_ASSIGN_OR_RETURN(const Array<PshFreeBits> bits,
                           CopyToBackend<PshFreeBits>(samples.free_bits(), context));

  const Sorting sorting{voxels.rows().data(),
                        num_rows,
                        voxels.tensor_stride(),
                        psh.samples.data(),
                        static_cast<uint32_t>(num_buckets),
                        by_row.data(),
                        by_row.data() + num_rows,
                        zeroed.data(),
                        begin.data(),
                        members.data(),
                        lists.data(),
                        counts.data()};
  const dim3 of_rows = GridFor(num_rows, kThreads), of_buckets = GridFor(num_buckets, kThreads);
  VOXCONV_LAUNCH(AssignKernel, of_rows, kThreads, 0, context, sorting);
  VOXCONV_LAUNCH(BeginKernel, of_buckets, kThreads, 0, context, sorting);
  VOXCONV_LAUNCH(MembersKernel, of_rows, kThreads, 0, context, sorting);
  VOXCONV_LAUNCH(OrderKernel, of_buckets, kThreads, 0, context, sorting);

  PshBuckets buckets{};
  buckets.samples = psh.samples.data();
  buckets.bits = bits.data();
  buckets.num_samples = static_cast<int>(psh.samples.size());
  buckets.num_filled_samples = samples.num_filled();
  buckets.num_slots = samples.num_slots();
  buckets.num_voxels = num_rows;
  buckets.num_buckets = sorting.num_buckets;
  buckets.size = sorting.size;
  buckets.begin = sorting.begin;
  buckets.members = sorting.members;
  buckets.batch_of_row = &voxels.rows().data()->b;
  buckets.order = lists.data();
  buckets.lists[0] = lists.data() + most;
  buckets.lists[1] = lists.data() + 2 * most;
  buckets.cursor = zeroed.data() + num_buckets;
  buckets.counts = counts.data();
  buckets.free_bits = free_bits.data();
  buckets.h = psh.h.data();
  buckets.phi = psh.phi.data();
  buckets.failed = failed.data();
  VOXCONV_RETURN_IF_ERROR(PlaceBuckets(buckets, context));
  VOXCONV_RETURN_IF_ERROR(PlaceSingles(buckets, context));
  // Queued before it is known whether the try failed, so that the device does not wait for the
  // host.
  if (FitsNarrowTags(voxels)) {
    VOXCONV_ASSIGN_OR_RETURN(psh.tags, MakeTags<uint16_t>(voxels, psh, context));
  } else {
    VOXCONV_ASSIGN_OR_RETURN(psh.tags, MakeTags<uint32_t>(voxels, psh, context));
  }
  return CopyToHost(failed, context);
}

// The most slots and offsets of all samples: kernels number them with 31 bits.
absl::Status CheckSizes(const CoordinateSet& voxels, const Samples& samples) {
  for (const auto& [what, size] :
       {std::pair{"slots", samples.num_slots()}, std::pair{"offsets", samples.num_buckets()}}) {
    if (size <= INT32_MAX) continue;
    return absl::ResourceExhaustedError(absl::StrCat("perfect hash of ", voxels.size(),
                                                     " voxels on the device: ", size, " ", what,
                                                     "; at most 2^31 - 1 are allowed"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PshCuda> BuildPshOnDevice(const CoordinateSet& voxels, const PshOptions& options,
                                         const ExecutionContext& context) {
  PshCuda psh;
  psh.stride = voxels.tensor_stride();
  if (voxels.size() == 0) return psh;
  VOXCONV_ASSIGN_OR_RETURN(const auto counts, CountSamples(voxels, context));
  Samples samples(voxels, counts, options);
  std::vector<int32_t> failed;
  do {
    VOXCONV_RETURN_IF_ERROR(samples.Grow(failed));
    VOXCONV_RETURN_IF_ERROR(CheckSizes(voxels, samples));
    VOXCONV_ASSIGN_OR_RETURN(failed, TryPlace(voxels, samples, psh, context));
  } while (std::any_of(failed.begin(), failed.end(), [](int32_t f) { return f != 0; }));
  return psh;
}

}  // namespace voxconv
