# SPDX-License-Identifier: Apache-2.0
"""Arrays of JAX. Empty where JAX is not installed; scripts/python_environment installs it."""

import importlib.util

import numpy as np
import pytest
import reference
import voxconv

if importlib.util.find_spec("jax"):
    import jax
    import jax.numpy as jnp

    # Where JAX has a GPU, arrays go there unless they are told not to.
    jax.config.update("jax_platforms", "cpu")

    def test_arrays_of_jax_go_in_and_come_out():
        coords, features = reference.scene(channels=4)
        w = reference.weights(27, 4, 8)
        values = jnp.asarray(features)
        x = voxconv.SparseTensor(jnp.asarray(coords), values)
        assert x.features is values
        y = voxconv.conv(x, jnp.asarray(w), kernel=3).features
        assert isinstance(y, jax.Array) and y.dtype == jnp.float32
        on_numpy = voxconv.conv(voxconv.SparseTensor(coords, features), w, kernel=3).features
        np.testing.assert_array_equal(np.asarray(y), on_numpy)
        assert float(jnp.abs(y).sum()) > 0  # JAX computes with it

    def test_gradients_by_a_custom_vjp():
        coords, features = reference.scene(n=50, channels=4)
        m = voxconv.KernelMap(voxconv.SparseTensor(coords, features), kernel=3)

        @jax.custom_vjp
        def layer(x, w):
            return voxconv.convolve(m, x, w)

        layer.defvjp(
            lambda x, w: (layer(x, w), (x, w)),
            lambda kept, dy: (voxconv.input_grad(m, dy, kept[1]), voxconv.weight_grad(m, kept[0], dy)),
        )
        x, w = jnp.asarray(features), jnp.asarray(reference.weights(27, 4, 8))
        y, back = jax.vjp(layer, x, w)
        dx, dw = back(jnp.ones_like(y))
        np.testing.assert_array_equal(
            np.asarray(dw), voxconv.weight_grad(m, features, np.ones(y.shape, np.float32)))
        assert dx.shape == x.shape

    def test_arrays_of_jax_are_not_written_to():
        coords, features = reference.scene(n=50, channels=4)
        m = voxconv.KernelMap(voxconv.SparseTensor(coords, features), kernel=3)
        w, out = jnp.asarray(reference.weights(27, 4, 8)), jnp.zeros((len(coords), 8))
        with pytest.raises(ValueError, match="out: arrays of JAX are immutable"):
            voxconv.convolve(m, jnp.asarray(features), w, out=out)
        assert not out.any()
