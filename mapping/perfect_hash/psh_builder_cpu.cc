// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/perfect_hash/psh_builder_cpu.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "absl/numeric/bits.h"
#include "absl/strings/str_cat.h"

namespace voxconv {
namespace {

constexpr double kGrowth = 1.2;
// From here on the offset table would outweigh the rest, and a larger m_bar is the better way out.
constexpr double kMaxCellsPerVoxel = 8;
constexpr double kMinMaxCells = 1 << 20;

int64_t Cube(int64_t v) { return v * v * v; }

int32_t CubeRootUp(double v) {
  int32_t root = std::max(1, static_cast<int32_t>(std::cbrt(v)) - 1);
  while (Cube(root) < v) ++root;
  return root;
}

// A fixed, well mixed function of the bucket: where the search of its offset starts.
uint64_t Mix(uint64_t v) {
  v = (v ^ v >> 31) * 0x9e3779b97f4a7c15;
  v = (v ^ v >> 29) * 0xd6e8feb86659fd93;
  return v ^ v >> 32;
}

// Which slots are free, so that 64 offsets along z are tested with one word. Every line along z is
// stored twice in a row: a window that wraps around is read without a branch.
class FreeSlots {
 public:
  explicit FreeSlots(int32_t m_bar)
      : m_bar_(m_bar),
        words_per_line_(2 * m_bar / 64 + 2),
        words_(int64_t{m_bar} * m_bar * words_per_line_, ~uint64_t{0}) {}

  // Bit i tells of slot (x, y, (z + i) mod m_bar), for 0 <= z and z + i < 2 m_bar.
  uint64_t Window(int32_t x, int32_t y, int32_t z) const {
    const uint64_t* line = words_.data() + Line(x, y);
    const int shift = z % 64;
    const uint64_t low = line[z / 64] >> shift;
    return shift == 0 ? low : low | line[z / 64 + 1] << (64 - shift);
  }

  void Take(int32_t x, int32_t y, int32_t z) {
    uint64_t* line = words_.data() + Line(x, y);
    for (int32_t bit : {z, z + m_bar_}) line[bit / 64] &= ~(uint64_t{1} << (bit % 64));
  }

 private:
  int64_t Line(int32_t x, int32_t y) const { return (int64_t{x} * m_bar_ + y) * words_per_line_; }

  int32_t m_bar_;
  int64_t words_per_line_;
  std::vector<uint64_t> words_;
};

// h0 of a voxel, or an offset.
struct Cell {
  int32_t x, y, z;
};

// The voxels by h1.
struct Buckets {
  std::vector<int64_t> begin;    // [r_bar^3 + 1]
  std::vector<int64_t> members;  // [n]
  std::vector<int64_t> order;    // the buckets that have voxels, largest first

  int64_t size(int64_t bucket) const { return begin[bucket + 1] - begin[bucket]; }
};

Buckets MakeBuckets(absl::Span<const PshVoxel> voxels, int32_t r_bar) {
  const uint32_t r = r_bar;
  const auto h1 = [r](const PshVoxel& v) {
    return (int64_t{v[0] % r} * r + v[1] % r) * r + v[2] % r;
  };
  Buckets buckets;
  buckets.begin.assign(Cube(r_bar) + 1, 0);
  for (const PshVoxel& v : voxels) ++buckets.begin[h1(v) + 1];
  std::partial_sum(buckets.begin.begin(), buckets.begin.end(), buckets.begin.begin());
  buckets.members.resize(voxels.size());
  std::vector<int64_t> next(buckets.begin.begin(), buckets.begin.end() - 1);
  for (size_t i = 0; i < voxels.size(); ++i) buckets.members[next[h1(voxels[i])]++] = i;
  for (int64_t b = 0; b < Cube(r_bar); ++b) {
    if (buckets.size(b) > 0) buckets.order.push_back(b);
  }
  std::stable_sort(buckets.order.begin(), buckets.order.end(),
                   [&](int64_t a, int64_t b) { return buckets.size(a) > buckets.size(b); });
  return buckets;
}

// One try with given table sizes.
class Placement {
 public:
  Placement(absl::Span<const PshVoxel> voxels, int32_t m_bar, int32_t r_bar)
      : m_bar_(m_bar), r_bar_(r_bar), free_(m_bar), buckets_(MakeBuckets(voxels, r_bar)) {
    const uint32_t m = m_bar;
    h0_.reserve(voxels.size());
    for (int64_t i : buckets_.members) {
      const PshVoxel& v = voxels[i];
      h0_.push_back({static_cast<int32_t>(v[0] % m), static_cast<int32_t>(v[1] % m),
                     static_cast<int32_t>(v[2] % m)});
    }
  }

  // False where a bucket has no offset.
  bool Run(PshHash& hash) {
    hash.m_bar = m_bar_;
    hash.r_bar = r_bar_;
    hash.phi.assign(Cube(r_bar_), 0);
    hash.slot.resize(h0_.size());
    for (int64_t bucket : buckets_.order) {
      const int64_t begin = buckets_.begin[bucket];
      const absl::Span<const Cell> members =
          absl::MakeSpan(h0_).subspan(begin, buckets_.size(bucket));
      if (HasDuplicate(members)) return false;  // no offset parts what agrees in h0 and h1
      const std::optional<Cell> phi = FindOffset(members, bucket);
      if (!phi.has_value()) return false;
      hash.phi[bucket] = PackPhi(phi->x, phi->y, phi->z);
      for (size_t j = 0; j < members.size(); ++j) {
        const Cell slot{Wrap(members[j].x + phi->x), Wrap(members[j].y + phi->y),
                        Wrap(members[j].z + phi->z)};
        free_.Take(slot.x, slot.y, slot.z);
        hash.slot[buckets_.members[begin + j]] = static_cast<uint32_t>(Linear(slot));
      }
    }
    return true;
  }

