"""npusim.numpy."""
