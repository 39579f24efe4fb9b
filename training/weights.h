// SPDX-License-Identifier: Apache-2.0
// Weights of networks from elsewhere: which of them fit a network, and what they are in another
// file format or another engine's convention.
#ifndef VOXCONV_TRAINING_WEIGHTS_H_
#define VOXCONV_TRAINING_WEIGHTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/io/convention.h"
#include "voxconv/io/npy.h"
#include "voxconv/io/safetensors.h"
#include "voxconv/networks/graph.h"

namespace voxconv {

// kInvalidArgument for a path that ends neither in .safetensors nor in .npz.
absl::Status CheckWeightsPath(const std::string& path);

// Reads an .npz or .safetensors file, as its name ends. kInvalidArgument for another ending. Errors
// of ReadNpz and ReadSafetensors.
absl::StatusOr<Safetensors> ReadWeights(const std::string& path, const NpzOptions& npz);
// The bytes of such a file. NumPy has no bfloat16: in an .npz file it becomes float32, which holds
// the same values. kInvalidArgument for another ending, and for a dtype that .npz files of this
// program do not have. Errors of SerializeNpz and SerializeSafetensors.
absl::StatusOr<std::string> SerializeWeights(const std::string& path, const Safetensors& content);

// The file's array of each parameter where its name is another: {parameter, array}.
using WeightNames = std::vector<std::pair<std::string, std::string>>;
// Reads a JSON object with the names of arrays by parameters. kInvalidArgument for other JSON, and
// for a parameter that `graph` does not have.
absl::StatusOr<WeightNames> ReadWeightNames(const std::string& path, const NetworkGraph& graph);

// How the arrays of a file meet the parameters of a network.
struct WeightsFit {
  int64_t fitting = 0;
  std::vector<std::string> missing;  // one line for each parameter without an array
  std::vector<std::string> wrong;    // one line for each array of a wrong shape or dtype, with both
  std::vector<std::string> surplus;  // arrays that are no parameter's

  bool fits() const { return missing.empty() && wrong.empty(); }
};

// The parameters of `graph` from the arrays of `content`, as arrays of the network's own names,
// float32, written in the convention `to`. `fit` says what was found; an array that does not fit is
// not in the result.
//
// The weights of convolutions are reordered as WeightsToVoxconv says. The weights of linear layers
// are [C_in, C_out] in the convention voxconv, and [C_out, C_in], as PyTorch has them, in the
// others. Other parameters are the same in all conventions.
Safetensors ConvertWeights(const NetworkGraph& graph, const Safetensors& content, Convention from,
                           Convention to, const WeightNames& names, WeightsFit& fit);

}  // namespace voxconv

#endif  // VOXCONV_TRAINING_WEIGHTS_H_
