// What mapping "grid" is on every backend: its options, and an index of coordinate rows.
#ifndef VOXCONV_MAPPING_GRID_GRID_MAPPING_H_
#define VOXCONV_MAPPING_GRID_GRID_MAPPING_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/coordinate_rows.h"
#include "core/mapping.h"
#include "core/options.h"
#include "core/plugin.h"

namespace voxconv {

class GridMapping : public Mapping {
 public:
  static PluginDescription Describe();
  // Refuses options that do not go together.
  static absl::Status CheckOptions(const Options& options);

  const Options& options() const final { return options_; }
  Support Supports(const ConvGeometry&) const final { return Support::Yes(); }

 protected:
  // `split` is the backend's.
  GridMapping(Options options, SplitRows split);

  bool bitmap() const { return options_.GetEnum("storage") == "bitmap"; }
  int64_t limit_mib() const { return options_.GetInt("memory_limit_mib"); }

  // The grid over `inputs`.
  virtual absl::StatusOr<std::unique_ptr<MapIndex>> BuildGrid(
      const CoordinateRows& inputs, const ExecutionContext& context) const = 0;
  // All lookups of one problem in a grid of BuildGrid. Outputs are read from `outputs`.
  virtual absl::StatusOr<KernelMap> QueryGrid(const MapIndex& grid, const MapProblem& problem,
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

#endif  // VOXCONV_MAPPING_GRID_GRID_MAPPING_H_
