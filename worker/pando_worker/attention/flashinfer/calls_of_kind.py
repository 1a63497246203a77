"""What computes one kind of layer with flashinfer: a call for each role, or two of which the faster
one is chosen in each step."""

from dataclasses import dataclass

import numpy as np
import torch

from pando_worker.attention.flashinfer.calls import (
    AttentionCall,
    KernelCall,
    Memory,
    PinnedRows,
    Role,
    new_indptr,
)
from pando_worker.attention.flashinfer.fp8_queries import QueryQuantizer
from pando_worker.attention.flashinfer.kernel_choice import KernelChoice
from pando_worker.attention.flashinfer.kind import AttentionKind, Formats, has_fa3, is_hopper
from pando_worker.attention.flashinfer.latent import LatentCall
from pando_worker.attention.flashinfer.library import Library
from pando_worker.attention.paged_rows import PagedRows
from pando_worker.attention.staging import Staging
from pando_worker.batch import Int32, Int64


@dataclass(slots=True)
class CallsOfKind:
    """
    Attributes:
        fa2: FlashAttention 2, or the only kernel for latents, for all roles that the layers have
        fa3: FlashAttention 3, for roles in which it may be faster
        is_for_fa3: chooses between both
    """

    fa2: dict[Role, AttentionCall]
    fa3: dict[Role, AttentionCall]
    is_for_fa3: KernelChoice

    @classmethod
    def of(
        cls,
        kind: AttentionKind,
        library: Library,
        formats: Formats,
        decodes: Memory,
        staging: Staging,
        choice: KernelChoice,
        quantizer: QueryQuantizer,
        *,
        images_are_whole: bool,
    ) -> "CallsOfKind":
        """
        Args:
            decodes: memory of decodes; other calls share its workspace
            staging: for a plan of each FlashAttention 3, which compiles it now, before requests
                wait for it
            quantizer: of queries, which is compiled now, too
            images_are_whole: whether an image's tokens see each other
        """
        if kind.latent:
            roles = (Role.DECODE, Role.EXTEND)
            workspace = decodes.workspace
            is_fa3 = is_hopper(workspace.device)
            calls = {
                role: LatentCall(library, kind, formats, workspace, is_fa3=is_fa3) for role in roles
            }
            return cls(dict(calls), {}, choice)
        wanted = {Role.SHARED: kind.can_share, Role.WHOLE: images_are_whole}
        device = decodes.workspace.device

        def call(role: Role, *, is_fa3: bool) -> KernelCall:
            memory = decodes if role is Role.DECODE else Memory.new(decodes.workspace)
            return KernelCall(
                library, kind, role, formats, memory, is_fa3=is_fa3, quantizer=quantizer
            )

        asked = [role for role in Role if wanted.get(role, True)]
        fa2: dict[Role, AttentionCall] = {role: call(role, is_fa3=False) for role in asked}
        fa3: dict[Role, AttentionCall] = {}
        if has_fa3(kind, formats, device):
            # The few calls for images take what is compiled for decodes.
            for role in [role for role in asked if role in (Role.EXTEND, Role.SHARED)]:
                fa3[role] = call(role, is_fa3=True)
                compile_call(fa3[role], staging, device)
            if formats.kv_dtype != formats.dtype:
                one = torch.zeros(1, kind.heads, kind.head_dim, dtype=formats.dtype, device=device)
                quantizer(one)
        return cls(fa2, fa3, choice)

    def chosen(self, role: Role, new: Int32 | Int64, keys: Int32 | Int64) -> AttentionCall:
        """The faster kernel for rows with so many new tokens and keys, [rows] each."""
        if role in self.fa3 and self.is_for_fa3(new, keys):
            return self.fa3[role]
        return self.fa2[role]


def compile_call(call: AttentionCall, staging: Staging, device: torch.device) -> None:
    """Plan a row of one token, for which flashinfer loads or compiles the call's kernel."""
    one = np.ones(1, dtype=np.int32)
    row = PagedRows.zeros(1)
    row.fill(one, page_size=1)
    rows = PinnedRows.of(row, new_indptr(one), staging)
    call.plan(rows, torch.zeros(1, dtype=torch.int32, device=device))
