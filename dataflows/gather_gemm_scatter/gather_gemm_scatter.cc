// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/gather_gemm_scatter/gather_gemm_scatter.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/dataflows/gather_gemm_scatter/position_layouts.h"

namespace voxconv {
namespace {

constexpr int64_t kMaxOffsets = 1 << 20;

OptionSchema Schema() {
  OptionSchema schema;
  schema
      .Enum("grouping", {"separate", "symmetric", "fixed", "adaptive", "sorted_adaptive", "ragged"},
            "adaptive",
            "which kernel offsets are multiplied as one batch; ragged: all, in one launch on CUDA, "
            "each padded to a multiple of 128 rows")
      .Float("epsilon", 0.3, 0, 1,
             "adaptive: share of a group's largest map that may be padding; sorted_adaptive: "
             "padding of a group for each of its pairs")
      .Int("threshold", 8192, 0, int64_t{1} << 40,
           "both: pairs from which a group is multiplied offset by offset, not as a batch")
      .Enum("map", {"dense", "coded_csr"}, "dense",
            "layout of the positions: a table with holes, or PCEngine's coded CSR")
      .Enum("order", {"weight", "locality", "tile"}, "locality",
            "gather and scatter by kernel offset, by input and by output row, or as the last with "
            "every tile of channels reading the map (Minuet, Algorithm 1)")
      .Int("tile", 0, 0, 1 << 20,
           "channels moved at a time by gather and scatter: on the CPU for one reading of the map "
           "(0: all), on CUDA by one thread (0: chosen by size)")
      .Int("scatter_tile", 0, 0, 1 << 20, "the same of scatter alone; 0: tile")
      .Int("buffer_mib", 512, 1, 1 << 20,
           "limit of gather and scatter buffers in MiB; what exceeds it is done in passes")
      .Int("vector_bytes", 16, 2, 16,
           "CUDA: widest access of gather and scatter, 2, 4, 8 or 16 bytes; narrower where "
           "channels and tile ask for it")
      .Int("offsets_per_launch", 0, 0, kMaxOffsets,
           "CUDA: kernel offsets moved by one launch; 0: all; a scatter in weight order of more "
           "than 1 adds atomically")
      .Int("streams", 1, 1, 4, "CUDA: streams that the matmuls are spread over");
  return schema;
}

Grouping ParseGrouping(const std::string& text) {
  if (text == "separate") return Grouping::kSeparate;
  if (text == "symmetric") return Grouping::kSymmetric;
  if (text == "fixed") return Grouping::kFixed;
  if (text == "adaptive") return Grouping::kAdaptive;
  if (text == "ragged") return Grouping::kRagged;
  VOXCONV_CHECK(text == "sorted_adaptive");
  return Grouping::kSortedAdaptive;
}

MoveOrder ParseOrder(const std::string& text) {
  if (text == "weight") return MoveOrder::kWeight;
  if (text == "locality") return MoveOrder::kLocality;
  VOXCONV_CHECK(text == "tile");
  return MoveOrder::kTile;
}

MoveRule MoveRuleOf(const Options& options) {
  MoveRule rule;
  rule.layout =
      options.GetEnum("map") == "dense" ? PositionLayout::kDenseTables : PositionLayout::kCodedCsr;
  rule.order = ParseOrder(options.GetEnum("order"));
  rule.gather_tile = options.GetInt("tile");
  rule.scatter_tile = options.GetInt(options.GetInt("scatter_tile") > 0 ? "scatter_tile" : "tile");
  return rule;
}

}  // namespace

PluginDescription DescribeGatherGemmScatter() {
  PluginDescription description;
  description.name = kGatherGemmScatterName;
  description.summary = "gathers the pairs of all offsets, multiplies in groups, scatters the sums";
  description.source = "TorchSparse 4.2, 4.3; PCEngine 4 (coded CSR); Minuet 5.2";
  description.options = Schema();
  description.extra_variants = {
      "epsilon=1,threshold=1000000",                           // one padded batch
      "grouping=sorted_adaptive,epsilon=1,threshold=1000000",  // the same, sorted
      "threshold=0",                                           // no batch
      "tile=4",
      "order=weight,tile=3,scatter_tile=5",
      "buffer_mib=1",
      "grouping=fixed,map=coded_csr,buffer_mib=1",
      // CUDA alone.
      "tile=64,vector_bytes=4",
      "order=tile,tile=8",
      "order=tile,tile=12,map=coded_csr,buffer_mib=1",
      "order=weight,offsets_per_launch=1",
      "offsets_per_launch=1,buffer_mib=1",
      "map=coded_csr,tile=8,vector_bytes=8,offsets_per_launch=5",
      "grouping=separate,streams=4",
  };
  description.grids = {
      // TorchSparse, Algorithm 5.
      {.where = {"grouping", {"adaptive", "sorted_adaptive"}},
       .axes = {{"epsilon", {"0", "0.15", "0.3", "0.5", "1"}},
                {"threshold", {"0", "4096", "16384", "65536", "1048576"}}}},
      // Minuet, Algorithm 2, for gather and for scatter.
      {.where = {}, .axes = {{"tile", {"divisors(c_in)"}}}},
      {.where = {}, .axes = {{"scatter_tile", {"divisors(c_out)"}}}},
  };
  return description;
}

absl::Status CheckGatherGemmScatterOptions(const Options& options) {
  if (options.GetEnum("grouping") == "ragged" && options.GetInt("streams") > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        kGatherGemmScatterName, ": streams=", options.GetInt("streams"),
        ": grouping=ragged multiplies in one launch, which has no use for more than 1"));
  }
  const int64_t vector_bytes = options.GetInt("vector_bytes");
  if ((vector_bytes & (vector_bytes - 1)) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      kGatherGemmScatterName, ": vector_bytes=", vector_bytes, ": allowed are 2, 4, 8 and 16"));
}

