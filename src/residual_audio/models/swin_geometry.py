"""Which tokens share a window: orders, shifts and masks of a square token grid."""

from __future__ import annotations

import math

import torch
from torch import Tensor

UNSEEN = -1e4
"""Added to the score of a token that must not be seen. With the −100 of other implementations its
weight is e⁻¹⁰⁰: nothing beside the others in float32, but not quite 0, and gradients of attention
took nine times as long where processors multiply such numbers."""


def z_order(side: int) -> Tensor:
    """Raster index of each token in Z-order; the row bit is the fast one, as in patch merging."""
    code = torch.arange(side * side)
    row = torch.zeros_like(code)
    column = torch.zeros_like(code)
    for bit in range(int(math.log2(side))):
        row |= ((code >> (2 * bit)) & 1) << bit
        column |= ((code >> (2 * bit + 1)) & 1) << bit
    return row * side + column


def relative_index(window: int) -> Tensor:
    """[window², window²] rows of the bias table for query and key, both in Z-order."""
    order = z_order(window)
    return raster_relative_index(window)[order][:, order]


def raster_relative_index(window: int) -> Tensor:
    """The same with tokens in raster order, as upstream keeps it."""
    order = torch.arange(window * window)
    row, column = order // window, order % window
    rows = row[:, None] - row[None, :] + window - 1
    columns = column[:, None] - column[None, :] + window - 1
    return rows * (2 * window - 1) + columns


def shifted_windows(side: int, window: int, shift: int) -> tuple[Tensor, Tensor]:
    """The gather that makes shifted windows of a Z-ordered grid, and their mask (0 or `UNSEEN`)."""
    order = z_order(side)
    row, column = order // side, order % side
    rank = torch.empty_like(order)  # raster → position in Z-order
    rank[order] = torch.arange(side * side)
    gather = rank[((row + shift) % side) * side + (column + shift) % side]
    # Tokens that the roll brought together from opposite edges must not see each other.
    edges = torch.tensor([side - window, side - shift])
    region = torch.bucketize(row, edges, right=True) * 3 + torch.bucketize(
        column, edges, right=True
    )
    region = region.reshape(-1, window * window)
    mask = (region[:, :, None] != region[:, None, :]).float() * UNSEEN
    return gather, mask
