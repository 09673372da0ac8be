"""A small language model to fine-tune: what configs/gpt_classify.py starts from.

python train.py --config configs/gpt_pretrain.py --workdir runs/lm --data.train a.txt b.txt

Every line is a document. 1,313,536 parameters.
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
        activation="gelu_tanh",
        norm_placement="pre",
        norm_epsilon=1e-5,
        attention_bias=True,
        embedding_scaling="none",
        initializer="scaled_normal",
        dropout=0.1,
    ),
    data=DataConfig(
        objective="language_model",
        documents="line",
        validation_fraction=0.02,
        tokenizer="sentencepiece",
        vocab_size=4000,
        normalization="nfkc_cf",
        block_length=64,
        batch_tokens=2048,
    ),
    optimizer=OptimizerConfig(
        schedule="cosine",
        learning_rate=2e-3,
        warmup_steps=100,
        beta2=0.99,
        epsilon=1e-8,
        clip_norm=1.0,
        weight_decay=0.1,
    ),
    train=TrainConfig(steps=1200, label_smoothing=0.0, eval_every=600, save_every=300),
)
