"""Vendor examples and boundary tables as data, and the test that the oracle agrees with them."""
