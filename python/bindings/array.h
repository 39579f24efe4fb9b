// SPDX-License-Identifier: Apache-2.0
// Arrays of Python: in by DLPack or the buffer protocol, out as arrays of the caller's framework.
// Nothing is copied.
#ifndef VOXCONV_PYTHON_BINDINGS_ARRAY_H_
#define VOXCONV_PYTHON_BINDINGS_ARRAY_H_

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine.h"
#include "exchange.h"
#include "voxconv/core/tensor.h"
#include "voxconv/io/npy.h"

namespace voxconv::python {

// "float64", "int32".
std::string NameOf(nb::dlpack::dtype dtype);

// Who gives an array.
enum class Giver {
  kUser,    // an array that requires a gradient is refused, since the function does not pass it on
  kModule,  // voxconv.torch, which sees to gradients; a tensor that is not contiguous is copied
  kModuleInPlace,  // the same for what may be written to: one that is not contiguous is refused
};

// An array that Python owns. It is contiguous, row-major, and kept alive by this object. Copying
// and destroying it needs the GIL.
class InArray {
 public:
  // Takes the array. Messages begin with `name`. TypeError for an object that is no array;
  // ValueError for an array that requires a gradient or is not contiguous, as `giver` says, and for
  // a device that voxconv does not know. Queues no work but copies (Giver::kModule). A CUDA array
  // is taken for the caller's current stream (CurrentStream), which the array's framework orders
  // after the work that makes it.
  InArray(const char* name, nb::handle object, Giver giver = Giver::kUser);

  const char* name() const { return name_; }
  const EnginePtr& engine() const { return engine_; }
  // What was given.
  const nb::object& object() const { return object_; }
  int64_t ndim() const { return view_.ndim; }
  int64_t shape(int axis) const { return view_.shape[axis]; }
  int64_t size() const;
  const void* data() const { return size() == 0 ? nullptr : view_.data; }
  template <typename T>
  bool Is() const {
    return view_.dtype == nb::dtype<T>();
  }

  // Refuses another number of axes; `shape` says in the message what is needed: "[N, 4]".
  void CheckRank(int ndim, const char* shape) const;
  // Refuses arrays of other engines than `engine`: other devices and other streams.
  void CheckOn(Engine& engine) const;
  // A view of an array of f32, f16 or bf16 as [rows, channels]: all axes but the last are rows. An
  // array with one axis is one row. ValueError for other dtypes.
  ConstTensorView Matrix() const;

  // "[3, 4]", "float64".
  std::string ShapeText() const;
  std::string DTypeText() const { return NameOf(view_.dtype); }

 private:
  void Take(Giver giver);
  // By DLPack's C functions. False if the framework has none for this array.
  bool TakeByExchange();
  void TakeByCapsule();

  const char* name_;
  nb::object object_;
  ArrayView view_;
  std::optional<nb::ndarray<nb::ro>> capsule_;  // keeps what view_ describes, beside object_
  EnginePtr engine_;
};

// The same elements, which the caller has made sure may be written.
TensorView Writable(const ConstTensorView& view);

// The array as memory that a result is written to. Errors of InArray; ValueError for an array that
// is read-only or of JAX, whose arrays are immutable, of another shape or dtype than `needed`'s, on
// another engine, or that overlaps one of `inputs`.
TensorView OutMatrix(const InArray& array, const std::vector<int64_t>& shape, DType dtype,
                     Engine& engine, const std::vector<ConstTensorView>& inputs);

// Tells autograd that an array is written to, if it is PyTorch's: a backward pass that needs its
// values before is an error then.
void CountWrite(nb::handle array);

// Refuses other arrays than int32 [N, 4].
void CheckCoordinates(const InArray& array);
// Copies rows of int32 [N, 4] to the host. O(N). Synchronises the stream of a CUDA array.
std::vector<Coordinate> ReadCoordinates(const InArray& array);

// A copy of a float32 array on the CPU, as a file would have it. ValueError for another one.
NpyArray HostFloats(const char* name, nb::handle object);

// The dtype as DLPack and NumPy call it.
nb::dlpack::dtype DLPackOf(DType dtype);

// An array of Python over memory that `owner` keeps: NumPy's on the CPU, unless `like` is an array
// of PyTorch or JAX, which gives one of that framework. On CUDA: PyTorch's, CuPy's or JAX's as
// `like` or as the process has loaded, else an object with __dlpack__.
nb::object OutArray(void* data, const std::vector<int64_t>& shape, nb::dlpack::dtype dtype,
                    const Device& device, const nb::object& owner, nb::handle like);
// The same, read-only: NumPy's on the CPU, whatever the caller's framework is.
nb::object ReadOnlyArray(const void* data, const std::vector<int64_t>& shape,
                         nb::dlpack::dtype dtype, const Device& device, const nb::object& owner);

// The tensor as an array of shape `shape` that owns it.
nb::object OutTensor(const EnginePtr& engine, Tensor tensor, const std::vector<int64_t>& shape,
                     nb::handle like);

// A new array of the framework of `like`, in memory of that framework's allocator, and its matrix:
// all axes but the last are rows. Empty where the framework has no C functions (Exchange); results
// are then made in the engine's memory and handed over by OutTensor.
struct NewArray {
  nb::object object;
  TensorView matrix;

  static std::optional<NewArray> Create(Engine& engine, const std::vector<int64_t>& shape,
                                        DType dtype, nb::handle like);
};

// A capsule that keeps `value` alive.
template <typename T>
nb::object Keep(std::shared_ptr<T> value) {
  using Pointer = std::shared_ptr<T>;
  return nb::capsule(new Pointer(std::move(value)),
                     [](void* pointer) noexcept { delete static_cast<Pointer*>(pointer); });
}

}  // namespace voxconv::python

#endif  // VOXCONV_PYTHON_BINDINGS_ARRAY_H_
