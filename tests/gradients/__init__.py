"""Straight-through gradients, exactly: first and higher derivatives, both modes."""
