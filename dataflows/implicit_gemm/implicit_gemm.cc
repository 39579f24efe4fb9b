// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/implicit_gemm/implicit_gemm.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace voxconv {
namespace {

// Behind a layout's key: parts by the number of rows.
constexpr char kByRows[] = ",parts by rows";

MaskOrder MaskOrderOf(const Options& options) {
  const std::string& name = options.GetEnum("mask_sort");
  const auto* order =
      std::ranges::find_if(kMaskOrders, [&name](MaskOrder each) { return ToString(each) == name; });
  VOXCONV_CHECK(order != std::end(kMaskOrders));
  return *order;
}

// kRarest has a few hundred keys, however many rows there are. Of so many rows, those that share a
// key fill many tiles, and whole masks sort them further. More words than one would not fit a key.
MaskOrder OrderOfRows(MaskOrder order, const KernelMap& map) {
  constexpr int64_t kManyRows = 400'000;
  constexpr int kOneWord = 32;
  const bool whole = map.num_outputs() >= kManyRows && map.num_offsets() <= kOneWord;
  return order == MaskOrder::kRarest && whole ? MaskOrder::kGray : order;
}

}  // namespace

PluginDescription DescribeImplicitGemm() {
  PluginDescription description{
      .name = kImplicitGemmName,
      .summary = "output-stationary, rows sorted by the kernel offsets they have",
      .source = "SpConv 2; TorchSparse++ (MICRO 2023)",
      .extra_variants = {
          "splits=3", "mask_sort=gray,splits=2,tile=64", "tile=1", "tile=128,tile_channels=32",
          "tile=128,tile_channels=128", "tile=128,tile_channels=256", "tile=128,tile_channels=64",
          "tile=128,tile_channels=96", "tile=192,tile_channels=96", "tile=192,tile_channels=128"}};
  std::vector<std::string> orders;
  for (const MaskOrder order : kMaskOrders) orders.emplace_back(ToString(order));
  description.options
      .Enum("mask_sort", orders, "mask",
            "order of the output rows: as given, by their offset mask, by its Gray rank with masks "
            "of few offsets first, or by their two rarest offsets (400000 rows and more: as gray)")
      .Int("splits", 0, 0, 32,
           "parts of the offset range, sorted each for itself; at most K; 0: one, but of few rows "
           "more where CUDA takes 3xtf32 in f32 and layers are wide")
      .Int("tile", 0, 0, 192,
           "output rows that share one set of offsets; on CUDA 16, 64, 128 or 192 (the next one "
           "up; some shapes have one of the last two alone); 0: chosen by the backend, 6 on the "
           "CPU")
      .Int("tile_channels", 0, 0, 256,
           "output channels of a block on CUDA: 32, 64, 96, 128, or 256 where warpgroups multiply "
           "(the next one up); 0: chosen by shape")
      .Enum("mma", {"auto", "warp", "3xtf32"}, "auto",
            "tensor-core products on CUDA: of warpgroups where they are there and win, or always "
            "of warps; 3xtf32: as auto, and in f32 from 8 input channels on, where warpgroups win, "
            "three tf32 products in place of a fused multiply-add, within the same bound on the "
            "error, but that finite numbers whose product passes 2^139 may give NaN instead of an "
            "infinity");
  return description;
}

ImplicitGemm::ImplicitGemm(Options options, MaskSorter sorter)
    : options_(std::move(options)), order_(MaskOrderOf(options_)), sorter_(sorter) {}

MaskSortedRule ImplicitGemm::RuleFor(int num_offsets) const {
  // A mask of so few offsets is as short a key as its two rarest ones, and needs no counting.
  constexpr int kShortMask = 9;
  MaskSortedRule rule{.order = order_};
  if (order_ == MaskOrder::kRarest && num_offsets <= kShortMask) rule.order = MaskOrder::kMask;
  rule.splits =
      static_cast<int>(std::clamp<int64_t>(options_.GetInt("splits"), 1, std::max(num_offsets, 1)));
  return rule;
}

MapNeed ImplicitGemm::DoNeededMap(Pass, const ConvShape& shape) const {
  std::string layout = RuleFor(shape.num_offsets).Key();
  if (options_.GetInt("splits") == 0 && CutsByRows(shape)) layout += kByRows;
  return {.form = MapForm::kNeighbourTable, .layout = std::move(layout)};
}

absl::StatusOr<std::shared_ptr<const PreparedMap>> ImplicitGemm::DoPrepare(
    const KernelMap& map, const MapNeed& need, const ExecutionContext& context) const {
  MaskSortedRule rule = RuleFor(map.num_offsets());
  if (need.layout == absl::StrCat(rule.Key(), kByRows)) {
    rule.splits = PartsOfRows(map.num_outputs(), context);
  } else if (need.layout != rule.Key()) {
    return absl::InvalidArgumentError(absl::StrCat(kImplicitGemmName, ": map layout '", need.layout,
                                                   "'; for ", map.num_offsets(),
                                                   " offsets it makes '", rule.Key(), "'"));
  }
  rule.order = OrderOfRows(rule.order, map);
  VOXCONV_ASSIGN_OR_RETURN(MaskSortedArrays arrays, sorter_(map, rule, context));
  return std::make_shared<const MaskSorted>(map, rule.order, std::move(arrays));
}

absl::StatusOr<const MaskSortedArrays*> ImplicitGemm::LayoutOf(const PreparedMap& map) {
  const auto* layout = dynamic_cast<const MaskSorted*>(&map);
  if (layout != nullptr) return &layout->arrays();
  return absl::InvalidArgumentError(
      absl::StrCat(kImplicitGemmName, ": the map was not prepared in the layout 'mask_sorted'"));
}

}  // namespace voxconv