GatherGemmScatter::GatherGemmScatter(Options options, PositionLayoutMaker layouts)
    : options_(std::move(options)),
      grouping_{ParseGrouping(options_.GetEnum("grouping")), options_.GetFloat("epsilon"),
                options_.GetInt("threshold")},
      move_(MoveRuleOf(options_)),
      cuda_{static_cast<int>(options_.GetInt("vector_bytes")),
            static_cast<int>(options_.GetInt("offsets_per_launch")),
            static_cast<int>(options_.GetInt("streams"))},
      layouts_(layouts) {}

MapNeed GatherGemmScatter::DoNeededMap(Pass, const ConvShape&) const {
  return {.form = MapForm::kPairs, .layout = std::string(KeyOf(move_.layout))};
}

absl::StatusOr<std::shared_ptr<const PreparedMap>> GatherGemmScatter::DoPrepare(
    const KernelMap& map, const MapNeed& need, const ExecutionContext& context) const {
  return MakePositionLayout(layouts_, need.layout, map, context);
}

absl::StatusOr<Schedule> GatherGemmScatter::ScheduleOf(const PreparedMap& prepared,
                                                       const ConvShape& shape) const {
  VOXCONV_RETURN_IF_ERROR(CheckPositionLayout(prepared, move_.layout));
  const KernelMap& map = prepared.map();
  std::vector<int64_t> map_sizes(map.num_offsets());
  for (int k = 0; k < map.num_offsets(); ++k) map_sizes[k] = map.num_pairs(k);
  const std::vector<OffsetGroup> groups =
      GroupOffsets(map_sizes, map.symmetric(), map.identity_offset(), grouping_);
  const int64_t row_bytes = (shape.c_in + shape.c_out) * SizeOf(shape.types.input);
  const int64_t buffer_mib = options_.GetInt("buffer_mib");
  absl::StatusOr<Schedule> schedule =
      MakeSchedule(map.offset_ptr(), map.identity_offset(), groups, (buffer_mib << 20) / row_bytes);
  if (schedule.ok()) return schedule;
  return absl::Status(schedule.status().code(),
                      absl::StrCat(kGatherGemmScatterName, ": buffer_mib=", buffer_mib, ": ",
                                   schedule.status().message()));
}

}  // namespace voxconv
