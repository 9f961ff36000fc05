"""ChaCha20 in Triton: every lane makes a block of 16 words, and perhaps 8 normal numbers or 8 choices of them."""
# pyright: reportMissingImports=false, reportPossiblyUnboundVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

import torch
from torch import Tensor

from privset.kernel_language import AVAILABLE, jit, tl, triton

LANES = 128


def fits(position: Tensor) -> bool:
    """Whether the kernels can be used where this tensor is."""
    return AVAILABLE and position.is_cuda


def blocks(key: Tensor, nonce: Tensor, position: Tensor, count: int) -> Tensor:
    """Blocks ``[count, 16]`` of words from number ``position`` on, int32."""
    found = torch.empty(count, 16, dtype=torch.int32, device=position.device)
    with torch.cuda.device_of(position):
        _words_kernel[(triton.cdiv(count, LANES),)](key, nonce, position, found, count, lanes=LANES, num_warps=4)
    return found


def normals(key: Tensor, nonce: Tensor, position: Tensor, count: int) -> Tensor:
    """Normal numbers ``[count, 8]`` from as many blocks, float64."""
    found = torch.empty(count, 8, dtype=torch.float64, device=position.device)
    with torch.cuda.device_of(position):
        _normals_kernel[(triton.cdiv(count, LANES),)](key, nonce, position, found, count, lanes=LANES, num_warps=4)
    return found


def chosen(key: Tensor, nonce: Tensor, position: Tensor, count: int, *, below: int) -> Tensor:
    """Whether numbers ``[count, 8]`` of 64 bits, from as many blocks, are below this one."""
    found = torch.empty(count, 8, dtype=torch.bool, device=position.device)
    with torch.cuda.device_of(position):
        _chosen_kernel[(triton.cdiv(count, LANES),)](
            key, nonce, position, found, count, below=below, lanes=LANES, num_warps=4
        )
    return found


@jit
def _turned(word, by: tl.constexpr):
    return (word << by) | (word >> (32 - by))


@jit
def _quarter(a, b, c, d):
    a += b
    d = _turned(d ^ a, 16)
    c += d
    b = _turned(b ^ c, 12)
    a += b
    d = _turned(d ^ a, 8)
    c += d
    b = _turned(b ^ c, 7)
    return a, b, c, d


@jit
def _word(values, number: tl.constexpr, zero):
    return zero + tl.load(values + number).to(tl.uint32, bitcast=True)


@jit
def _block(key, nonce, position, lanes: tl.constexpr):
    """The 16 words of each lane's block, and the number of the lane."""
    lane = tl.program_id(0).to(tl.int64) * lanes + tl.arange(0, lanes)
    number = (tl.load(position) + lane).to(tl.uint64)
    low, high = (number & 0xFFFFFFFF).to(tl.uint32), (number >> 32).to(tl.uint32)
    zero = tl.zeros([lanes], dtype=tl.uint32)
    c0, c1, c2, c3 = zero + 0x61707865, zero + 0x3320646E, zero + 0x79622D32, zero + 0x6B206574
    k0, k1, k2, k3 = _word(key, 0, zero), _word(key, 1, zero), _word(key, 2, zero), _word(key, 3, zero)
    k4, k5, k6, k7 = _word(key, 4, zero), _word(key, 5, zero), _word(key, 6, zero), _word(key, 7, zero)
    n0, n1 = _word(nonce, 0, zero), _word(nonce, 1, zero)
    x0, x1, x2, x3 = c0, c1, c2, c3
    x4, x5, x6, x7, x8, x9, xa, xb = k0, k1, k2, k3, k4, k5, k6, k7
    xc, xd, xe, xf = low, high, n0, n1
    for _ in range(10):
        x0, x4, x8, xc = _quarter(x0, x4, x8, xc)
        x1, x5, x9, xd = _quarter(x1, x5, x9, xd)
        x2, x6, xa, xe = _quarter(x2, x6, xa, xe)
        x3, x7, xb, xf = _quarter(x3, x7, xb, xf)
        x0, x5, xa, xf = _quarter(x0, x5, xa, xf)
        x1, x6, xb, xc = _quarter(x1, x6, xb, xc)
        x2, x7, x8, xd = _quarter(x2, x7, x8, xd)
        x3, x4, x9, xe = _quarter(x3, x4, x9, xe)
    return (
        lane,
        x0 + c0,
        x1 + c1,
        x2 + c2,
        x3 + c3,
        x4 + k0,
        x5 + k1,
        x6 + k2,
        x7 + k3,
        x8 + k4,
        x9 + k5,
        xa + k6,
        xb + k7,
        xc + low,
        xd + high,
        xe + n0,
        xf + n1,
    )


