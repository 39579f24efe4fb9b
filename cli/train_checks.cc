// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/train_checks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/training/data/class_weights.h"
#include "voxconv/training/data/loader.h"

namespace voxconv::cli {
namespace {

constexpr absl::string_view kBalanced = "balanced";

// Values that an option allows, and words for them.
struct Range {
  double least = 0, most = std::numeric_limits<double>::infinity();
  bool with_least = true, with_most = true;
  const char* words = "finite values from 0";
};
constexpr Range kFromZero;
constexpr Range kPositive{.with_least = false, .words = "finite values greater than 0"};
constexpr Range kShare{.most = 1, .words = "0 to 1"};
constexpr Range kLessThanOne{.most = 1, .with_most = false, .words = "values from 0, less than 1"};

absl::Status CheckInRange(const po::variables_map& values, const char* name, const Range& range) {
  const double value = values[name].as<double>();
  const bool in = std::isfinite(value) &&
                  (range.with_least ? value >= range.least : value > range.least) &&
                  (range.with_most ? value <= range.most : value < range.most);
  if (in) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, " ", value, ": allowed are ", range.words));
}

}  // namespace

absl::Status CheckAtLeast(const po::variables_map& values, const char* name, int64_t least,
                          int64_t most) {
  const int64_t value = values[name].as<int64_t>();
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, " ", value, ": allowed are ", least, " to ", most));
}

absl::Status CheckVoxelSize(const po::variables_map& values) {
  return CheckInRange(values, "voxel-size", kPositive);
}

absl::Status CheckTrainingNumbers(const po::variables_map& values) {
  for (const char* name : {"rate", "weight-decay", "clip", "rotate", "shift", "jitter"}) {
    VOXCONV_RETURN_IF_ERROR(CheckInRange(values, name, kFromZero));
  }
  for (const char* name : {"flip", "drop-points"}) {
    VOXCONV_RETURN_IF_ERROR(CheckInRange(values, name, kShare));
  }
  for (const char* name : {"momentum", "smoothing", "dropout", "scale"}) {
    VOXCONV_RETURN_IF_ERROR(CheckInRange(values, name, kLessThanOne));
  }
  constexpr int64_t kMostSteps = 1'000'000'000'000;
  VOXCONV_RETURN_IF_ERROR(CheckAtLeast(values, "epochs", 1, 1000000));
  VOXCONV_RETURN_IF_ERROR(CheckAtLeast(values, "warm-up", 0, kMostSteps));
  VOXCONV_RETURN_IF_ERROR(CheckAtLeast(values, "checkpoint-steps", 0, kMostSteps));
  return CheckAtLeast(values, "activation-memory", 0, int64_t{1} << 40);
}

absl::StatusOr<std::vector<float>> ParseClassWeights(const po::variables_map& values) {
  std::vector<float> weights;
  if (values.count("class-weights") == 0) return weights;
  const std::string& text = values["class-weights"].as<std::string>();
  if (text == kBalanced) return weights;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    float weight = 0;
    if (!absl::SimpleAtof(word, &weight) || !std::isfinite(weight) || weight < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--class-weights: '", word,
                       "'; allowed are balanced and finite values from "
                       "0 with commas between them"));
    }
    weights.push_back(weight);
  }
  if (*std::max_element(weights.begin(), weights.end()) > 0) return weights;
  return absl::InvalidArgumentError("--class-weights: all are 0; one must be greater");
}

absl::Status FitToData(const po::variables_map& values, const Dataset& train,
                       TrainingRunConfig& config) {
  if (config.rate.decay == Decay::kCosine) {  // it needs a step after the warm-up
    const int64_t steps = config.epochs * BatchLoader::CountBatches(train, config.train);
    VOXCONV_RETURN_IF_ERROR(CheckAtLeast(values, "warm-up", 0, steps - 1));
  }
  std::vector<float>& weights = config.training.loss.class_weights;
  if (values.count("class-weights") == 0) return absl::OkStatus();
  if (values["class-weights"].as<std::string>() == kBalanced) {
    VOXCONV_ASSIGN_OR_RETURN(weights, BalancedClassWeights(train));
  }
  if (static_cast<int64_t>(weights.size()) == train.classes()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--class-weights: ", weights.size(),
                                                 " values; the data set has ", train.classes(),
                                                 " classes"));
}

}  // namespace voxconv::cli
