"""The network: a Qwen3-VL at tiny size. Weights are those of transformers' class; the pass here is the same for a batch of pictures of
one size, and faster."""

import torch
import torch.nn.functional as F

SIDE, PATCH, MERGE = 96, 8, 2
WIDTH, FEED, LAYERS, HEADS, KEYS, HEAD = 64, 96, 3, 4, 2, 16
LOOK_WIDTH, LOOK_FEED, LOOK_LAYERS, LOOK_HEADS = 40, 80, 2, 2
POSITIONS = 12
CONTEXT = 1024
THETA, SECTIONS = 1000.0, [4, 2, 2]


def config(encoder):
    from transformers import Qwen3VLConfig

    from vocabulary import BEGIN, END, FINISH, IMAGE, PAD, VIDEO

    return Qwen3VLConfig(
        text_config={
            "vocab_size": encoder.size, "hidden_size": WIDTH, "intermediate_size": FEED, "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS, "num_key_value_heads": KEYS, "head_dim": HEAD, "max_position_embeddings": CONTEXT,
            "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": encoder.ids[END],
            "pad_token_id": encoder.ids[PAD],
            "rope_parameters": {"rope_type": "default", "rope_theta": THETA, "mrope_section": SECTIONS, "mrope_interleaved": True},
        },
        vision_config={
            "depth": LOOK_LAYERS, "hidden_size": LOOK_WIDTH, "intermediate_size": LOOK_FEED, "num_heads": LOOK_HEADS, "patch_size": PATCH,
            "spatial_merge_size": MERGE, "temporal_patch_size": 1, "out_hidden_size": WIDTH, "num_position_embeddings": POSITIONS**2,
            "deepstack_visual_indexes": [],
        },
        image_token_id=encoder.ids[IMAGE], video_token_id=encoder.ids[VIDEO], vision_start_token_id=encoder.ids[BEGIN],
        vision_end_token_id=encoder.ids[FINISH], tie_word_embeddings=True)


def network(encoder):
    from transformers import Qwen3VLForConditionalGeneration

    model = Qwen3VLForConditionalGeneration(config(encoder))
    for name, weight in model.named_parameters():
        if weight.dim() >= 2:
            is_table = "embed" in name and "patch" not in name
            torch.nn.init.normal_(weight, std=0.1 if is_table else weight[0].numel() ** -0.5)
        elif name.endswith("bias"):
            torch.nn.init.zeros_(weight)
    return model


def patches(images):
    """Pictures (count, rows, columns, 3) of bytes as (count, patches, levels), those of a block after each other."""
    count, rows, columns, _ = images.shape
    block = MERGE * PATCH
    levels = images.float() / 127.5 - 1
    levels = levels.view(count, rows // block, MERGE, PATCH, columns // block, MERGE, PATCH, 3)
    return levels.permute(0, 1, 4, 2, 5, 7, 3, 6).reshape(count, -1, 3 * PATCH * PATCH)


def places(grid):
    """Row and column of each patch in that order."""
    rows, columns = torch.meshgrid(torch.arange(grid[0] * MERGE), torch.arange(grid[1] * MERGE), indexing="ij")
    order = lambda at: at.view(grid[0], MERGE, grid[1], MERGE).transpose(1, 2).flatten()
    return order(rows), order(columns)


def turn(x, angles):
    """Rotates halves of heads (..., head) by angles (..., head / 2)."""
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def interpolated(table, grid):
    """The learned positions of each patch, between four of them."""
    rows, columns = places(grid)
    at = lambda place, size: place * ((POSITIONS - 1) / max(size - 1, 1))
    row, column = at(rows, grid[0] * MERGE), at(columns, grid[1] * MERGE)
    total = 0
    for below in (0, 1):
        for right in (0, 1):
            first, second = row.long() + below, column.long() + right
            share = (1 - (row - first).abs()).clamp(0) * (1 - (column - second).abs()).clamp(0)
            index = first.clamp(max=POSITIONS - 1) * POSITIONS + second.clamp(max=POSITIONS - 1)
            total = total + table[index] * share[:, None]
    return total


def look(model, images):
    """Rows of the decoder for each token of pictures of one size: (count, tokens, width), and the last states of the patches."""
    tower = model.model.visual
    grid = images.shape[1] // (MERGE * PATCH), images.shape[2] // (MERGE * PATCH)
    product = tower.patch_embed.proj
    x = F.linear(patches(images), product.weight.flatten(1), product.bias)
    x = x + interpolated(tower.pos_embed.weight, grid)
    each = LOOK_WIDTH // LOOK_HEADS // 4
    frequencies = 10000.0 ** -(torch.arange(each) / each)
    angles = torch.cat([axis[:, None] * frequencies for axis in places(grid)], -1)
    count, length, _ = x.shape
    for block in tower.blocks:
        split = block.attn.qkv(block.norm1(x)).view(count, length, 3, LOOK_HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(turn(split[0], angles), turn(split[1], angles), split[2])
        x = x + block.attn.proj(attended.transpose(1, 2).flatten(2))
        x = x + block.mlp.linear_fc2(F.gelu(block.mlp.linear_fc1(block.norm2(x)), approximate="tanh"))
    merger = tower.merger
    rows = merger.norm(x).view(count, length // MERGE**2, -1)
    return merger.linear_fc2(F.gelu(merger.linear_fc1(rows))), x


def positions(ids, image, grid):
    """Positions on three axes of a chat with at most one picture: (3, length)."""
    found = [[], [], []]
    following, at = 0, 0
    while at < len(ids):
        if ids[at] == image:
            for place in range(grid[0] * grid[1]):
                for axis, more in enumerate((0, place // grid[1], place % grid[1])):
                    found[axis].append(following + more)
            at += grid[0] * grid[1]
            following += max(grid)
        else:
            for axis in found:
                axis.append(following)
            at += 1
            following += 1
    return found


def angles_of(places):
    """Angles (count, length, head / 2) of positions (3, count, length)."""
    half = HEAD // 2
    frequencies = THETA ** -(torch.arange(half) / half)
    axis = torch.tensor([at % 3 if at // 3 < SECTIONS[at % 3] else 0 for at in range(half)])
    return places.float()[axis].permute(1, 2, 0) * frequencies


def decode(model, ids, places, rows=None, image=None):
    """Scores of each next token of chats (count, length); `rows` take the places of the token `image`."""
    decoder = model.model.language_model
    x = decoder.embed_tokens(ids)
    if rows is not None:
        x = x.masked_scatter((ids == image)[..., None], rows)
    angles = angles_of(places)[:, None]
    count, length, _ = x.shape
    for layer in decoder.layers:
        part, normed = layer.self_attn, layer.input_layernorm(x)
        split = lambda y: y.view(count, length, -1, HEAD)
        q, k = part.q_norm(split(part.q_proj(normed))).transpose(1, 2), part.k_norm(split(part.k_proj(normed))).transpose(1, 2)
        v = split(part.v_proj(normed)).transpose(1, 2)
        q, k = turn(q, angles), turn(k, angles)
        k, v = (y.repeat_interleave(HEADS // KEYS, 1) for y in (k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + part.o_proj(attended.transpose(1, 2).flatten(2))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return decoder.norm(x)
