#!/usr/bin/env python3
"""Ops related to GroupQueryAttention, compared with ONNX Runtime: random nodes, one model each.

    python test/python/test_attention_ort.py        (GQAC_TEST_SEED chooses other cases)

Nodes that ONNX Runtime refuses are counted and skipped; enough of each op must have been compared.
"""

import sys
import unittest

import numpy as np

import harness
import ortnodes
from ortnodes import Node, Nodes, floats


def padding_mask(rng, pick, batch, rows, total):
    """A random padding mask of one of the forms; no row is entirely masked."""
    form = pick.choice(["none", "none", "lengths", "keys", "queries"])
    if form == "lengths":
        return rng.integers(1, total + 1, batch).astype(np.int32)
    if form == "none":
        return None
    shape = (batch, total) if form == "keys" else (batch, rows, total)
    mask = rng.integers(0, 2, shape).astype(np.int32)
    mask[..., 0] = 1
    return mask


def multi_head(rng, pick):
    """A random MultiHeadAttention."""
    batch, heads, rows = pick.randint(1, 3), pick.randint(1, 4), pick.randint(1, 9)
    size = pick.choice([4, 8, 16])
    layout = pick.choice(["self", "self", "past", "past", "buffer", "cross", "made"])
    v_size = pick.choice([size, 8]) if layout in ("self", "cross") else size
    keys = rows if layout in ("self", "past", "buffer") else pick.randint(1, 12)
    past = pick.randint(0, 9) if layout in ("past", "buffer") else None
    total = keys + (past or 0)
    cached = total + pick.randint(0, 3) if layout == "buffer" else past
    flat = layout != "made"
    inputs = {
        "query": floats(rng, batch, rows, heads * size),
        "key": floats(rng, batch, keys, heads * size) if flat
        else floats(rng, batch, heads, keys, size),
        "value": floats(rng, batch, keys, heads * v_size) if flat
        else floats(rng, batch, heads, keys, v_size),
        "bias": floats(rng, heads * (2 * size + v_size)) if pick.random() < 0.4 else None,
        "key_padding_mask": padding_mask(rng, pick, batch, rows, total),
        "attention_bias": floats(rng, pick.choice([1, batch]), pick.choice([1, heads]), rows, total)
        if pick.random() < 0.3 else None,
        "past_key": None if past is None else floats(rng, batch, heads, cached, size),
        "past_value": None if past is None else floats(rng, batch, heads, cached, v_size),
        "past_sequence_length": np.array([past], np.int32) if layout == "buffer" else None,
    }
    outputs = ["output"] if layout == "made" or (past is None and pick.random() < 0.5) else [
        "output", "present_key", "present_value"]
    extra = {"scale": 0.4} if pick.random() < 0.3 else {}
    if pick.random() < 0.3:
        extra["mask_filter_value"] = -5000.0
    # With more keys than queries the CPU kernel of ONNX Runtime counts from the first key, but the
    # last query sees all.
    causal = pick.randint(0, 1) if keys <= rows or rows == 1 else 0
    return Node("MultiHeadAttention", "com.microsoft", inputs, outputs, num_heads=heads,
                unidirectional=causal, **extra)


def decoder(rng, pick):
    """A random DecoderMaskedMultiHeadAttention: with the past in a buffer, or with existing
    keys."""
    batch, heads, size = pick.randint(1, 3), pick.randint(1, 4), pick.choice([4, 8])
    room, made = pick.randint(1, 12), pick.random() < 0.3
    past = pick.randint(0, room - 1)
    total = room if made else past + 1
    mask = rng.integers(0, 2, (batch, total)).astype(np.int32) if pick.random() < 0.5 else None
    if mask is not None:
        mask[:, 0] = 1
    inputs = {
        "query": floats(rng, batch, 1, heads * size),
        "key": floats(rng, batch, heads, room, size) if made
        else floats(rng, batch, 1, heads * size),
        "value": floats(rng, batch, heads, room, size) if made
        else floats(rng, batch, 1, heads * size),
        "mask_index": mask,
        "attention_bias": floats(rng, 1, pick.choice([1, heads]), 1, total)
        if not made and pick.random() < 0.3 else None,
        "past_key": None if made else floats(rng, batch, heads, room, size),
        "past_value": None if made else floats(rng, batch, heads, room, size),
        "past_sequence_length": None if made else np.array([past], np.int32),
    }
    extra = {} if made else {"past_present_share_buffer": 1}
    return Node("DecoderMaskedMultiHeadAttention", "com.microsoft", inputs,
                ["output"] if made else ["output", "present_key", "present_value"],
                num_heads=heads, **extra)


