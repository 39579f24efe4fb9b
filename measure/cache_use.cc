// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/cache_use.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "voxconv/builtin/device_control.h"
#include "voxconv/core/status_macros.h"

namespace voxconv::measure {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kMostMib = int64_t{1} << 20;

}  // namespace

absl::StatusOr<CacheOptions> ParseCacheOptions(absl::string_view cache, int64_t limit_mib) {
  if (cache != "warm" && cache != "cold") {
    return absl::InvalidArgumentError(
        absl::StrCat("--cache '", cache, "': allowed are warm and cold"));
  }
  if (limit_mib < 0 || limit_mib > kMostMib) {
    return absl::InvalidArgumentError(
        absl::StrCat("--l2-mib ", limit_mib, ": allowed are 0 (all of the cache) .. 2^20"));
  }
  return CacheOptions{cache == "cold", limit_mib};
}

absl::Status CheckCacheOptions(const CacheOptions& options, BackendKind backend) {
  if (backend == BackendKind::kCuda) return absl::OkStatus();
  if (options.cold) {
    return absl::InvalidArgumentError(
        "--cache cold: only --backend cuda can empty a cache between runs");
  }
  if (options.limit_mib == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--l2-mib ", options.limit_mib, ": only --backend cuda can limit a cache"));
}

absl::StatusOr<CacheUse> CacheUse::Create(const CacheOptions& options,
                                          const ExecutionContext& context) {
  if (options == CacheOptions()) return CacheUse();
  VOXCONV_RETURN_IF_ERROR(CheckCacheOptions(options, context.backend->kind()));
  return Create(options, MakeDeviceControl(*context.backend), context);
}

absl::StatusOr<CacheUse> CacheUse::Create(const CacheOptions& options,
                                          std::unique_ptr<DeviceControl> control,
                                          const ExecutionContext& context) {
  CacheUse use;
  use.options_ = options;
  use.control_ = std::move(control);
  if (use.control_ == nullptr) {
    return absl::UnimplementedError(
        "--cache, --l2-mib: this backend's caches cannot be controlled");
  }
  if (options.limit_mib == 0) return use;
  const auto left = use.control_->LimitCache(options.limit_mib * kMib, context);
  if (!left.ok()) return StatusAt(absl::StrCat("--l2-mib ", options.limit_mib), left.status());
  use.left_bytes_ = *left;
  return use;
}

absl::Status CacheUse::Empty(const ExecutionContext& context) const {
  return options_.cold ? control_->EmptyCache(context) : absl::OkStatus();
}

absl::Status CacheUse::Prepare(const ExecutionContext& context) const {
  if (!options_.cold) return absl::OkStatus();
  VOXCONV_RETURN_IF_ERROR(Empty(context));
  return context.stream->Synchronize();
}

Json CacheUse::LimitMib() const {
  if (left_bytes_ == 0) return nullptr;
  return static_cast<double>(left_bytes_) / kMib;
}

}  // namespace voxconv::measure
