"""Injection: NPU casts in any JAX function, by rules on module paths."""

from npusim.inject.apply import apply_cast as apply_cast
from npusim.inject.plan import Site as Site
from npusim.inject.policy import Policy as Policy
from npusim.inject.report import Report as Report
from npusim.inject.report import report as report
from npusim.inject.rules import OP_KINDS as OP_KINDS
from npusim.inject.rules import Rule as Rule
from npusim.inject.spec import CastSpec as CastSpec
from npusim.inject.statistics import Stats as Stats
from npusim.inject.transform import observe as observe
from npusim.inject.transform import simulate as simulate
from npusim.inject.transform import sites as sites
from npusim.inject.vendors import Preset as Preset
from npusim.inject.vendors import preset as preset
from npusim.inject.vendors import presets as presets

__all__ = [
    "OP_KINDS",
    "CastSpec",
    "Policy",
    "Preset",
    "Report",
    "Rule",
    "Site",
    "Stats",
    "apply_cast",
    "observe",
    "preset",
    "presets",
    "report",
    "simulate",
    "sites",
]
