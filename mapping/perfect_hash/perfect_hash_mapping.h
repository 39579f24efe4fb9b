// SPDX-License-Identifier: Apache-2.0
// What mapping "perfect_hash" is on every backend: its options.
#ifndef VOXCONV_MAPPING_PERFECT_HASH_PERFECT_HASH_MAPPING_H_
#define VOXCONV_MAPPING_PERFECT_HASH_PERFECT_HASH_MAPPING_H_

#include "absl/status/status.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/options.h"
#include "voxconv/core/plugin.h"
#include "voxconv/mapping/perfect_hash/psh_builder_cpu.h"

namespace voxconv {

class PerfectHashMapping : public Mapping {
 public:
  static PluginDescription Describe();
  // Refuses options that contradict each other.
  static absl::Status Check(const Options& options);

  const Options& options() const final { return options_; }

 protected:
  explicit PerfectHashMapping(Options options);

  PshOptions psh_options() const {
    return {options_.GetFloat("load"), options_.GetInt("max_retries")};
  }
  // Whether the tables are constructed on the device.
  bool builds_on_device() const { return options_.GetEnum("build") == "device"; }
  // Whether neighbours are looked up when a dataflow asks for them.
  bool on_demand() const { return options_.GetEnum("map") == "lookup"; }
  // Whether half of the offsets are looked up.
  bool Mirrors(const MapProblem& problem) const {
    return symmetric_ && problem.geometry.symmetric();
  }

 private:
  Options options_;
  bool symmetric_;
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_PERFECT_HASH_PERFECT_HASH_MAPPING_H_
