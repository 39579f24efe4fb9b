// What mapping "hash" is on every backend: its options, and an index of coordinate rows.
#ifndef VOXCONV_MAPPING_HASH_HASH_MAPPING_H_
#define VOXCONV_MAPPING_HASH_HASH_MAPPING_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/coordinate_rows.h"
#include "core/mapping.h"
#include "core/options.h"
#include "core/plugin.h"

namespace voxconv {

class HashMapping : public Mapping {
 public:
  static PluginDescription Describe();
  // Refuses options that do not go together, on any backend.
  static absl::Status CheckOptions(const Options& options);

  const Options& options() const final { return options_; }

 protected:
  // `split` is the backend's.
  HashMapping(Options options, SplitRows split);

  const std::string& variant() const { return options_.GetEnum("variant"); }
  double load_factor() const { return options_.GetFloat("load_factor"); }

  // The table of `inputs`.
  virtual absl::StatusOr<std::unique_ptr<MapIndex>> BuildTable(
      const CoordinateRows& inputs, const ExecutionContext& context) const = 0;
  // All lookups of one problem in a table of BuildTable. Outputs are read from `outputs`.
  virtual absl::StatusOr<KernelMap> QueryTable(const MapIndex& table, const MapProblem& problem,
                                               const CoordinateRows& outputs, bool symmetric,
                                               const ExecutionContext& context) const = 0;

 private:
  absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const final;
  absl::StatusOr<KernelMap> DoQuery(const MapIndex& index, const MapProblem& problem,
                                    const ExecutionContext& context) const final;

  Options options_;
  SplitRows split_;
  bool symmetric_;
  bool planar_;
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_HASH_HASH_MAPPING_H_
