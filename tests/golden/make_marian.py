"""Makes marian.npz: a tiny Marian translation model of Hugging Face with random weights.

    python tests/golden/make_marian.py      # transformers 5.24.0, torch 2.13.0 (CPU), numpy

Same storage as in make_torch_layers.py: float32 draws, float64 arithmetic, "case/part/name".
Marian is the published encoder-decoder (post-norm, one shared embedding matrix, x sqrt(D)) with
biases in attention; its sinusoids hold all sines first, then all cosines. The activation is set
to ReLU, and the bias on the logits keeps its zeros.
"""

# pyright: reportMissingImports=false

import numpy as np
import torch
from make_torch_layers import draw, randomise, save, to_numpy
from transformers import MarianConfig, MarianMTModel

VOCAB, HEADS, HEAD_DIM, FF_DIM = 31, 3, 5, 19
ENCODER_LAYERS = DECODER_LAYERS = 2
PAD, BOS, EOS = 0, 2, 3
SOURCE = [[5, 7, 11, 13, 17, 19, 23, 29, 30, 4, 3], [30, 8, 8, 21, 6, 9, 28, 3, 0, 0, 0]]
INPUTS = [[2, 12, 4, 4, 26, 0, 0], [2, 27, 10, 22, 14, 25, 16]]


def main() -> None:
    torch.manual_seed(2018)
    config = MarianConfig(
        vocab_size=VOCAB,
        d_model=HEADS * HEAD_DIM,
        encoder_layers=ENCODER_LAYERS,
        decoder_layers=DECODER_LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=FF_DIM,
        decoder_ffn_dim=FF_DIM,
        activation_function="relu",
        dropout=0.0,
        scale_embedding=True,
        max_position_embeddings=37,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        attn_implementation="eager",
    )
    model = randomise(MarianMTModel(config))

    source, inputs = torch.tensor(SOURCE), torch.tensor(INPUTS)
    logits = model(
        input_ids=source,
        attention_mask=source != PAD,
        decoder_input_ids=inputs,
        decoder_attention_mask=inputs != PAD,
    ).logits
    cotangent = draw(*logits.shape) * (inputs != PAD)[..., None]
    (logits * cotangent).sum().backward()

    arrays = {
        "marian/output/logits": logits,
        "marian/cotangent/logits": cotangent,
        "marian/input/source": source.int(),
        "marian/input/inputs": inputs.int(),
    }
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            arrays[f"marian/param/{name}"] = parameter
            arrays[f"marian/grad_param/{name}"] = parameter.grad
    stored: dict[str, np.ndarray] = {name: to_numpy(value) for name, value in arrays.items()}
    save("marian", stored)


if __name__ == "__main__":
    main()
