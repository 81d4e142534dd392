"""Bit-exact, differentiable simulation of Huawei Ascend NPU numerics in JAX."""
