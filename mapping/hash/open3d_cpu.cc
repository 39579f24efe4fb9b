// SPDX-License-Identifier: Apache-2.0
// open3d::core::HashMap on the CPU: its TBB back end, keys as one int64.
//
// Open3D hashes an int64 by one multiplication (FNV-1a) and takes the low bits of it, which for a
// packed key depend on z alone: every column of voxels would share a bucket. The keys are therefore
// mixed beforehand; MixKey is one-to-one, so equal stays equal and different different.
#include "voxconv/mapping/hash/hash_table_cpu.h"

#if VOXCONV_HAVE_OPEN3D

#include <omp.h>

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/strings/str_cat.h"
#include "open3d/core/Tensor.h"
#include "open3d/core/hashmap/HashMap.h"
#include "open3d/utility/Logging.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/key_mix.h"

namespace voxconv {
namespace {

namespace o3c = open3d::core;

absl::Status FromException(const std::exception& error) {
  return absl::InternalError(absl::StrCat("hash: Open3D: ", error.what()));
}

// Libraries of the project never print; Open3D prints warnings unless told otherwise.
void SilenceOpen3d() {
  static absl::once_flag once;
  absl::call_once(
      once, [] { open3d::utility::SetVerbosityLevel(open3d::utility::VerbosityLevel::Error); });
}

// Open3D's OpenMP loops ask for every core of the machine. Lookups already run on the threads of
// our backend, each of which must do its own share alone.
class SerialOpenMp {
 public:
  SerialOpenMp() : levels_(omp_get_max_active_levels()) { omp_set_max_active_levels(0); }
  ~SerialOpenMp() { omp_set_max_active_levels(levels_); }
  SerialOpenMp(const SerialOpenMp&) = delete;
  SerialOpenMp& operator=(const SerialOpenMp&) = delete;

 private:
  int levels_;
};

// A tensor [size, 1] over memory that the caller keeps. Open3D has no view of const memory; the
// map only reads it.
o3c::Tensor View(const void* data, int64_t size, const o3c::Dtype& dtype) {
  return o3c::Tensor(const_cast<void*>(data), dtype, {size, 1});
}

class Open3dTable final : public HashTableCpu {
 public:
  explicit Open3dTable(int64_t size)
      : map_(std::max<int64_t>(size, 1), o3c::Int64, {1}, o3c::Int32, {1}, o3c::Device("CPU:0"),
             o3c::HashBackendType::TBB) {}

  void Insert(const Array<uint64_t>& keys, const Array<int32_t>& rows) {
    if (keys.size() > 0) {
      map_.Insert(View(keys.data(), keys.size(), o3c::Int64),
                  View(rows.data(), rows.size(), o3c::Int32));
    }
    values_ = map_.GetValueTensor();
  }

  // Keys and values as stored; a node (next, key, position) and a bucket for each in TBB.
  int64_t bytes() const override {
    constexpr int64_t kStored = sizeof(int64_t) + sizeof(int32_t);
    constexpr int64_t kNode = 3 * sizeof(void*);
    return map_.GetCapacity() * kStored + map_.Size() * kNode +
           map_.GetBucketCount() * static_cast<int64_t>(sizeof(void*));
  }

  absl::Status Find(absl::Span<const uint64_t> keys, int32_t* rows) const override {
    if (keys.empty()) return absl::OkStatus();
    try {
      const SerialOpenMp serial;
      std::vector<uint64_t> mixed(keys.begin(), keys.end());
      for (uint64_t& key : mixed) key = MixKey(key);
      // Open3D's lookup is not const, though it changes nothing; the copy is of a handle.
      const auto [slots, hits] =
          o3c::HashMap(map_).Find(View(mixed.data(), mixed.size(), o3c::Int64));
      const int32_t* slot = slots.GetDataPtr<int32_t>();
      const bool* hit = hits.GetDataPtr<bool>();
      const int32_t* values = values_.GetDataPtr<int32_t>();
      for (size_t i = 0; i < keys.size(); ++i) rows[i] = hit[i] ? values[slot[i]] : -1;
    } catch (const std::exception& error) {
      return FromException(error);
    }
    return absl::OkStatus();
  }

 private:
  o3c::HashMap map_;
  o3c::Tensor values_;
};

}  // namespace

bool HaveOpen3d() { return true; }

absl::StatusOr<HashTableCpuPtr> BuildOpen3dCpu(const CoordinateSet& inputs,
                                               const ExecutionContext& context) {
  const int64_t size = inputs.size();
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> keys, AllocateArray<uint64_t>(size, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> rows, AllocateArray<int32_t>(size, context));
  for (int64_t row = 0; row < size; ++row) {
    keys.data()[row] = MixKey(PackKey(inputs.rows().data()[row]));
    rows.data()[row] = static_cast<int32_t>(row);
  }
  try {
    SilenceOpen3d();
    const SerialOpenMp serial;
    auto table = std::make_unique<Open3dTable>(size);
    table->Insert(keys, rows);
    return table;
  } catch (const std::exception& error) {
    return FromException(error);
  }
}

}  // namespace voxconv

#else  // !VOXCONV_HAVE_OPEN3D

namespace voxconv {

bool HaveOpen3d() { return false; }

absl::StatusOr<HashTableCpuPtr> BuildOpen3dCpu(const CoordinateSet&, const ExecutionContext&) {
  return absl::UnimplementedError("hash: this build has no Open3D");
}

}  // namespace voxconv

#endif  // VOXCONV_HAVE_OPEN3D
