"""Tests of npusim/cli."""
