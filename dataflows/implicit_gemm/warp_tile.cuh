// SPDX-License-Identifier: Apache-2.0
// The part of one warp in implicit GEMM for few channels (warp_kernel.cuh).
//
// A warp owns 16 output rows in mask order and kChannels output channels. It gathers their inputs
// straight into the registers of the mma. A product may sum over its depth in any order. Lane q of
// a quad therefore takes 16 (or 8) adjacent bytes of a row, instead of the scattered elements that
// the mma's layout names. The rows of the weights are picked in the same order.
//
// The products are weights x inputs, channels by rows. The inputs are thus the second operand of
// the mma. Its two registers of one row lie side by side, as adjacent bytes of a row arrive. The
// first operand would mix the registers of two rows, which would take moves.
//
// The weights of all offsets lie in shared memory. Once they are there, warps share nothing, so
// that no warp waits for another.
//
// Rows of at most 16 bytes (the first layer's 4 channels) are multiplied under four offsets at a
// time. Lane q takes the row under the q-th of these offsets. One product thus does the work of
// four.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARP_TILE_CUH_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARP_TILE_CUH_

#include <cstdint>

#include "voxconv/backends/cuda/tensor_core.cuh"
#include "voxconv/dataflows/implicit_gemm/tile_offsets.cuh"

namespace voxconv {

// Sizes of one instance.
// - kVectorBytes: the bytes of a row that a lane loads at once, 8 or 16.
// - kChunks: a row has this many chunks. A chunk is one vector of each of four lanes.
// - kQuads: a row is one vector, and four offsets are multiplied at a time.
template <typename ElementType, int kVectorBytesValue, int kChunksValue, int kChannelsValue,
          bool kQuadsValue>
struct WarpConfig {
  using Element = ElementType;
  static constexpr int kVectorBytes = kVectorBytesValue, kChunks = kChunksValue;
  static constexpr int kChannels = kChannelsValue;
  static constexpr bool kQuads = kQuadsValue;
  static constexpr int kSize = static_cast<int>(sizeof(Element));
  static constexpr int kEights = kChannels / 8;  // of channels
  static constexpr int kWords = kVectorBytes / 4;
  static constexpr int kSteps = kVectorBytes / 8;  // products of one vector
  static constexpr int kRowElements = kVectorBytes / kSize * (kQuads ? 1 : 4 * kChunks);
  static constexpr int kChunkRows = 4 * kVectorBytes / kSize;  // weight rows of a chunk
  static constexpr int kWeightVectors = kChannels * kSize / 16;
  static constexpr int kWeightRowBytes = kChannels * kSize;
  // With few registers, more warps can wait for their rows at the same time.
  static constexpr bool kSmall = kChunks * kVectorBytes <= 16 && kChannels <= 32;
  static constexpr int kThreads = kSmall ? 256 : 512;
  // The least number of blocks. It leaves a thread 64 registers if these are enough, else 80.
  static constexpr int kBlocksPerMultiprocessor =
      !kSmall ? 1 : (kChannels == 16 && kVectorBytes == 8 ? 4 : 3);
  static_assert((kChannels == 16 || kChannels == 32 || kChannels == 64) &&
                (!kQuads || kChunks == 1));
  static constexpr int kAlignment = 256;  // of the weights in shared memory: FragmentOf
  static_assert(kAlignment % kWeightRowBytes == 0);

  // Rows of weights in shared memory for `offsets` offsets.
  static constexpr int64_t WeightRows(int64_t offsets) {
    return kQuads ? (offsets + 3) / 4 * kChunkRows : offsets * kRowElements;
  }
  static constexpr int64_t SharedBytes(int64_t offsets) {
    return WeightRows(offsets) * kWeightRowBytes;
  }
};

template <typename Config>
class WarpTile {
  using Element = typename Config::Element;
  static constexpr uint32_t kAllLanes = ~0u;
  static constexpr uint32_t kOffsetBytes = Config::kRowElements * Config::kWeightRowBytes;
  static constexpr int kEights = Config::kEights;
  using Vector = Pack<uint32_t, Config::kWords>;
  // This lane's vectors of the rows r and r + 8, for r = lane / 4.
  struct Inputs {
    Vector v[Config::kChunks][2];
  };