 private:
  int32_t Wrap(int32_t sum) const { return sum >= m_bar_ ? sum - m_bar_ : sum; }
  int64_t Linear(const Cell& c) const { return (int64_t{c.x} * m_bar_ + c.y) * m_bar_ + c.z; }

  bool HasDuplicate(absl::Span<const Cell> members) {
    if (members.size() < 2) return false;
    scratch_.clear();
    for (const Cell& c : members) scratch_.push_back(Linear(c));
    std::sort(scratch_.begin(), scratch_.end());
    return std::adjacent_find(scratch_.begin(), scratch_.end()) != scratch_.end();
  }

  // Bit i: offset (x, y, z + i) leads all members to free slots.
  uint64_t FreeOffsets(absl::Span<const Cell> members, const Cell& phi) const {
    const int32_t left = m_bar_ - phi.z;
    uint64_t free = left >= 64 ? ~uint64_t{0} : (uint64_t{1} << left) - 1;
    for (const Cell& c : members) {
      free &= free_.Window(Wrap(c.x + phi.x), Wrap(c.y + phi.y), c.z + phi.z);
      if (free == 0) break;
    }
    return free;
  }

  // Tries (0, 0, 0), with which a full block of voxels fits as it lies, then every offset, line by
  // line from a line of the bucket's own.
  std::optional<Cell> FindOffset(absl::Span<const Cell> members, int64_t bucket) const {
    Cell phi{0, 0, 0};
    if (FreeOffsets(members, phi) & 1) return phi;
    const int64_t lines = int64_t{m_bar_} * m_bar_;
    const int64_t start = static_cast<int64_t>(Mix(bucket) % static_cast<uint64_t>(lines));
    phi.x = static_cast<int32_t>(start / m_bar_);
    phi.y = static_cast<int32_t>(start % m_bar_);
    for (int64_t i = 0; i < lines; ++i) {
      for (phi.z = 0; phi.z < m_bar_; phi.z += 64) {
        const uint64_t free = FreeOffsets(members, phi);
        if (free == 0) continue;
        phi.z += absl::countr_zero(free);
        return phi;
      }
      if (++phi.y < m_bar_) continue;
      phi.y = 0;
      phi.x = Wrap(phi.x + 1);
    }
    return std::nullopt;
  }

  int32_t m_bar_, r_bar_;
  FreeSlots free_;
  Buckets buckets_;
  std::vector<Cell> h0_;  // [n], in the order of buckets_.members
  std::vector<int64_t> scratch_;
};

// The next r_bar that has no common factor with m_bar: (h0, h1) then tells voxels apart that are
// less than m_bar * r_bar away from each other.
int32_t Coprime(int32_t r_bar, int32_t m_bar) {
  while (std::gcd(r_bar, m_bar) != 1) ++r_bar;
  return r_bar;
}

}  // namespace

PshSizes::PshSizes(int64_t n, const PshOptions& options, double bucket_size)
    : n_(n),
      max_retries_(options.max_retries),
      m_bar_(CubeRootUp(static_cast<double>(n) / options.load)),
      r_target_(std::max(1.0, std::cbrt(static_cast<double>(n) / bucket_size))) {}

absl::Status PshSizes::Next() {
  if (tries_ > max_retries_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("perfect hash of n = ", n_, " voxels: none found in ", tries_,
                     " tries, the last with m_bar ", m_bar_, " and r_bar ", r_bar_,
                     "; a smaller load or more max_retries may help"));
  }
  if (tries_ > 0) {
    if (Cube(r_bar_) < std::max(kMaxCellsPerVoxel * static_cast<double>(n_), kMinMaxCells)) {
      r_target_ = std::max(r_target_ * kGrowth, r_bar_ + 1.0);
    } else {
      ++m_bar_;
      --r_bar_;  // the same again, where it has no common factor with the new m_bar
    }
  }
  if (m_bar_ > kMaxMBar) {
    return absl::ResourceExhaustedError(absl::StrCat("perfect hash of ", n_,
                                                     " voxels: needs m_bar ", m_bar_, ", at most ",
                                                     kMaxMBar, " is allowed"));
  }
  r_bar_ = Coprime(std::max(r_bar_ + 1, static_cast<int32_t>(r_target_)), m_bar_);
  ++tries_;
  return absl::OkStatus();
}

absl::StatusOr<PshHash> BuildPshHash(absl::Span<const PshVoxel> voxels, const PshOptions& options) {
  PshHash hash;
  if (voxels.empty()) return hash;
  PshSizes sizes(static_cast<int64_t>(voxels.size()), options);
  do {
    if (absl::Status status = sizes.Next(); !status.ok()) return status;
  } while (!Placement(voxels, sizes.m_bar(), sizes.r_bar()).Run(hash));
  hash.tries = sizes.tries();
  return hash;
}

}  // namespace voxconv
