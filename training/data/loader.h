// SPDX-License-Identifier: Apache-2.0
// Batches of a data set, in an order that a seed fixes.
#ifndef VOXCONV_TRAINING_DATA_LOADER_H_
#define VOXCONV_TRAINING_DATA_LOADER_H_

#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/training/data/augment.h"
#include "voxconv/training/data/dataset.h"
#include "voxconv/training/data/labelled_cloud.h"

namespace voxconv {

struct LoaderConfig {
  int64_t batch = 1;         // clouds in a batch; the last batch of an epoch may have fewer
  int64_t channels = 0;      // of the network's input
  bool shuffle = false;      // otherwise clouds come in the order of the set
  bool unit_sphere = false;  // ScaleIntoUnitSphere before the augmentation
  bool centre = false;       // Centre before the augmentation; ScaleIntoUnitSphere includes it
  Augmentation augmentation;
  VoxelizeOptions voxelize;
  uint64_t seed = 0;  // of the order and of the augmentation
  int workers = 2;    // threads that load batches ahead; 0: the caller's thread loads them
};

// Loads the batches of one epoch in order. What a batch holds depends on the set, the configuration
// and the epoch alone, not on the workers. Not thread-safe.
class BatchLoader {
 public:
  // Begins at batch `first` of the epoch, at most CountBatches (checked). `dataset` must outlive
  // the loader.
  BatchLoader(const Dataset& dataset, const LoaderConfig& config, int64_t epoch, int64_t first = 0);
  // Waits for the workers.
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // Batches of an epoch.
  static int64_t CountBatches(const Dataset& dataset, const LoaderConfig& config);

  bool done() const { return next_ == batches_; }
  // The next batch. Errors of Dataset::Load and Voxelize, with the cloud's name.
  absl::StatusOr<LabelledVoxels> Next();

 private:
  absl::StatusOr<LabelledVoxels> Load(int64_t batch) const;
  void Prefetch();

  const Dataset& dataset_;
  const LoaderConfig config_;
  const int64_t epoch_;
  const int64_t batches_;
  std::vector<int64_t> order_;  // of the clouds in this epoch
  int64_t next_ = 0;            // the batch that Next gives
  int64_t queued_ = 0;          // the first batch that no worker has
  std::deque<std::future<absl::StatusOr<LabelledVoxels>>> ahead_;
};

// Loads the batches of several epochs, one epoch after the other. The workers load the first
// batches of an epoch while the caller has the last one of the epoch before. Not thread-safe.
class EpochLoader {
 public:
  // From batch `first` of epoch `epoch` to the end of epoch `epochs` - 1. `first` is at most
  // BatchLoader::CountBatches (checked). `dataset` must outlive the loader.
  EpochLoader(const Dataset& dataset, const LoaderConfig& config, int64_t epochs, int64_t epoch,
              int64_t first);

  // The next batch; null after the last one of the last epoch. Errors of BatchLoader::Next.
  absl::StatusOr<std::optional<LabelledVoxels>> Next();

 private:
  void OpenNextEpoch();

  const Dataset& dataset_;
  const LoaderConfig config_;
  const int64_t epochs_;
  int64_t epoch_;
  std::unique_ptr<BatchLoader> batches_;  // of `epoch_`
};

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_DATA_LOADER_H_