 public:
  __device__ WarpTile(const ImplicitGemmArgs& args, const char* weights, int channel, int split)
      : args_(args),
        weights_(weights),
        channel_(channel),
        split_(split),
        first_offset_(args.split_ptr[split]),
        num_offsets_(args.split_ptr[split + 1] - args.split_ptr[split]),
        lane_(threadIdx.x % 32),
        input_(KeepWhole(static_cast<const char*>(args.input) +
                         (Config::kQuads ? 0 : lane_ % 4 * Config::kVectorBytes))),
        fragment_(LocateFragment()) {}

  // The row of the 16 that this lane keeps. Lane q of a quad keeps row lane / 4 if q is even, else
  // row lane / 4 + 8. The lanes of a quad thus keep both rows that the quad multiplies.
  static __device__ int OwnRow() { return threadIdx.x % 32 / 4 + threadIdx.x % 2 * 8; }

  // Copies the block's weights to shared memory; all threads take part.
  static __device__ void LoadWeights(const ImplicitGemmArgs& args, int channel, int split,
                                     char* shared) {
    const int offsets = args.split_ptr[split + 1] - args.split_ptr[split];
    const int rows = offsets * Config::kRowElements;  // rows behind these are padding of zeros
    constexpr int kVectors = Config::kWeightVectors, kStep = Config::kThreads / kVectors;
    const int v = threadIdx.x % kVectors;
    const int n = channel + v * (16 / Config::kSize);
    int row = threadIdx.x / kVectors;
    const Element* weights =
        static_cast<const Element*>(args.weights) +
        (int64_t{args.split_ptr[split]} * Config::kRowElements + row) * args.ld_weights + n;
    const int valid_rows = n < args.ld_weights ? rows : 0;
    for (; row < Config::WeightRows(offsets); row += kStep) {
      CopyAsync16(SharedAddress(shared) + Position(row, v) * 16, weights, row < valid_rows);
      weights += kStep * int64_t{args.ld_weights};
    }
    CommitCopies();
    WaitCopies<0>();
    __syncthreads();
  }

  // Computes and stores 16 rows. This lane keeps output row `own_row`, which is at `position`.
  // `mask` is word 0 of that row's mask.
  __device__ void Run(int32_t own_row, int64_t position, uint32_t mask) {
#pragma unroll
    for (auto& halves : sum_) {
#pragma unroll
      for (auto& fragment : halves) {
#pragma unroll
        for (float& sum : fragment) sum = 0.0f;
      }
    }
    if constexpr (Config::kQuads) {
      RunQuads(own_row, position - OwnRow());
    } else {
      for (int word = 0; word * 32 < num_offsets_; ++word) {
        if (word > 0) mask = RowMask(args_, split_, own_row, position, word);
        RunOffsets(own_row, position, __reduce_or_sync(kAllLanes, mask), word * 32);
      }
    }
    Store(own_row);
  }

 private:
  // The position, in vectors, of vector `v` of weight row `row`. Rows that one product reads
  // together lie in different banks.
  static __device__ int Position(int row, int v) {
    constexpr int kVectors = Config::kWeightVectors;
    constexpr int kLaneRows = Config::kVectorBytes / Config::kSize;  // weight rows of a lane
    const int q = row / kLaneRows % 4;
    if constexpr (Config::kSize == 4) {
      return row * kVectors + (v ^ (q * 2 % (kVectors < 8 ? kVectors : 8)));
    } else if constexpr (kVectors % 8 == 0) {
      return row * kVectors + (v ^ (q * 2 + row % 2));
    } else if constexpr (kVectors % 4 == 0) {
      return row * kVectors + (v ^ q);
    } else {
      return row * kVectors + (v ^ (q % 2));
    }
  }

  __device__ Vector LoadVector(int32_t in, int chunk) const {
    Vector vector = {};
    if (in >= 0) {
      const char* row = RowAddress(input_, in, args_.input_row_bytes);
      vector = *reinterpret_cast<const Vector*>(row + chunk * 4 * Config::kVectorBytes);
    }
    return vector;
  }

