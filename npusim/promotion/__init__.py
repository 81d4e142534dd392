"""Type derivation and conversion of aclnn: which type operands meet in, which outputs it takes."""

from npusim._errors import ConversionError as ConversionError
from npusim._errors import PromotionError as PromotionError
from npusim.promotion.convert import can_cast as can_cast
from npusim.promotion.convert import check_conversion as check_conversion
from npusim.promotion.derive import result_type as result_type
from npusim.promotion.differences import Difference as Difference
from npusim.promotion.differences import assumed as assumed
from npusim.promotion.differences import diff as diff
from npusim.promotion.scalars import Scalar as Scalar
from npusim.promotion.scalars import scalar_widens as scalar_widens
from npusim.promotion.tables import RULES as RULES
from npusim.promotion.tables import Cell as Cell
from npusim.promotion.tables import conversion_table as conversion_table
from npusim.promotion.tables import derivation_table as derivation_table

__all__ = [
    "RULES",
    "Cell",
    "ConversionError",
    "Difference",
    "PromotionError",
    "Scalar",
    "assumed",
    "can_cast",
    "check_conversion",
    "conversion_table",
    "derivation_table",
    "diff",
    "result_type",
    "scalar_widens",
]
