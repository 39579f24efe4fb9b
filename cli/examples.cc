// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/examples.h"

#include <vector>

namespace voxconv::cli {
namespace {

struct Examples {
  absl::string_view command;
  std::vector<absl::string_view> lines;
};

const std::vector<Examples>& AllExamples() {
  static const std::vector<Examples> kAll = {
      {"list", {"list", "list --backend cuda", "list --plugin ./mine.so --json"}},
      {"info",
       {"info scan.bin", "info scan.ply --voxel-size 0.1 --range -50,-50,-3,50,50,1",
        "info 'scene:lidar64?azimuths=500' --json"}},
      {"view",
       {"view scan.bin --out scan.html", "view scene:lidar64 --out street.html --points 200000",
        "view scan.bin --out head.html --network minkunet42 --layer head"}},
      {"run",
       {"run --input scan.bin",
        "run --network sparseresnet21 --input scene:lidar64 --preset minuet",
        "run --input scan.bin --weights w.safetensors --features-out f.npz"}},
      {"conv",
       {"conv in.npz out.npz --kernel 3",
        "conv in.npz out.npz --kind strided --kernel 2 --stride 2",
        "conv in.npz out.npz --convention spconv --mapping hash"}},
      {"pool", {"pool in.npz out.npz", "pool in.npz out.npz --mode average --kernel 3 --stride 2"}},
      {"voxelize",
       {"voxelize scan.bin voxels.npz --voxel-size 0.1",
        "voxelize scene:room - --voxel-size 0.02 > voxels.npz"}},
      {"weights",
       {"weights w.safetensors", "weights w.safetensors --network minkunet42",
        "weights theirs.npz w.safetensors --network minkunet42 --convention spconv"}},
      {"verify",
       {"verify --quick", "verify --plugin ./mine.so --mapping mine",
        "verify --network minkunet42 --input scan.bin"}},
      {"ab",
       {"ab --a minuet --b torchsparse --input scene:lidar64 --channels 64,64",
        "ab --a hash/implicit_gemm --b plan:mine.json --network minkunet42 --input scan.bin",
        "ab --a minuet --b spconv2 --input scan.bin --rounds 5 --out ab.jsonl"}},
      {"bench",
       {"bench --benchmark_filter=map/", "bench --input scan.bin --mapping hash --threads 1,2",
        "bench --network minkunet42 --config minuet"}},
      {"tune",
       {"tune --input scan.bin --out plan.json", "tune --input scan.bin --out plan.json --quick",
        "tune --network sparseresnet21 --input scan.bin --out - --search heuristic"}},
      {"train",
       {"train --network hcnn_classifier --data models.npz --out run",
        "train --data kitti --out run --epochs 20 --optimizer adamw --rate 0.001"}},
      {"eval",
       {"eval --data kitti --weights run/checkpoint.safetensors",
        "eval --network hcnn_classifier --data models.npz --weights w.safetensors"}},
      {"experiment",
       {"experiment --list", "experiment minuet/fig16 --out results",
        "experiment 'minuet/*' --out results --quick --cell '*sphere*'"}},
      {"report",
       {"report results", "report results --again other_results --out pages", "report run"}},
      {"completion",
       {"completion bash > ~/.local/share/bash-completion/completions/voxconv",
        "completion zsh > ~/.zfunc/_voxconv"}},
  };
  return kAll;
}

}  // namespace

absl::Span<const absl::string_view> ExamplesOf(absl::string_view command) {
  for (const Examples& examples : AllExamples()) {
    if (examples.command == command) return examples.lines;
  }
  return {};
}

}  // namespace voxconv::cli
