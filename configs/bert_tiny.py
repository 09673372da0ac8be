"""A BERT for two CPU cores, pre-trained from nothing on Python's documentation.

python train.py --config configs/bert_tiny.py --workdir runs/bert_tiny
transformer evaluate --checkpoint runs/bert_tiny --draws 20

2 minutes on two cores. On the 11 held-out topics, hidden and paired 20 times anew: 2.98 nats a
hidden token, where knowing the frequencies alone has 5.06 (those of the training topics: 5.37),
and 45.9 % of the hidden tokens right. Next sentence: 58.0 % of 2,000 pairs, where always the same
answer has 50.2 % (standard error 1.1 %; pairs of a topic are alike, by topics it is 1.7 %). In
training its loss falls to 0.46 nats: 68 topics are soon known by heart.

Positions are rotary (RoFormer, Su et al. 2021), which from so little text learn much faster than
BERT's: after 700 steps 3.53 nats a hidden token, against 4.76 with --model.positions learned
--model.max-positions 64. Without pairs: --data.no-next-sentence.
"""

from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig

config = Config(
    model=ModelConfig(
        architecture="encoder",
        num_layers=2,
        model_dim=128,
        ff_dim=512,
        num_heads=4,
        positions="rotary",
        segment_types=2,
        activation="gelu",
        norm_epsilon=1e-12,
        attention_bias=True,
        output_bias=True,
        embedding_norm=True,
        embedding_scaling="none",
        initializer="normal",
        dropout=0.1,
        attention_dropout=0.0,
    ),
    data=DataConfig(
        objective="masked_language_model",
        sentences="prose",
        tokenizer="wordpiece",
        vocab_size=2000,
        normalization="nfkc_cf",
        block_length=64,
        batch_tokens=32 * 64,
    ),
    optimizer=OptimizerConfig(
        schedule="linear",
        learning_rate=2e-3,
        warmup_steps=200,
        beta2=0.999,
        epsilon=1e-6,
        clip_norm=1.0,
        weight_decay=0.01,
    ),
    train=TrainConfig(
        steps=1500, label_smoothing=0.0, log_every=50, eval_every=250, save_every=500
    ),
)
