"""From finished trials to tables, plots and pages.

Everything here works from ``results.jsonl`` alone, so a report can be drawn again anywhere.
"""
