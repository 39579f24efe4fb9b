// SPDX-License-Identifier: Apache-2.0
#include "voxconv/training/data/loader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "voxconv/core/fnv.h"
#include "voxconv/core/random.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {
namespace {

// A seed of its own for each (seed, epoch, item).
uint64_t SeedOf(uint64_t seed, int64_t epoch, int64_t item) {
  return HashFnv1a(absl::StrCat(seed, "/", epoch, "/", item));
}

}  // namespace

BatchLoader::BatchLoader(const Dataset& dataset, const LoaderConfig& config, int64_t epoch,
                         int64_t first)
    : dataset_(dataset),
      config_(config),
      epoch_(epoch),
      batches_(CountBatches(dataset, config)),
      order_(dataset.size()),
      next_(first),
      queued_(first) {
  VOXCONV_CHECK(first >= 0 && first <= batches_);
  std::iota(order_.begin(), order_.end(), 0);
  if (config.shuffle) {  // Fisher and Yates
    Random random(SeedOf(config.seed, epoch, -1));
    for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.Below(i)]);
  }
  Prefetch();
}

BatchLoader::~BatchLoader() {
  for (auto& batch : ahead_) batch.wait();
}

int64_t BatchLoader::CountBatches(const Dataset& dataset, const LoaderConfig& config) {
  return (dataset.size() + config.batch - 1) / config.batch;
}

void BatchLoader::Prefetch() {
  while (queued_ < batches_ && static_cast<int>(ahead_.size()) < config_.workers) {
    ahead_.push_back(
        std::async(std::launch::async, [this, batch = queued_] { return Load(batch); }));
    ++queued_;
  }
}

absl::StatusOr<LabelledVoxels> BatchLoader::Next() {
  VOXCONV_CHECK(!done());
  ++next_;
  if (config_.workers == 0) return Load(next_ - 1);
  absl::StatusOr<LabelledVoxels> batch = ahead_.front().get();
  ahead_.pop_front();
  Prefetch();
  return batch;
}

EpochLoader::EpochLoader(const Dataset& dataset, const LoaderConfig& config, int64_t epochs,
                         int64_t epoch, int64_t first)
    : dataset_(dataset),
      config_(config),
      epochs_(epochs),
      epoch_(epoch),
      batches_(std::make_unique<BatchLoader>(dataset, config, epoch, first)) {
  OpenNextEpoch();
}

absl::StatusOr<std::optional<LabelledVoxels>> EpochLoader::Next() {
  if (batches_->done()) return std::nullopt;
  absl::StatusOr<LabelledVoxels> batch = batches_->Next();
  OpenNextEpoch();
  return batch;
}

// Where all batches of this epoch are given.
void EpochLoader::OpenNextEpoch() {
  if (!batches_->done() || epoch_ + 1 >= epochs_) return;
  ++epoch_;
  batches_ = std::make_unique<BatchLoader>(dataset_, config_, epoch_);
}

absl::StatusOr<LabelledVoxels> BatchLoader::Load(int64_t batch) const {
  LabelledVoxels result;
  const int64_t begin = batch * config_.batch;
  const int64_t end = std::min(begin + config_.batch, dataset_.size());
  for (int64_t i = begin; i < end; ++i) {
    const int64_t index = order_[i];
    VOXCONV_ASSIGN_OR_RETURN(LabelledCloud cloud, dataset_.Load(index));
    if (config_.unit_sphere) ScaleIntoUnitSphere(cloud.cloud.xyz);
    if (config_.centre) Centre(cloud.cloud.xyz);
    Augment(config_.augmentation, SeedOf(config_.seed, epoch_, index), cloud);
    const auto sample = VoxelizeLabelled(cloud, dataset_.label_kind(), dataset_.ignored(),
                                         config_.channels, config_.voxelize);
    if (!sample.ok()) return StatusAt(dataset_.NameOf(index), sample.status());
    if (sample->coordinates.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(dataset_.NameOf(index), ": 0 points; at least 1 is needed"));
    }
    AppendSample(*sample, result);
    result.clouds.push_back(index);
  }
  return result;
}

}  // namespace voxconv
