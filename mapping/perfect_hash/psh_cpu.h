// Perfect spatial hashing of a batch: H-CNN's super-PSH (Section 3).
#ifndef VOXCONV_MAPPING_PERFECT_HASH_PSH_CPU_H_
#define VOXCONV_MAPPING_PERFECT_HASH_PSH_CPU_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "core/backend.h"
#include "core/coordinate_set.h"
#include "mapping/perfect_hash/psh_builder_cpu.h"

namespace voxconv {

// Remainders by a fixed divisor without a division (Lemire, Kaser and Kurz, 2019).
class FastMod {
 public:
  FastMod() = default;
  explicit FastMod(uint32_t divisor) : divisor_(divisor), inverse_(UINT64_MAX / divisor + 1) {}
  uint32_t operator()(uint32_t value) const {
    const uint64_t fraction = inverse_ * value;
    return static_cast<uint32_t>(static_cast<unsigned __int128>(fraction) * divisor_ >> 64);
  }

 private:
  uint32_t divisor_ = 1;
  uint64_t inverse_ = 0;
};

// The sizes of one sample's tables.
struct PshSize {
  int64_t n = 0;      // voxels
  int32_t m_bar = 0;  // H, T and V have m_bar^3 slots
  int32_t r_bar = 0;  // Phi has r_bar^3 entries
  int tries = 0;      // of the construction

  int64_t slots() const { return int64_t{m_bar} * m_bar * m_bar; }
  int64_t phi_entries() const { return int64_t{r_bar} * r_bar * r_bar; }
};

// h(p) = (h0(p) + Phi[h1(p)]) mod m_bar, h0 = p mod m_bar, h1 = p mod r_bar (Equation 1), for p in
// units of the tensor stride relative to the lower corner of the voxel's sample. The tables of all
// samples lie one after the other: sample b's slots at [M[b], M[b + 1]) and its part of Phi at
// [R[b], R[b + 1]). H holds rows of the coordinate set, which a sample's voxels need not occupy in
// one piece, where the paper holds positions within the sample; N is thus not needed to look up.
class SuperPsh {
 public:
  // Samples are built in parallel; the result does not depend on the number of threads. Errors:
  // those of BuildPshHash, and lack of memory.
  static absl::StatusOr<SuperPsh> Build(const CoordinateSet& voxels, const PshOptions& options,
                                        const ExecutionContext& context);

  // Row of the voxel at (batch, position), -1 if there is none: refused by H = -1 or T != p, or
  // for lying outside the sample's box or between its voxels' lattice. Any values are allowed.
  int32_t Find(int32_t batch, const Int3& position) const {
    return std::visit([&](const auto& tags) { return FindWith(tags.data(), batch, position); },
                      tags_);
  }
  // As Find, for a caller that has looked up the type of tags once: f(tags) is called with T's
  // data, and FindWith takes it.
  template <typename F>
  auto WithTags(const F& f) const {
    return std::visit([&](const auto& tags) { return f(tags.data()); }, tags_);
  }
  template <typename Tag>
  int32_t FindWith(const Tag* tags, int32_t batch, const Int3& position) const;

  const std::vector<PshSize>& sizes() const { return sizes_; }
  // Whether T has 3 x 16 bits as in the paper, or 3 x 32 because a sample is wider than 65,536.
  bool has_narrow_tags() const { return std::holds_alternative<Array<uint16_t>>(tags_); }
  // Bytes of H, Phi, T, V, M, R and N, all of them overhead over the data array D.
  int64_t bytes() const;

  const Array<int32_t>& h() const { return h_; }
  const Array<uint32_t>& phi() const { return phi_; }
  // Sample of every slot.
  const Array<uint16_t>& v() const { return v_; }
  // Accumulated slots, offset entries and voxels, [samples + 1].
  const std::vector<int64_t>& m() const { return m_; }
  const std::vector<int64_t>& r() const { return r_; }
  const std::vector<int64_t>& n() const { return n_; }

 private:
  // What looking up in one sample takes beside the tables.
  struct Sample {
    Int3 lo;                       // in finest voxels
    uint32_t span[3] = {0, 0, 0};  // hi - lo
    uint32_t m_bar = 0, r_bar = 0;
    FastMod mod_m, mod_r;
    int64_t first_slot = 0, first_phi = 0;
  };
  struct Rows;

  // The construction works in vectors, which throw std::bad_alloc.
  static absl::StatusOr<SuperPsh> BuildOrThrow(const CoordinateSet& voxels,
                                               const PshOptions& options,
                                               const ExecutionContext& context);
  static std::vector<Rows> SplitBySample(const CoordinateSet& voxels);
  absl::Status Allocate(bool narrow, const ExecutionContext& context);
  void FillSample(int64_t sample, const Rows& rows, const PshHash& hash);

  Int3 stride_{1, 1, 1};
  std::vector<Sample> samples_;
  std::vector<PshSize> sizes_;
  std::vector<int64_t> m_, r_, n_;
  Array<int32_t> h_;                                     // [M], -1: empty
  Array<uint32_t> phi_;                                  // [R]
  std::variant<Array<uint16_t>, Array<uint32_t>> tags_;  // [M, 3]
  Array<uint16_t> v_;                                    // [M]
};

template <typename Tag>
int32_t SuperPsh::FindWith(const Tag* tags, int32_t batch, const Int3& position) const {
  if (static_cast<uint32_t>(batch) >= samples_.size()) return -1;
  const Sample& sample = samples_[batch];
  if (sample.m_bar == 0) return -1;
  uint32_t p[3];
  for (int axis = 0; axis < 3; ++axis) {
    // Below the corner is far above it, unsigned.
    p[axis] = static_cast<uint32_t>(position[axis]) - static_cast<uint32_t>(sample.lo[axis]);
    if (p[axis] > sample.span[axis]) return -1;
    if (stride_[axis] == 1) continue;
    if (p[axis] % stride_[axis] != 0) return -1;
    p[axis] /= stride_[axis];
  }
  const FastMod& mod_r = sample.mod_r;
  const FastMod& mod_m = sample.mod_m;
  const uint64_t r_bar = sample.r_bar;
  const uint32_t phi =
      phi_.data()[sample.first_phi + (mod_r(p[0]) * r_bar + mod_r(p[1])) * r_bar + mod_r(p[2])];
  uint64_t slot = 0;
  for (int axis = 0; axis < 3; ++axis) {
    const uint32_t sum = mod_m(p[axis]) + (phi >> (2 - axis) * kPhiBits) % kMaxMBar;
    slot = slot * sample.m_bar + (sum >= sample.m_bar ? sum - sample.m_bar : sum);
  }
  slot += sample.first_slot;
  const Tag* tag = tags + 3 * slot;
  const bool same = (tag[0] == p[0]) & (tag[1] == p[1]) & (tag[2] == p[2]);
  return same ? h_.data()[slot] : -1;
}

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_PERFECT_HASH_PSH_CPU_H_
