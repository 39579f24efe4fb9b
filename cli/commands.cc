// SPDX-License-Identifier: Apache-2.0
#include "voxconv/cli/command.h"

namespace voxconv::cli {

absl::Span<const Command> Commands() {
  static constexpr Command kCommands[] = {
      {"list", "show plugins, their options, what they support and what they refuse", RunList},
      {"info", "show counts, density and neighbours of a point cloud, scene or saved kernel map",
       RunInfo},
      {"view", "write a page that shows a point cloud, or a layer's output, in a browser", RunView},
      {"run", "run a network on a point cloud and print a table of its layers", RunRun},
      {"conv", "run one layer on arrays in .npz files", RunConv},
      {"pool", "pool arrays in .npz files as conv convolves them", RunPool},
      {"voxelize", "write the voxels of an input to an .npz file", RunVoxelize},
      {"weights", "list a file of weights, fit it to a network, and convert it", RunWeights},
      {"verify", "check every combination of plugins against the reference", RunVerify},
      {"ab", "compare two configurations on the same work, interleaved", RunAb},
      {"bench", "run micro-benchmarks of mappings and dataflows", RunBench},
      {"tune", "find the fastest mapping and dataflow of every layer and save them as a plan",
       RunTune},
      {"train", "train a network on a labelled data set", RunTrain},
      {"eval", "test a trained network on a labelled data set", RunEval},
      {"experiment", "measure a paper's table or figure, or your own comparison, from a file",
       RunExperiment},
      {"report", "write pages with plots from the result files of experiments", WriteReport},
      {"completion", "print a script with which bash or zsh completes commands and options",
       RunCompletion},
  };
  return kCommands;
}

}  // namespace voxconv::cli
