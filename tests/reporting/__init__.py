"""Reports: tables, plots, pages."""
