// SPDX-License-Identifier: Apache-2.0
// How timed runs find the last-level cache of a GPU.
#ifndef VOXCONV_MEASURE_CACHE_USE_H_
#define VOXCONV_MEASURE_CACHE_USE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/device_control.h"
#include "voxconv/measure/json_file.h"

namespace voxconv::measure {

struct CacheOptions {
  bool cold = false;      // the cache is emptied before each run
  int64_t limit_mib = 0;  // about so many MiB are left to the runs; 0: all
  friend bool operator==(const CacheOptions&, const CacheOptions&) = default;
};

// "warm" and "cold". kInvalidArgument for another text, and for a negative limit.
absl::StatusOr<CacheOptions> ParseCacheOptions(absl::string_view cache, int64_t limit_mib);

// Refuses what the kind of backend cannot do.
absl::Status CheckCacheOptions(const CacheOptions& options, BackendKind backend);

// Holds a limit for as long as it lives.
class CacheUse {
 public:
  // Leaves the cache as it is.
  CacheUse() = default;
  // Limits the cache if that is asked for. The context's backend must outlive the result. Errors of
  // CheckCacheOptions; kInvalidArgument for a limit that the device does not allow.
  static absl::StatusOr<CacheUse> Create(const CacheOptions& options,
                                         const ExecutionContext& context);
  // The same with this control, for tests.
  static absl::StatusOr<CacheUse> Create(const CacheOptions& options,
                                         std::unique_ptr<DeviceControl> control,
                                         const ExecutionContext& context);

  bool cold() const { return options_.cold; }
  // Queues the emptying of the cache, if the runs are to find it cold.
  absl::Status Empty(const ExecutionContext& context) const;
  // Before a run that is timed by the host's clock: empties, and waits until that is done. Does
  // nothing where the cache is warm.
  absl::Status Prepare(const ExecutionContext& context) const;
  // For result lines: "warm" or "cold", and the MiB that are left, or null where all are.
  Json Temperature() const { return options_.cold ? "cold" : "warm"; }
  Json LimitMib() const;

 private:
  CacheOptions options_;
  std::unique_ptr<DeviceControl> control_;
  int64_t left_bytes_ = 0;
};

}  // namespace voxconv::measure

#endif  // VOXCONV_MEASURE_CACHE_USE_H_
