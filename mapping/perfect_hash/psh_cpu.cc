// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/perfect_hash/psh_cpu.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cpu/parallel.h"

namespace voxconv {
namespace {

absl::Status OutOfMemory(int64_t voxels) {
  return absl::ResourceExhaustedError(
      absl::StrCat("perfect hash of ", voxels, " voxels: out of memory for its construction"));
}

}  // namespace

// The rows of one sample, and its voxels in hash coordinates.
struct SuperPsh::Rows {
  std::vector<int32_t> row;
  std::vector<PshVoxel> voxels;
  Int3 lo, hi;
};

std::vector<SuperPsh::Rows> SuperPsh::SplitBySample(const CoordinateSet& voxels) {
  std::vector<Rows> samples(voxels.num_batches());
  const Coordinate* rows = voxels.rows().data();
  for (int64_t i = 0; i < voxels.size(); ++i) {
    Rows& sample = samples[rows[i].b];
    const Int3 p = rows[i].position();
    if (sample.row.empty()) sample.lo = sample.hi = p;
    for (int axis = 0; axis < 3; ++axis) {
      sample.lo[axis] = std::min(sample.lo[axis], p[axis]);
      sample.hi[axis] = std::max(sample.hi[axis], p[axis]);
    }
    sample.row.push_back(static_cast<int32_t>(i));
  }
  const Int3& stride = voxels.tensor_stride();
  for (Rows& sample : samples) {
    sample.voxels.reserve(sample.row.size());
    for (int32_t row : sample.row) {
      const Int3 p = rows[row].position();
      PshVoxel& voxel = sample.voxels.emplace_back();
      for (int axis = 0; axis < 3; ++axis) {
        voxel[axis] = static_cast<uint32_t>(p[axis] - sample.lo[axis]) / stride[axis];
      }
    }
  }
  return samples;
}

absl::StatusOr<SuperPsh> SuperPsh::Build(const CoordinateSet& voxels, const PshOptions& options,
                                         const ExecutionContext& context) {
  try {
    return BuildOrThrow(voxels, options, context);
  } catch (const std::bad_alloc&) {
    return OutOfMemory(voxels.size());
  }
}

absl::StatusOr<SuperPsh> SuperPsh::BuildOrThrow(const CoordinateSet& voxels,
                                                const PshOptions& options,
                                                const ExecutionContext& context) {
  const std::vector<Rows> rows = SplitBySample(voxels);
  const int64_t num_samples = static_cast<int64_t>(rows.size());
  std::vector<absl::StatusOr<PshHash>> hashes(num_samples);
  ParallelRanges(context, num_samples, 1, [&](int64_t b, int64_t) {
    try {
      hashes[b] = BuildPshHash(rows[b].voxels, options);
    } catch (const std::bad_alloc&) {
      hashes[b] = OutOfMemory(static_cast<int64_t>(rows[b].voxels.size()));
    }
  });

  SuperPsh psh;
  psh.stride_ = voxels.tensor_stride();
  psh.m_ = psh.r_ = psh.n_ = {0};
  bool narrow = true;
  for (int64_t b = 0; b < num_samples; ++b) {
    if (!hashes[b].ok()) {
      return absl::Status(hashes[b].status().code(),
                          absl::StrCat("sample ", b, ": ", hashes[b].status().message()));
    }
    const PshHash& hash = *hashes[b];
    const PshSize size{static_cast<int64_t>(rows[b].row.size()), hash.m_bar, hash.r_bar,
                       hash.tries};
    PshSample& sample = psh.samples_.emplace_back();
    sample.first_slot = psh.m_.back();
    sample.first_phi = psh.r_.back();
    if (size.n > 0) {
      sample.lo = rows[b].lo;
      sample.m_bar = hash.m_bar;
      sample.r_bar = hash.r_bar;
      sample.mod_m = FastMod(hash.m_bar);
      sample.mod_r = FastMod(hash.r_bar);
    }
    for (int axis = 0; axis < 3; ++axis) {
      sample.span[axis] = static_cast<uint32_t>(rows[b].hi[axis] - rows[b].lo[axis]);
      narrow = narrow && sample.span[axis] / psh.stride_[axis] <= UINT16_MAX;
    }
    psh.m_.push_back(psh.m_.back() + size.slots());
    psh.r_.push_back(psh.r_.back() + size.phi_entries());
    psh.n_.push_back(psh.n_.back() + size.n);
    psh.sizes_.push_back(size);
  }
  VOXCONV_RETURN_IF_ERROR(psh.Allocate(narrow, context));
  ParallelRanges(context, num_samples, 1,
                 [&](int64_t b, int64_t) { psh.FillSample(b, rows[b], *hashes[b]); });
  return psh;
}

absl::Status SuperPsh::Allocate(bool narrow, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(h_, AllocateArray<int32_t>(m_.back(), context));
  VOXCONV_ASSIGN_OR_RETURN(phi_, AllocateArray<uint32_t>(r_.back(), context));
  VOXCONV_ASSIGN_OR_RETURN(v_, AllocateArray<uint16_t>(m_.back(), context));
  if (narrow) {
    VOXCONV_ASSIGN_OR_RETURN(tags_, AllocateArray<uint16_t>(3 * m_.back(), context));
  } else {
    VOXCONV_ASSIGN_OR_RETURN(tags_, AllocateArray<uint32_t>(3 * m_.back(), context));
  }
  return absl::OkStatus();
}

void SuperPsh::FillSample(int64_t sample, const Rows& rows, const PshHash& hash) {
  const int64_t first = m_[sample];
  const int64_t last = m_[sample + 1];
  std::copy(hash.phi.begin(), hash.phi.end(), phi_.data() + r_[sample]);
  std::fill(h_.data() + first, h_.data() + last, -1);
  std::fill(v_.data() + first, v_.data() + last, static_cast<uint16_t>(sample));
  std::visit(
      [&](auto& tags) {
        std::fill(tags.data() + 3 * first, tags.data() + 3 * last, 0);
        for (size_t i = 0; i < rows.row.size(); ++i) {
          const int64_t slot = first + hash.slot[i];
          h_.data()[slot] = rows.row[i];
          std::copy(rows.voxels[i].begin(), rows.voxels[i].end(), tags.data() + 3 * slot);
        }
      },
      tags_);
}

int64_t SuperPsh::bytes() const {
  const int64_t tags = std::visit([](const auto& t) { return t.bytes(); }, tags_);
  const int64_t accumulated = static_cast<int64_t>((m_.size() + r_.size() + n_.size()) * 8);
  return h_.bytes() + phi_.bytes() + v_.bytes() + tags + accumulated;
}

}  // namespace voxconv
