"""Tests of npusim/layouts."""
