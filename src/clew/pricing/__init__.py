"""Prices and costs: genai-prices behind a compiled price for each (provider, model).

`Prices.find` is a dictionary look-up and `compute` is arithmetic; the price library itself loads
in the background and is asked once for each model.
"""

from clew.pricing.book import PENDING, Pending, Prices
from clew.pricing.cost import Cost, CostStatus, Price, Rates, compute

__all__ = ["PENDING", "Cost", "CostStatus", "Pending", "Price", "Prices", "Rates", "compute"]
