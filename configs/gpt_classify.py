"""Fine-tuning as GPT-1's: a language model becomes a classifier (Radford et al. 2018, section 3).

Sentiment of sentences (SST-2; its TSV files have a header, then: sentence TAB label). First a
language model, from plain text, here also the training sentences:

python train.py --config configs/gpt_pretrain.py --workdir runs/lm --data.train a.txt b.txt
python train.py --config configs/gpt_classify.py --workdir runs/sst2 --train.init-from runs/lm \
    --data.train train.tsv.gz --data.validation dev.tsv
transformer evaluate --checkpoint runs/sst2 --split validation

Without --train.init-from the model starts from random parameters. Measured with 1,000 steps (two
thirds of an epoch): 78.4 % of the 872 development sentences right after a pre-training of 600 steps
(1.2 million tokens), 79.5 % without one; always the same answer has 50.9 %. One standard error is
1.4 %: so short a pre-training is worth nothing here. For CoLA:
--data.columns - label - text --data.no-header
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
        objective="classification",
        dataset="files",
        train=("train.tsv.gz",),
        columns=("text", "label"),
        header=True,
        tokenizer="sentencepiece",
        vocab_size=4000,
        normalization="nfkc_cf",
        max_length=64,
        batch_tokens=1024,
        num_buckets=4,
    ),
    optimizer=OptimizerConfig(
        schedule="linear",
        learning_rate=5e-4,
        warmup_steps=100,
        beta2=0.999,
        epsilon=1e-8,
        clip_norm=1.0,
        weight_decay=0.01,
    ),
    train=TrainConfig(
        steps=2400, lm_weight=0.5, label_smoothing=0.0, eval_every=400, save_every=400
    ),
)
