// SPDX-License-Identifier: Apache-2.0
// Loads the plugin named on the command line and holds the kernel maps of its every variant
// against brute force.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/core/plugin_loader.h"
#include "voxconv/core/registry.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {
namespace {

using Pair = std::tuple<int, int32_t, int32_t>;  // offset, out, in: the canonical order

// Two samples of an 8 x 8 x 8 box around the origin, about a quarter of its voxels.
std::vector<Coordinate> TestVoxels() {
  std::vector<Coordinate> voxels;
  uint32_t state = 1;
  for (int32_t i = 0; i < 1024; ++i) {
    state = state * 1664525u + 1013904223u;
    if (state >> 30 != 0) continue;
    voxels.push_back({i / 512, i / 64 % 8 - 4, i / 8 % 8 - 4, i % 8 - 4});
  }
  return voxels;
}

std::vector<Pair> BruteForce(const std::vector<Coordinate>& voxels, const ConvGeometry& geometry) {
  std::vector<Pair> pairs;
  for (int k = 0; k < geometry.num_offsets(); ++k) {
    const Int3& d = geometry.InputOffset(k);
    for (size_t q = 0; q < voxels.size(); ++q) {
      const Coordinate& at = voxels[q];
      for (size_t p = 0; p < voxels.size(); ++p) {
        if (voxels[p] == Coordinate{at.b, at.x + d.x, at.y + d.y, at.z + d.z}) {
          pairs.emplace_back(k, static_cast<int32_t>(q), static_cast<int32_t>(p));
        }
      }
    }
  }
  return pairs;
}

std::vector<Pair> PairsOf(const KernelMap& map) {
  std::vector<Pair> pairs;
  const PairList& list = map.pairs();
  for (int k = 0; k < map.num_offsets(); ++k) {
    for (int64_t i = map.offset_ptr()[k]; i < map.offset_ptr()[k + 1]; ++i) {
      pairs.emplace_back(k, list.out.data()[i], list.in.data()[i]);
    }
  }
  return pairs;
}

absl::Status Run(const std::string& plugin) {
  Registry registry;
  VOXCONV_RETURN_IF_ERROR(LoadPlugin(plugin, registry));
  VOXCONV_ASSIGN_OR_RETURN(auto backend, CpuBackend::Create({.threads = 2}));
  const ExecutionContext context{.backend = backend.get(), .stream = &backend->main_stream()};
  VOXCONV_ASSIGN_OR_RETURN(ConvGeometry geometry, ConvGeometry::Create({}));
  const std::vector<Coordinate> voxels = TestVoxels();
  VOXCONV_ASSIGN_OR_RETURN(auto set, CoordinateSet::Create(voxels, {1, 1, 1}, context));
  const std::vector<Pair> expected = BruteForce(voxels, geometry);

  for (const std::string& spec : registry.mappings().Variants(backend->kind())) {
    VOXCONV_ASSIGN_OR_RETURN(auto mapping, registry.mappings().Create(spec, backend->kind()));
    VOXCONV_ASSIGN_OR_RETURN(KernelMap found,
                             QueryKernelMap(*mapping, {*set, *set, geometry}, context));
    VOXCONV_ASSIGN_OR_RETURN(const KernelMap map,
                             backend->map_ops().To(MapForm::kPairs, found, context));
    VOXCONV_RETURN_IF_ERROR(map.Validate(context));
    if (PairsOf(map) != expected) return absl::InternalError(spec + ": wrong kernel map");
    std::printf("%s: %zu pairs, as expected\n", spec.c_str(), expected.size());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace voxconv

int main(int argc, char** argv) {
  const absl::Status status = argc == 2
                                  ? voxconv::Run(argv[1])
                                  : absl::InvalidArgumentError("usage: installed_host PLUGIN");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
