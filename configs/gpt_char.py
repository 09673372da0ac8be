"""A small character model on one text: the CPU setting of nanoGPT.

python train.py --config configs/gpt_char.py --workdir runs/gpt_char --data.train input.txt

On the small Shakespeare (1.1 million characters) under 2 minutes on two CPU cores; 1.846 nats a
character over the whole validation split, the last tenth. That is with Glorot's initialisation;
drawn from N(0, 0.02) as there (--model.initializer scaled_normal) it is 1.896 to 1.903.

Without --data.train it learns Python's documentation, which is on every machine.
"""

from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig

config = Config(
    model=ModelConfig(
        architecture="decoder",
        num_layers=4,
        model_dim=128,
        ff_dim=512,
        num_heads=4,
        positions="learned",
        max_positions=64,
        activation="gelu",
        norm_placement="pre",
        norm_epsilon=1e-5,
        ff_bias=False,
        embedding_scaling="none",
        initializer="xavier",
        dropout=0.0,
    ),
    data=DataConfig(
        objective="language_model",
        validation_fraction=0.1,
        tokenizer="symbols",
        target_symbols="characters",
        block_length=64,
        batch_tokens=12 * 64,
    ),
    optimizer=OptimizerConfig(
        schedule="cosine",
        learning_rate=1e-3,
        warmup_steps=100,
        final_factor=0.1,
        beta1=0.9,
        beta2=0.99,
        epsilon=1e-8,
        clip_norm=1.0,
        weight_decay=0.1,
    ),
    train=TrainConfig(
        steps=2000, label_smoothing=0.0, log_every=100, eval_every=1000, save_every=1000
    ),
)
