"""Data formats: what the axes of a tensor mean, and the NPU's private tilings of them."""

from npusim.layouts.formats import FORMATS as FORMATS
from npusim.layouts.formats import DataFormat as DataFormat
from npusim.layouts.formats import check_rank as check_rank
from npusim.layouts.formats import data_format as data_format
from npusim.layouts.formats import default_c0 as default_c0
from npusim.layouts.formats import formats_of_rank as formats_of_rank
from npusim.layouts.places import locate as locate
from npusim.layouts.places import storage_shape as storage_shape
from npusim.layouts.plan import possible as possible
from npusim.layouts.transform import trans_data as trans_data

__all__ = [
    "FORMATS",
    "DataFormat",
    "check_rank",
    "data_format",
    "default_c0",
    "formats_of_rank",
    "locate",
    "possible",
    "storage_shape",
    "trans_data",
]
