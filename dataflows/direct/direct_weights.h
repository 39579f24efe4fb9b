#ifndef VOXCONV_DATAFLOWS_DIRECT_DIRECT_WEIGHTS_H_
#define VOXCONV_DATAFLOWS_DIRECT_DIRECT_WEIGHTS_H_

namespace voxconv {

// Where the weights are read: from their array, or from blocks small enough for the cache (on CUDA:
// shared memory).
enum class DirectWeights { kNaive, kCached };

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_DIRECT_DIRECT_WEIGHTS_H_
