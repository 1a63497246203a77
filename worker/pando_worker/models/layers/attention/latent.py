"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434).

Keys and values of all heads come from one latent a token, and the pool keeps only that, with a
rotated key that all heads share. A head's projection from the latent to its keys is applied to its
queries instead, and the one to its values to its results (section 2.1.2, "absorbed"). So attention
is that of many query heads with one wide key, which every rank has.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pando_worker.attention.backend import AttentionBackend, AttentionLayer
from pando_worker.models.build import Build, Fill
from pando_worker.models.layers.attention.rotary import Rotation
from pando_worker.models.layers.linear import ColumnParallelLinear, RowParallelLinear, Rows
from pando_worker.models.layers.norms.rms import RMSNorm

_EPS = 1e-6  # of the norms of latents, whatever the model's others have


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentForm:
    """
    Attributes:
        q_latent: width of the latent of queries; None: they are projected at once
        latent: width of the latent of keys and values
        plain_dim, rotary_dim: of a head's queries and keys, without positions and with
        v_head_dim: of a head's values
        interleaved: whether rotary dimension 2i is paired with 2i + 1
    """

    heads: int
    q_latent: int | None
    latent: int
    plain_dim: int
    rotary_dim: int
    v_head_dim: int
    scale: float
    interleaved: bool


class LatentAttention(nn.Module):
    """Each rank computes a share of the heads, and all of the latents.

    Args:
        index: of the layer
    """

    def __init__(self, build: Build, index: int, hidden_size: int, form: LatentForm) -> None:
        super().__init__()
        mine = build.group.share(form.heads, "attention heads")
        self.layer = AttentionLayer(
            index=index,
            heads=len(mine),
            kv_heads=1,
            head_dim=form.rotary_dim,
            v_head_dim=form.latent,
            latent=True,
            scale=form.scale,
        )
        width = form.plain_dim + form.rotary_dim
        queries = _of_heads(form.heads, mine, width)
        kv = _whole(form.latent + form.rotary_dim)
        self.q_b_proj: ColumnParallelLinear | None = None
        self.q_a_layernorm: RMSNorm | None = None
        if form.q_latent is None:
            sections = {"q_proj": queries, "kv_a_proj_with_mqa": kv}
            self._q_width = len(queries.taken)
        else:
            sections = {"q_a_proj": _whole(form.q_latent), "kv_a_proj_with_mqa": kv}
            self._q_width = form.q_latent
            self.q_a_layernorm = RMSNorm(build, form.q_latent, _EPS)
            self.q_b_proj = ColumnParallelLinear(
                build, form.q_latent, {"q_b_proj": queries}, bias=False
            )
        self.down_proj = ColumnParallelLinear(build, hidden_size, sections, bias=False)
        self.kv_a_layernorm = RMSNorm(build, form.latent, _EPS)
        self.up_proj = _UpProjection(build, form, mine)
        values = _of_heads(form.heads, mine, form.v_head_dim)
        self.o_proj = RowParallelLinear(build, "o_proj", values, hidden_size, bias=False)
        self._form = form

    def forward(
        self, x: Tensor, rotations: tuple[Rotation, ...], attention: AttentionBackend
    ) -> Tensor:
        form, rotation = self._form, rotations[0]
        widths = [self._q_width, form.latent, form.rotary_dim]
        q, latents, k = torch.split(self.down_proj(x), widths, dim=-1)
        if self.q_b_proj is not None and self.q_a_layernorm is not None:
            q = self.q_b_proj(self.q_a_layernorm(q.contiguous()))
        q = torch.unflatten(q, -1, (-1, form.plain_dim + form.rotary_dim))
        plain, turned = torch.split(q, [form.plain_dim, form.rotary_dim], dim=-1)
        # [heads, num_tokens, plain_dim] by [heads, plain_dim, latent]
        absorbed = torch.bmm(plain.transpose(0, 1), self.up_proj.keys).transpose(0, 1)
        turned = rotation.apply(self._in_halves(turned))
        k = rotation.apply(self._in_halves(k[:, None]))
        latents = self.kv_a_layernorm(latents.contiguous())[:, None]
        out = attention.forward(torch.cat((absorbed, turned), dim=-1), k, latents, self.layer)
        heads = torch.bmm(out.transpose(0, 1), self.up_proj.values.mT).transpose(0, 1)
        projected: Tensor = self.o_proj(heads.flatten(1))
        return projected

    def _in_halves(self, x: Tensor) -> Tensor:
        """In the order of `Rotation`, contiguous: queries and keys alike, so that scores remain."""
        if not self._form.interleaved:
            return x.contiguous()
        return torch.unflatten(x, -1, (-1, 2)).transpose(-1, -2).flatten(-2)


class _UpProjection(nn.Module):
    """From latents to this rank's heads.

    Attributes:
        keys: [heads, plain_dim, latent]
        values: [heads, v_head_dim, latent]
    """

    def __init__(self, build: Build, form: LatentForm, mine: range) -> None:
        super().__init__()
        self.keys = build.parameter(len(mine), form.plain_dim, form.latent)
        self.values = build.parameter(len(mine), form.v_head_dim, form.latent)
        self._form, self._mine = form, mine

    def fills(self) -> Iterator[Fill]:
        """The checkpoint has them by heads, each with its keys in front of its values."""
        form, every = self._form, slice(0, self._form.latent)
        height = form.plain_dim + form.v_head_dim
        shape = (form.heads * height, form.latent)
        for index, head in enumerate(self._mine):
            first, between = head * height, head * height + form.plain_dim
            keys, values = slice(first, between), slice(between, first + height)
            yield Fill("kv_b_proj.weight", shape, (keys, every), self.keys[index])
            yield Fill("kv_b_proj.weight", shape, (values, every), self.values[index])


def _of_heads(heads: int, mine: range, width: int) -> Rows:
    return Rows(heads * width, range(mine.start * width, mine.stop * width))


def _whole(width: int) -> Rows:
    return Rows(width, range(width))
