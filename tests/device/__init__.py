"""Bits on an accelerator."""
