"""What `benchmarks.train_step` runs beside BERT's fine-tuning step in another program.

Six layers of 384 over 30,522 pieces (22.7 million parameters, as MiniLM), 32 sentences of SST-2
padded to 64 tokens, dropout, clipping and Adam with decoupled decay.
"""

from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig

config = Config(
    model=ModelConfig(
        architecture="encoder",
        num_layers=6,
        model_dim=384,
        ff_dim=1536,
        num_heads=12,
        vocab_size=30_522,
        positions="learned",
        max_positions=512,
        segment_types=2,
        embedding_norm=True,
        activation="gelu",
        norm_epsilon=1e-12,
        attention_bias=True,
        embedding_scaling="none",
        initializer="normal",
        dropout=0.1,
        attention_dropout=0.1,
    ),
    data=DataConfig(
        objective="classification",
        dataset="glue:sst2",
        train=("train.tsv",),
        tokenizer="wordpiece",
        normalization="nfkc_cf",
        max_length=64,
        batch_size=32,
        num_buckets=1,
    ),
    optimizer=OptimizerConfig(
        schedule="linear",
        learning_rate=5e-5,
        warmup_steps=100,
        beta2=0.999,
        epsilon=1e-6,
        clip_norm=1.0,
        weight_decay=0.01,
    ),
    train=TrainConfig(steps=2000, label_smoothing=0.0),
)