def codes(rng, *shape):
    """Random codes of weights. ONNX Runtime saturates sums of larger signed ones."""
    signed = rng.integers(0, 2)
    return rng.integers(-64, 64, shape).astype(np.int8) if signed else rng.integers(
        0, 256, shape).astype(np.uint8)


def quantised(rng, pick):
    """A random QAttention."""
    batch, heads, rows = pick.randint(1, 3), pick.randint(1, 4), pick.randint(1, 9)
    size, width = pick.choice([4, 8, 16]), pick.choice([5, 16, 64])
    past = pick.randint(0, 9) if pick.random() < 0.5 else None
    columns = 3 * heads * size
    weight = codes(rng, width, columns)
    several = [columns] if pick.random() < 0.5 else []
    inputs = {
        "input": rng.integers(0, 256, (batch, rows, width)).astype(np.uint8),
        "weight": weight,
        "bias": floats(rng, columns),
        "input_scale": np.array(0.02, np.float32),
        "weight_scale": np.asarray(rng.uniform(0.0005, 0.002, several), np.float32),
        "mask_index": padding_mask(rng, pick, batch, rows, rows + (past or 0)),
        "input_zero_point": np.array(rng.integers(0, 256), np.uint8),
        "weight_zero_point": np.asarray(rng.integers(0, 100, several), weight.dtype)
        if pick.random() < 0.7 else None,
        "past": None if past is None else floats(rng, 2, batch, heads, past, size),
    }
    outputs = ["output"] if past is None and pick.random() < 0.5 else ["output", "present"]
    return Node("QAttention", "com.microsoft", inputs, outputs, num_heads=heads,
                unidirectional=pick.randint(0, 1))


def packed(rng, pick):
    """A random com.microsoft.Attention."""
    batch, heads, rows = pick.randint(1, 3), pick.randint(1, 4), pick.randint(1, 9)
    size, width = pick.choice([4, 8, 16]), pick.choice([5, 16])
    past = pick.randint(0, 9) if pick.random() < 0.5 else None
    v_size = size if past is not None else pick.choice([size, 8])
    total = rows + (past or 0)
    columns = heads * (2 * size + v_size)
    mask = padding_mask(rng, pick, batch, rows, total)
    causal = pick.randint(0, 1)
    # Not causal: scores of a row that is entirely padding differ by roundings at 10000.
    if past is None and not causal and mask is not None and mask.ndim == 1 and pick.random() < 0.5:
        mask = np.concatenate([mask, rng.integers(0, mask)]).astype(np.int32)
    inputs = {
        "input": floats(rng, batch, rows, width),
        "weights": floats(rng, width, columns),
        "bias": floats(rng, columns),
        "mask_index": mask,
        "past": None if past is None else floats(rng, 2, batch, heads, past, size),
        "attention_bias": floats(rng, pick.choice([1, batch]), pick.choice([1, heads]), rows, total)
        if pick.random() < 0.3 else None,
    }
    extra = {"scale": 0.1} if pick.random() < 0.3 else {}
    if v_size != size or pick.random() < 0.2:
        extra["qkv_hidden_sizes"] = [heads * size, heads * size, heads * v_size]
    bare = past is None and (v_size != size or pick.random() < 0.5)
    outputs = ["output"] if bare else ["output", "present"]
    return Node("Attention", "com.microsoft", inputs, outputs, num_heads=heads,
                unidirectional=causal, **extra)


def standard_mask(rng, pick, batch, heads, rows, total):
    """A mask of Attention: bool or float, each axis possibly of length 1; no row is entirely
    masked."""
    if pick.random() < 0.3:
        return None
    rank = pick.randint(2, 4)
    shape = [pick.choice([1, batch]), pick.choice([1, heads]), rows, total][4 - rank:]
    if pick.random() < 0.5:
        return floats(rng, *shape)
    mask = rng.integers(0, 2, shape).astype(bool)
    mask[..., 0] = True
    return mask


