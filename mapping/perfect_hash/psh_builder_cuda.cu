// SPDX-License-Identifier: Apache-2.0
// Lefebvre and Hoppe's construction, many buckets at once. Buckets are taken in descending size, as
// on the host, but by a warp each: it looks for an offset under which its voxels meet free slots,
// claims these one by one, and gives them back where another warp was faster.
#include <algorithm>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <optional>
#include <utility>
#include <vector>

#include "absl/numeric/bits.h"
#include "absl/strings/str_cat.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/mapping/perfect_hash/psh_cuda.h"

namespace voxconv {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
// Passes over all offsets for one bucket: slots that were taken only for a moment, by a warp that
// gave them back, may make one fail for nothing.
constexpr int kMaxPasses = 2;

// The rows and where they belong.
struct Buckets {
  const Coordinate* rows;
  int64_t num_rows;
  Int3 stride;
  const PshSample* samples;
  uint32_t* bucket_of;  // [rows]
  uint32_t* h0_of;      // [rows], packed as phi
  uint32_t* size;       // [buckets]: h1 of all samples
  uint32_t* rank;       // [rows]: place in its bucket
  uint32_t* begin;      // [buckets]
  int32_t* members;     // [rows], by bucket
};

// What is constructed.
struct Tables {
  int32_t* h;
  uint32_t* phi;
  int32_t* failed;  // [samples]
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

__global__ void __launch_bounds__(kThreads) AssignKernel(Buckets buckets) {
  const int64_t row = GlobalThread();
  if (row >= buckets.num_rows) return;
  const Coordinate c = buckets.rows[row];
  const PshSample& sample = buckets.samples[c.b];
  uint32_t p[3];
  ToVoxel(c, sample, buckets.stride, p);
  const auto bucket = static_cast<uint32_t>(sample.PhiIndex(p));
  buckets.bucket_of[row] = bucket;
  buckets.h0_of[row] = PackPhi(sample.mod_m(p[0]), sample.mod_m(p[1]), sample.mod_m(p[2]));
  buckets.rank[row] = atomicAdd(buckets.size + bucket, 1u);
}

__global__ void __launch_bounds__(kThreads) MembersKernel(Buckets buckets) {
  const int64_t row = GlobalThread();
  if (row >= buckets.num_rows) return;
  buckets.members[buckets.begin[buckets.bucket_of[row]] + buckets.rank[row]] =
      static_cast<int32_t>(row);
}

__global__ void __launch_bounds__(kThreads) NumberKernel(uint32_t* numbers, int64_t size) {
  if (const int64_t i = GlobalThread(); i < size) numbers[i] = static_cast<uint32_t>(i);
}

enum class Claim { kDone, kTaken, kDuplicate };

// One bucket and the warp that places it.
struct Placer {
  const Buckets& buckets;
  const Tables& tables;
  const PshSample& sample;
  uint32_t bucket;
  const int32_t* members;
  int size;
  int lane;

  __device__ int64_t SlotOf(int j, uint32_t phi) const {
    const uint32_t h0 = buckets.h0_of[members[j]];
    return sample.SlotOf(h0 >> (2 * kPhiBits), (h0 >> kPhiBits) % kMaxMBar, h0 % kMaxMBar, phi);
  }
  __device__ bool IsFree(int64_t slot) const {
    return *const_cast<const volatile int32_t*>(tables.h + slot) < 0;
  }
  __device__ bool AllFree(uint32_t phi) const {
    for (int j = 0; j < size; ++j) {
      if (!IsFree(SlotOf(j, phi))) return false;
    }
    return true;
  }

  // All members' slots under phi, or none.
  __device__ Claim TryClaim(uint32_t phi) const {
    bool taken = false, duplicate = false;
    int claimed = 0;  // of this lane's members
    for (int j = lane; j < size && !taken; j += kWarp) {
      const int32_t other = atomicCAS(tables.h + SlotOf(j, phi), -1, members[j]);
      taken = other >= 0;
      // A voxel of the same bucket: the two agree in h0 and h1, and no offset parts them.
      duplicate = taken && buckets.bucket_of[other] == bucket;
      claimed += !taken;
    }
    if (!__any_sync(~0u, taken)) return Claim::kDone;
    for (int j = lane; claimed > 0; j += kWarp, --claimed) {
      atomicExch(tables.h + SlotOf(j, phi), -1);
    }
    return __any_sync(~0u, duplicate) ? Claim::kDuplicate : Claim::kTaken;
  }