@jit
def _words_kernel(key, nonce, position, found, count, lanes: tl.constexpr):
    lane, w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, wa, wb, wc, wd, we, wf = _block(key, nonce, position, lanes)
    inside, place = lane < count, found + lane * 16
    tl.store(place, w0.to(tl.int32, bitcast=True), mask=inside)
    tl.store(place + 1, w1.to(tl.int32, bitcast=True), mask=inside)
    tl.store(place + 2, w2.to(tl.int32, bitcast=True), mask=inside)
    tl.store(place + 3, w3.to(tl.int32, bitcast=True), mask=inside)
    tl.store(place + 4, w4.to(tl.int32, bitcast=True), mask=inside)
    tl.store(place + 5, w5.to(tl.int32, bitcast=True), mask=inside)
    tl.store(place + 6, w6.to(tl.int32, bitcast=True), mask=inside)
    tl.store(place + 7, w7.to(tl.int32, bitcast=True), mask=inside)
    tl.store(place + 8, w8.to(tl.int32, bitcast=True), mask=inside)
    tl.store(place + 9, w9.to(tl.int32, bitcast=True), mask=inside)
    tl.store(place + 10, wa.to(tl.int32, bitcast=True), mask=inside)
    tl.store(place + 11, wb.to(tl.int32, bitcast=True), mask=inside)
    tl.store(place + 12, wc.to(tl.int32, bitcast=True), mask=inside)
    tl.store(place + 13, wd.to(tl.int32, bitcast=True), mask=inside)
    tl.store(place + 14, we.to(tl.int32, bitcast=True), mask=inside)
    tl.store(place + 15, wf.to(tl.int32, bitcast=True), mask=inside)


@jit
def _uniform(high, low):
    """53 random bits as a number between 0 and 1, never 0."""
    bits = (high.to(tl.uint64) << 21) | (low.to(tl.uint64) >> 11)
    return (bits.to(tl.int64).to(tl.float64) + 0.5) * 1.1102230246251565e-16


@jit
def _store_pair(place, inside, w0, w1, w2, w3):
    radius = tl.sqrt(-2.0 * tl.log(_uniform(w0, w1)))
    angle = 6.283185307179586 * _uniform(w2, w3)
    tl.store(place, radius * tl.cos(angle), mask=inside)
    tl.store(place + 1, radius * tl.sin(angle), mask=inside)


@jit
def _normals_kernel(key, nonce, position, found, count, lanes: tl.constexpr):
    lane, w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, wa, wb, wc, wd, we, wf = _block(key, nonce, position, lanes)
    inside, place = lane < count, found + lane * 8
    _store_pair(place, inside, w0, w1, w2, w3)
    _store_pair(place + 2, inside, w4, w5, w6, w7)
    _store_pair(place + 4, inside, w8, w9, wa, wb)
    _store_pair(place + 6, inside, wc, wd, we, wf)


@jit
def _store_choice(place, inside, high, low, below: tl.constexpr):
    drawn = (high.to(tl.uint64) << 32) | low.to(tl.uint64)
    tl.store(place, drawn < below, mask=inside)


@jit
def _chosen_kernel(key, nonce, position, found, count, below: tl.constexpr, lanes: tl.constexpr):
    lane, w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, wa, wb, wc, wd, we, wf = _block(key, nonce, position, lanes)
    inside, place = lane < count, found + lane * 8
    _store_choice(place, inside, w0, w1, below)
    _store_choice(place + 1, inside, w2, w3, below)
    _store_choice(place + 2, inside, w4, w5, below)
    _store_choice(place + 3, inside, w6, w7, below)
    _store_choice(place + 4, inside, w8, w9, below)
    _store_choice(place + 5, inside, wa, wb, below)
    _store_choice(place + 6, inside, wc, wd, below)
    _store_choice(place + 7, inside, we, wf, below)
