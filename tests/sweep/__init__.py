"""Sweeps: files, tasks, runs, results."""