  __device__ void Gather(int32_t in0, int32_t in1, Inputs& inputs) const {
#pragma unroll
    for (int c = 0; c < Config::kChunks; ++c) {
      inputs.v[c][0] = LoadVector(in0, c);
      inputs.v[c][1] = LoadVector(in1, c);
    }
  }

  // Removes the highest bit of `left` and returns it; -1 if there is none. The lowest bit would
  // take one more instruction, and instructions limit a group with many offsets.
  __device__ static int TakeBit(uint32_t& left) {
    const int bit = 31 - __clz(static_cast<int>(left));
    left ^= __funnelshift_lc(0u, 1u, bit);  // 1 << bit, or 0 for a bit outside the word
    return bit;
  }
  // Removes two bits of `left`. The lanes 0 and 1 of a quad return their own row's entry under the
  // first bit, and the lanes 2 and 3 under the second.
  __device__ static int32_t TakeEntries(const char* entries, uint32_t stride, uint32_t& left) {
    const int first = TakeBit(left), second = TakeBit(left);
    const int bit = threadIdx.x % 4 < 2 ? first : second;
    if (bit < 0) return -1;
    return __ldg(
        reinterpret_cast<const int32_t*>(RowAddress(entries, bit * sizeof(int32_t), stride)));
  }

  // Multiplies the offsets of one mask word. `any` has the bits that any of the 16 rows has. They
  // are taken in pairs. While one pair is multiplied, the inputs of the next pair and the table
  // entries of the pair after that are loaded. Rows past the end use the entries of another row.
  // Nobody stores their products.
  __device__ void RunOffsets(int32_t own_row, int64_t position, uint32_t any, int base) {
    if (any == 0) return;
    const uint32_t stride = static_cast<uint32_t>(EntryStride(args_));
    const char* entries =
        KeepWhole(EntriesOf(args_, own_row, position) + (first_offset_ + base) * int64_t{stride});
    const uint32_t weights = fragment_ + base * kOffsetBytes;
    uint32_t left = any, unread = any;  // bits not multiplied yet; bits whose entries are not read
    Inputs inputs[2][2];
    int32_t first = TakeEntries(entries, stride, unread);
    int32_t second = TakeEntries(entries, stride, unread);
    GatherPair(first, inputs[0]);
    while (true) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int32_t third = TakeEntries(entries, stride, unread);
        const int bits[2] = {TakeBit(left), TakeBit(left)};
        if (left != 0) GatherPair(second, inputs[1 - i]);
        Multiply(weights + bits[0] * kOffsetBytes, inputs[i][0]);
        if (bits[1] >= 0) Multiply(weights + bits[1] * kOffsetBytes, inputs[i][1]);
        if (left == 0) return;
        second = third;
      }
    }
  }

  // The value of lane `q` of this lane's quad.
  static __device__ int32_t FromQuad(int32_t value, int q) {
    return __shfl_sync(kAllLanes, value, q, 4);
  }

  __device__ void GatherPair(int32_t in, Inputs (&inputs)[2]) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      Gather(FromQuad(in, j * 2), FromQuad(in, j * 2 + 1), inputs[j]);
    }
  }

  __device__ void RunQuads(int32_t own_row, int64_t first_position) {
    constexpr int kAhead = 4;
    const int quads = (num_offsets_ + 3) / 4;
    const int q = lane_ % 4;
    const int64_t stride = EntryStride(args_);
    const int32_t* entries[2];
    int limit[2];  // offsets that the row has
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t row = FromQuad(own_row, half);
      entries[half] = EntriesOf(args_, row, first_position + lane_ / 4 + half * 8) +
                      (first_offset_ + q) * stride;
      limit[half] = row < 0 ? 0 : num_offsets_ - q;
    }
    for (int first = 0; first < quads; first += kAhead) {
      int32_t in[kAhead][2];
      Inputs inputs[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int at = (first + i) * 4;
          in[i][half] = at < limit[half] ? __ldg(entries[half] + at * stride) : -1;
        }
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) Gather(in[i][0], in[i][1], inputs[i]);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (first + i < quads) {
          Multiply(fragment_ + (first + i) * Config::kChunkRows * Config::kWeightRowBytes,
                   inputs[i]);
        }
      }
    }
  }

  // The address of this lane's part of the first fragment of the first offset's weights. Other
  // offsets and depths are a number of whole rows further. Other channels differ in some bits of
  // the address (FragmentOf).
  //
  // With 16-bit elements, lane q's share of product s of a vector is the elements 4 s to 4 s + 3.
  // The first two have the mma's depths 2 q and 2 q + 1, the others 2 q + 8 and 2 q + 9.
  // With tf32, it is the elements 2 s and 2 s + 1, which have the depths q and q + 4.
  __device__ uint32_t LocateFragment() const {
    constexpr int kLaneRows = Config::kVectorBytes / Config::kSize;
    if constexpr (Config::kSize == 4) {
      const int column = lane_ / 4;
      return SharedAddress(weights_) + Position(lane_ % 4 * kLaneRows, column / 4) * 16 +
             column % 4 * 4;
    } else {
      const int row = lane_ % 8 / 2 * kLaneRows + lane_ % 2 + lane_ / 16 * 2;
      return SharedAddress(weights_) + Position(row, lane_ / 8 % 2) * 16;
    }
  }
  // The address of the fragment whose channels are 32 bytes * `i` further. An exclusive or is
  // enough, because Position uses only that, and a row starts at a multiple of its length.
  static __device__ uint32_t FragmentOf(uint32_t first, int i) { return first ^ (i * 32); }

  // sum += W * inputs; this lane's part of W's first fragment is at `weights`.
  __device__ void Multiply(uint32_t weights, const Inputs& inputs) {
    constexpr int kStepRows = Config::kSize == 4 ? 2 : 4;
#pragma unroll
    for (int c = 0; c < Config::kChunks; ++c) {
#pragma unroll
      for (int s = 0; s < Config::kSteps; ++s) {
        const int row = c * Config::kChunkRows + s * kStepRows;
        MultiplyStep(weights, row * Config::kWeightRowBytes, inputs.v[c], 2 * s);
      }
    }
  }

  // One product of Multiply. It reads W's rows `offset` bytes after `weights`, and the words `word`
  // and `word` + 1 of the inputs.
  __device__ void MultiplyStep(uint32_t weights, uint32_t offset, const Vector (&inputs)[2],
                               int word) {
    constexpr int kTiles = kEights / 2;  // of 16 channels
    if constexpr (Config::kSize == 4) {
      const uint32_t b[2][2] = {
          {RoundToTf32(inputs[0].v[word]), RoundToTf32(inputs[0].v[word + 1])},
          {RoundToTf32(inputs[1].v[word]), RoundToTf32(inputs[1].v[word + 1])}};
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const uint32_t low = FragmentOf(weights, 2 * t) + offset;
        const uint32_t high = FragmentOf(weights, 2 * t + 1) + offset;
        const uint32_t a[4] = {RoundToTf32(LoadShared(low)), RoundToTf32(LoadShared(high)),
                               RoundToTf32(LoadShared(low + Config::kWeightRowBytes)),
                               RoundToTf32(LoadShared(high + Config::kWeightRowBytes))};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          Mma<Element>(sum_[t][half], a, b[half][0], b[half][1]);
        }
      }
    } else {
      constexpr int kAhead = kTiles < 2 ? 1 : 2;  // loads before the first product
#pragma unroll
      for (int t = 0; t < kTiles; t += kAhead) {
        uint32_t a[kAhead][4];
#pragma unroll
        for (int j = 0; j < kAhead; ++j) {
          LoadMatricesTransposed(FragmentOf(weights, t + j) + offset, a[j]);
        }
#pragma unroll
        for (int j = 0; j < kAhead; ++j) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            Mma<Element>(sum_[t + j][half], a[j], inputs[half].v[word], inputs[half].v[word + 1]);
          }
        }
      }
    }
  }

  // Two sums of this lane: rows 2 q and 2 q + 1 of a half, and channel lane / 4 of the `eight`-th
  // eight channels.
  __device__ float2 Sums(int half, int eight) const {
    const float* sum = sum_[eight / 2][half] + eight % 2 * 2;
    return {sum[0], sum[1]};
  }

  __device__ void Store(int32_t own_row) {
    if (args_.vector_stores && args_.partial == nullptr) {
      StoreVectors(own_row);
      return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int source = lane_ % 4 * 8 + half;  // the lane that keeps row 2 q of the half
      const int32_t rows[2] = {__shfl_sync(kAllLanes, own_row, source),
                               __shfl_sync(kAllLanes, own_row, source + 4)};
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) {
        const int channel = channel_ + eight * 8 + lane_ / 4;
        const float2 sums = Sums(half, eight);
        if (rows[0] >= 0) StoreOne<Element>(args_, split_, rows[0], channel, sums.x);
        if (rows[1] >= 0) StoreOne<Element>(args_, split_, rows[1], channel, sums.y);
      }
    }
  }

  // Stores whole vectors. It transposes 8 x 8 sums at a time, so that a lane has eight channels of
  // one row.
  __device__ void StoreVectors(int32_t own_row) {
#pragma unroll
    for (int first = 0; first < 2 * kEights; first += 4) {
      const int mine = first + lane_ % 4;
      const int32_t row = FromQuad(own_row, mine / kEights);
      const int channel = channel_ + mine % kEights * 8;
      const bool valid = row >= 0 && channel < args_.c_out;
      if constexpr (Config::kSize == 2) {
        StoreVector(first, row, channel, valid);
      } else {
        float2 tiles[4], pairs[4];
#pragma unroll
        for (int t = 0; t < 4; ++t) {
          tiles[t] = TransposeMatrix(Sums((first + t) / kEights, (first + t) % kEights));
        }
        TransposeQuad(tiles, pairs);
        if (valid) StoreEight<Element>(args_, row, channel, pairs);
      }
    }
  }

  // StoreVectors for 16-bit elements. Each lane finishes its own sums, so that 16-bit values travel
  // between lanes instead of floats. This lane stores its vector to `row`, from `channel` on, if
  // `valid` is set.
  __device__ void StoreVector(int first, int32_t row, int channel, bool valid) {
    uint32_t residual[4] = {};
    if (args_.residual != nullptr) {
      uint4 vector = {};
      if (valid) {
        vector = *reinterpret_cast<const uint4*>(static_cast<const Element*>(args_.residual) +
                                                 int64_t{row} * args_.c_out + channel);
      }
      const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
      TransposeQuad(words, residual);
#pragma unroll
      for (uint32_t& elements : residual) elements = TransposeMatrix(elements);
    }
    uint32_t tiles[4], words[4];
    FinishTiles(first, residual, tiles);
#pragma unroll
    for (uint32_t& elements : tiles) elements = TransposeMatrix(elements);
    TransposeQuad(tiles, words);
    if (!valid) return;
    *reinterpret_cast<uint4*>(static_cast<Element*>(args_.output) + int64_t{row} * args_.ld_output +
                              channel) = {words[0], words[1], words[2], words[3]};
  }

  // Finishes the tiles first to first + 3. A tile has 8 channels x 8 rows, and the tiles of the
  // first half of the rows come first. Word t has the rows 2 q and 2 q + 1 and the channel lane / 4
  // of tile first + t.
  __device__ void FinishTiles(int first, const uint32_t (&residual)[4],
                              uint32_t (&finished)[4]) const {
    float2 sums[4];
    int channel[4];
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const int eight = (first + t) % kEights;
      sums[t] = Sums((first + t) / kEights, eight);
      // Nobody stores channels past the end. For them, any channel in range will do.
      channel[t] = min(channel_ + eight * 8, args_.c_out - 8) + lane_ / 4;
    }
    if (args_.scale != nullptr) {
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const float scale = __ldg(args_.scale + channel[t]);
        sums[t] = {sums[t].x * scale, sums[t].y * scale};
      }
    }
    if (args_.shift != nullptr) {
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const float shift = __ldg(args_.shift + channel[t]);
        sums[t] = {sums[t].x + shift, sums[t].y + shift};
      }
    }
    FinishWords<Element>(args_, residual, sums, finished);
  }

  const ImplicitGemmArgs& args_;
  const char* weights_;  // in shared memory
  int channel_;
  int split_;
  int first_offset_, num_offsets_;
  int lane_;
  const char* input_;  // this lane's part of input row 0
  uint32_t fragment_;
  float sum_[kEights / 2][2][4];  // [16 channels][half of the rows]: a fragment of the mma
};

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_WARP_TILE_CUH_