  // The offset at position `index` of the search: 0 first, with which a full block of voxels fits
  // as it lies, then all in turn from one of the bucket's own.
  __device__ uint32_t PhiAt(uint64_t index, uint64_t start, uint64_t num_offsets) const {
    uint64_t number = index == 0 ? 0 : start + index;
    if (number >= num_offsets) number -= num_offsets;
    const auto n = static_cast<uint32_t>(number);
    return PackPhi(n / (sample.m_bar * sample.m_bar), n / sample.m_bar % sample.m_bar,
                   n % sample.m_bar);
  }

  __device__ bool Run() const {
    const uint64_t num_offsets = uint64_t{sample.m_bar} * sample.m_bar * sample.m_bar;
    const uint64_t start = bucket * uint64_t{0x9e3779b97f4a7c15} % num_offsets;
    const auto sample_index = static_cast<int>(&sample - buckets.samples);
    for (int pass = 0; pass < kMaxPasses; ++pass) {
      for (uint64_t first = 0; first <= num_offsets; first += kWarp) {
        const uint64_t index = first + lane;
        const uint32_t phi = index <= num_offsets ? PhiAt(index, start, num_offsets) : 0;
        unsigned candidates = __ballot_sync(~0u, index <= num_offsets && AllFree(phi));
        for (; candidates != 0; candidates &= candidates - 1) {
          const uint32_t chosen = __shfl_sync(~0u, phi, __ffs(static_cast<int>(candidates)) - 1);
          const Claim claim = TryClaim(chosen);
          if (claim == Claim::kDuplicate) return false;
          if (claim == Claim::kTaken) continue;
          if (lane == 0) tables.phi[bucket] = chosen;
          return true;
        }
        // Another bucket of the sample failed: all is tried again anyway.
        const bool given_up =
            *const_cast<const volatile int32_t*>(tables.failed + sample_index) != 0;
        if (__any_sync(~0u, given_up)) return false;
      }
    }
    return false;
  }
};

__global__ void __launch_bounds__(kThreads)
    PlaceKernel(Buckets buckets, Tables tables, const uint32_t* order, int64_t num_buckets) {
  const int64_t warp = GlobalThread() / kWarp;
  if (warp >= num_buckets) return;
  const uint32_t bucket = order[warp];
  const int size = static_cast<int>(buckets.size[bucket]);
  if (size == 0) return;
  const int32_t* members = buckets.members + buckets.begin[bucket];
  const int32_t batch = buckets.rows[members[0]].b;
  const Placer placer{buckets,
                      tables,
                      buckets.samples[batch],
                      bucket,
                      members,
                      size,
                      static_cast<int>(threadIdx.x % kWarp)};
  if (!placer.Run()) tables.failed[batch] = 1;
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
  VOXCONV_ASSIGN_OR_RETURN(Array<unsigned long long> counts,
                           AllocateArray<unsigned long long>(kMaxBatch + 1, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(counts.data(), 0, counts.bytes(), *context.stream));
  VOXCONV_LAUNCH(CountSamplesKernel, GridFor(voxels.size(), kThreads), kThreads, 0, context,
                 voxels.rows().data(), voxels.size(), counts.data());
  return CopyToHost(counts, context);
}

// One try with sizes given by `samples`; which samples failed.
absl::StatusOr<std::vector<int32_t>> TryPlace(const CoordinateSet& voxels, int64_t num_buckets,
                                              int64_t num_slots, PshCuda& psh,
                                              const ExecutionContext& context) {
  const int64_t num_rows = voxels.size();
  const auto fill = [&](auto& array, uint8_t value) {
    return context.backend->FillBytes(array.data(), value, array.bytes(), *context.stream);
  };
  VOXCONV_ASSIGN_OR_RETURN(psh.h, AllocateArray<int32_t>(num_slots, context));
  VOXCONV_ASSIGN_OR_RETURN(psh.phi, AllocateArray<uint32_t>(num_buckets, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> failed,
                           AllocateArray<int32_t>(psh.samples.size(), context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> by_row, AllocateArray<uint32_t>(3 * num_rows, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> members, AllocateArray<int32_t>(num_rows, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> size, AllocateArray<uint32_t>(num_buckets, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> by_bucket,
                           AllocateArray<uint32_t>(4 * num_buckets, context));
  VOXCONV_RETURN_IF_ERROR(fill(psh.h, 0xff));
  VOXCONV_RETURN_IF_ERROR(fill(psh.phi, 0));
  VOXCONV_RETURN_IF_ERROR(fill(failed, 0));
  VOXCONV_RETURN_IF_ERROR(fill(size, 0));

  uint32_t* begin = by_bucket.data();
  uint32_t *numbers = begin + num_buckets, *sorted_size = numbers + num_buckets,
           *order = sorted_size + num_buckets;
  const Buckets buckets{voxels.rows().data(),
                        num_rows,
                        voxels.tensor_stride(),
                        psh.samples.data(),
                        by_row.data(),
                        by_row.data() + num_rows,
                        size.data(),
                        by_row.data() + 2 * num_rows,
                        begin,
                        members.data()};
  const dim3 grid = GridFor(num_rows, kThreads);
  VOXCONV_LAUNCH(AssignKernel, grid, kThreads, 0, context, buckets);
  VOXCONV_RETURN_IF_ERROR(RunCub(context, [&](void* temp, size_t& bytes) {
    return cub::DeviceScan::ExclusiveSum(temp, bytes, size.data(), begin, num_buckets,
                                         CudaStreamOf(context));
  }));
  VOXCONV_LAUNCH(MembersKernel, grid, kThreads, 0, context, buckets);
  VOXCONV_LAUNCH(NumberKernel, GridFor(num_buckets, kThreads), kThreads, 0, context, numbers,
                 num_buckets);
  VOXCONV_RETURN_IF_ERROR(RunCub(context, [&](void* temp, size_t& bytes) {
    return cub::DeviceRadixSort::SortPairsDescending(
        temp, bytes, size.data(), sorted_size, numbers, order, num_buckets, 0,
        static_cast<int>(absl::bit_width(static_cast<uint64_t>(num_rows))), CudaStreamOf(context));
  }));
  const Tables tables{psh.h.data(), psh.phi.data(), failed.data()};
  VOXCONV_LAUNCH(PlaceKernel, GridFor(num_buckets * kWarp, kThreads), kThreads, 0, context, buckets,
                 tables, order, num_buckets);
  return CopyToHost(failed, context);
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
      if (counts[b] > 0) sizes_.back().emplace(static_cast<int64_t>(counts[b]), options);
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
    return absl::OkStatus();
  }

  // All relative to the corner of the set's bounds, which the host need not ask the device for.
  std::vector<PshSample> Make() {
    std::vector<PshSample> samples(sizes_.size());
    num_slots_ = num_buckets_ = 0;
    for (size_t b = 0; b < sizes_.size(); ++b) {
      if (!sizes_[b].has_value()) continue;
      const Box& bounds = voxels_.bounds();
      const int64_t m_bar = sizes_[b]->m_bar(), r_bar = sizes_[b]->r_bar();
      PshSample& sample = samples[b];
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
      num_slots_ += m_bar * m_bar * m_bar;
      num_buckets_ += r_bar * r_bar * r_bar;
    }
    return samples;
  }
  int64_t num_slots() const { return num_slots_; }
  int64_t num_buckets() const { return num_buckets_; }

 private:
  const CoordinateSet& voxels_;
  std::vector<std::optional<PshSizes>> sizes_;  // of samples with voxels
  int64_t num_slots_ = 0, num_buckets_ = 0;
};

bool FitsNarrowTags(const CoordinateSet& voxels) {
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t span = int64_t{voxels.bounds().hi[axis]} - voxels.bounds().lo[axis];
    if (span / voxels.tensor_stride()[axis] > UINT16_MAX) return false;
  }
  return true;
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
    const std::vector<PshSample> host = samples.Make();
    if (samples.num_buckets() > UINT32_MAX) {
      return absl::ResourceExhaustedError(absl::StrCat("perfect hash of ", voxels.size(),
                                                       " voxels: ", samples.num_buckets(),
                                                       " offsets; at most 2^32 are allowed"));
    }
    VOXCONV_ASSIGN_OR_RETURN(psh.samples, CopyToBackend<PshSample>(host, context));
    VOXCONV_ASSIGN_OR_RETURN(
        failed, TryPlace(voxels, samples.num_buckets(), samples.num_slots(), psh, context));
  } while (std::any_of(failed.begin(), failed.end(), [](int32_t f) { return f != 0; }));
  if (FitsNarrowTags(voxels)) {
    VOXCONV_ASSIGN_OR_RETURN(psh.tags, MakeTags<uint16_t>(voxels, psh, context));
  } else {
    VOXCONV_ASSIGN_OR_RETURN(psh.tags, MakeTags<uint32_t>(voxels, psh, context));
  }
  return psh;
}

}  // namespace voxconv
