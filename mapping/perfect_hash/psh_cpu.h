// SPDX-License-Identifier: Apache-2.0
// Perfect spatial hashing of a batch: H-CNN's super-PSH (Section 3).
#ifndef VOXCONV_MAPPING_PERFECT_HASH_PSH_CPU_H_
#define VOXCONV_MAPPING_PERFECT_HASH_PSH_CPU_H_

#include <cstdint>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/mapping/perfect_hash/psh_builder_cpu.h"
#include "voxconv/mapping/perfect_hash/psh_view.h"

namespace voxconv {

// The sizes of one sample's tables.
struct PshSize {
  int64_t n = 0;      // voxels
  int32_t m_bar = 0;  // H, T and V have m_bar^3 slots
  int32_t r_bar = 0;  // Phi has r_bar^3 entries
  int tries = 0;      // tries that the construction took

  int64_t slots() const { return int64_t{m_bar} * m_bar * m_bar; }
  int64_t phi_entries() const { return int64_t{r_bar} * r_bar * r_bar; }
};

// The hash is h(p) = (h0(p) + Phi[h1(p)]) mod m_bar, with h0 = p mod m_bar and h1 = p mod r_bar
// (Equation 1). p is a voxel in units of the tensor stride, relative to the lower corner of its
// sample. The tables of all samples lie one after the other. Sample b has the slots [M[b], M[b +
// 1]) and the entries [R[b], R[b + 1]) of Phi. H holds rows of the coordinate set. In the paper it
// holds positions within the sample, but here the rows of a sample need not be contiguous. A lookup
// thus does not need N. The tables lie in host memory.
class SuperPsh {
 public:
  // Builds the samples in parallel. The result does not depend on the number of threads. The errors
  // are those of BuildPshHash, and lack of memory.
  static absl::StatusOr<SuperPsh> Build(const CoordinateSet& voxels, const PshOptions& options,
                                        const ExecutionContext& context);

  // Calls f(view) with a PshView of these tables. A caller thus resolves the type of tags once for
  // many lookups.
  template <typename F>
  auto WithView(const F& f) const {
    return std::visit(
        [&](const auto& tags) {
          using Tag = std::remove_cvref_t<decltype(*tags.data())>;
          return f(PshView<Tag>{samples_.data(), static_cast<int32_t>(samples_.size()), stride_,
                                phi_.data(), tags.data(), h_.data()});
        },
        tags_);
  }
  // See PshView::Find.
  int32_t Find(int32_t batch, const Int3& position) const {
    return WithView([&](const auto& view) {
      return view.Find({batch, position.x, position.y, position.z});
    });
  }

  const std::vector<PshSize>& sizes() const { return sizes_; }
  // True if an entry of T has 3 x 16 bits, as in the paper. An entry has 3 x 32 bits if a sample is
  // wider than 65,536.
  bool has_narrow_tags() const { return std::holds_alternative<Array<uint16_t>>(tags_); }
  // Bytes of H, Phi, T, V, M, R and N. All of them are overhead over the data array D.
  int64_t bytes() const;

  const std::vector<PshSample>& samples() const { return samples_; }
  const Array<int32_t>& h() const { return h_; }
  const Array<uint32_t>& phi() const { return phi_; }
  const std::variant<Array<uint16_t>, Array<uint32_t>>& tags() const { return tags_; }
  // The sample of each slot.
  const Array<uint16_t>& v() const { return v_; }
  // Prefix sums of the slots, the offset entries and the voxels. Each is [samples + 1].
  const std::vector<int64_t>& m() const { return m_; }
  const std::vector<int64_t>& r() const { return r_; }
  const std::vector<int64_t>& n() const { return n_; }

 private:
  struct Rows;

  // The construction works in vectors, which throw std::bad_alloc.
  static absl::StatusOr<SuperPsh> BuildOrThrow(const CoordinateSet& voxels,
                                               const PshOptions& options,
                                               const ExecutionContext& context);
  static std::vector<Rows> SplitBySample(const CoordinateSet& voxels);
  absl::Status Allocate(bool narrow, const ExecutionContext& context);
  void FillSample(int64_t sample, const Rows& rows, const PshHash& hash);

  Int3 stride_{1, 1, 1};
  std::vector<PshSample> samples_;
  std::vector<PshSize> sizes_;
  std::vector<int64_t> m_, r_, n_;
  Array<int32_t> h_;                                     // [M], -1: empty
  Array<uint32_t> phi_;                                  // [R]
  std::variant<Array<uint16_t>, Array<uint32_t>> tags_;  // [M, 3]
  Array<uint16_t> v_;                                    // [M]
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_PERFECT_HASH_PSH_CPU_H_
