#include "cli/command.h"

namespace voxconv::cli {

absl::Span<const Command> Commands() {
  static constexpr Command kCommands[] = {
      {"list", "plugins, their options, what they support and why not", RunList},
      {"info", "counts, density and neighbours of a point cloud, scene or saved kernel map",
       RunInfo},
      {"run", "a network on a point cloud, with a table of its layers", RunRun},
      {"conv", "one layer on arrays from and to .npz files", RunConv},
      {"verify", "every combination against the reference", RunVerify},
      {"ab", "two configurations on the same work, interleaved", RunAb},
      {"bench", "micro-benchmarks of mappings and dataflows", RunBench},
      {"tune", "the fastest mapping and dataflow of every layer, saved as a plan", RunTune},
      {"experiment", "a paper's table or figure, or your own comparison, from a file",
       RunExperiment},
      {"report", "result files of experiments as pages with plots", WriteReport},
  };
  return kCommands;
}

}  // namespace voxconv::cli