def standard(rng, pick):
    """A random Attention of the ONNX standard."""
    batch, kv_heads, rows = pick.randint(1, 3), pick.randint(1, 3), pick.randint(1, 9)
    heads, size, v_size = kv_heads * pick.randint(1, 3), pick.choice([4, 8]), pick.choice([4, 8])
    past = pick.randint(1, 9) if pick.random() < 0.5 else None
    keys = rows if past is not None or pick.random() < 0.5 else pick.randint(1, 12)
    total, flat = keys + (past or 0), pick.random() < 0.5

    def sequence(heads, rows, size):
        return floats(rng, batch, rows, heads * size) if flat else \
            floats(rng, batch, heads, rows, size)

    inputs = {
        "Q": sequence(heads, rows, size),
        "K": sequence(kv_heads, keys, size),
        "V": sequence(kv_heads, keys, v_size),
        "attn_mask": standard_mask(rng, pick, batch, heads, rows, total),
        "past_key": None if past is None else floats(rng, batch, kv_heads, past, size),
        "past_value": None if past is None else floats(rng, batch, kv_heads, past, v_size),
    }
    extra = {"q_num_heads": heads, "kv_num_heads": kv_heads} if flat else {}
    if pick.random() < 0.3:
        extra["scale"] = 0.3
    if pick.random() < 0.3:
        extra["softcap"] = 2.0
    if past is None and keys >= rows and pick.random() < 0.4:
        inputs["nonpad_kv_seqlen"] = rng.integers(rows, keys + 1, batch)
    outputs = ["Y"] if past is None else ["Y", "present_key", "present_value"]
    return Node("Attention", "", inputs, outputs, is_causal=pick.randint(0, 1), **extra)


def rotary(rng, pick):
    """A random RotaryEmbedding of the ONNX standard."""
    batch, heads, rows = pick.randint(1, 3), pick.randint(1, 4), pick.randint(1, 9)
    size, positions = pick.choice([8, 16]), 20
    width = pick.choice([size, size // 2])
    ids = rng.integers(0, positions, (batch, rows)) if pick.random() < 0.6 else None
    table = (batch, rows) if ids is None else (positions,)
    flat = pick.random() < 0.5
    inputs = {
        "X": floats(rng, batch, rows, heads * size) if flat
        else floats(rng, batch, heads, rows, size),
        "cos_cache": floats(rng, *table, width // 2),
        "sin_cache": floats(rng, *table, width // 2),
        "position_ids": ids,
    }
    extra = {"rotary_embedding_dim": width} if width != size else {}
    return Node("RotaryEmbedding", "", inputs, ["Y"], interleaved=pick.randint(0, 1),
                num_heads=heads, **extra)


def norm(rng, pick):
    """A random RMSNormalization."""
    shape = [pick.randint(1, 5) for _ in range(pick.randint(1, 3))] + [pick.choice([7, 16, 33])]
    inputs = {"X": floats(rng, *shape), "scale": floats(rng, shape[-1])}
    return Node("RMSNormalization", "", inputs, ["Y"], epsilon=pick.choice([1e-5, 1e-2]))


def scatter(rng, pick):
    """A random TensorScatter."""
    batch, rows, new, width = pick.randint(1, 3), pick.randint(3, 9), pick.randint(1, 3), 4
    circular = pick.random() < 0.5
    last = rows - 1 if circular else rows - new
    inputs = {
        "past_cache": floats(rng, batch, 2, rows, width),
        "update": floats(rng, batch, 2, new, width),
        "write_indices": rng.integers(0, last + 1, batch) if pick.random() < 0.8 else None,
    }
    return Node("TensorScatter", "", inputs, ["present_cache"],
                mode="circular" if circular else "linear")


# Reason of the skip: ONNX Runtime is the oracle here; ./dev deps installs it, other machines may
# lack it.
@unittest.skipUnless(ortnodes.ort, "onnxruntime is not installed")
class Siblings(Nodes):
    """One test for each op."""

    def test_multi_head_attention(self):
        """Separate inputs, existing keys, past, buffers, bias, masks, causal."""
        self.compare(multi_head, 0.9)

    def test_decoder_masked(self):
        """One token after a buffer, or over existing keys."""
        self.compare(decoder, 0.6)

    def test_packed_attention(self):
        """Weights in the node, the past in one tensor, masks of every rank."""
        self.compare(packed, 0.6)

    def test_quantised_attention(self):
        """Codes of inputs and weights, one scale or one for each column."""
        self.compare(quantised, 0.6)

    def test_standard_attention(self):
        """Both layouts, grouped heads, past, masks, softcap."""
        self.compare(standard, 0.6)

    def test_rotary_embedding(self):
        """Both layouts, whole and partial, tables and gathered rows."""
        self.compare(rotary, 0.6)

    def test_rms_normalization(self):
        """Rows of several ranks."""
        self.compare(norm, 0.9)

    def test_tensor_scatter(self):
        """Rows written at an index each, wrapped or not."""
        self.compare(scatter, 0.9)


if __name__ == "__main__":
    sys.exit(harness.main())
