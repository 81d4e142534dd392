"""Handles, views and two-step calls of npusim.acl."""
