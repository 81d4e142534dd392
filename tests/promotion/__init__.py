"""Tests of npusim/promotion."""
