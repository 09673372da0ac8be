"""Answers to prompts: a language model goes on training, with the loss on the answers only.

python train.py --config configs/gpt_answers.py --workdir runs/answers --train.init-from runs/gpt2 \
    --data.train train.tsv --data.validation dev.tsv
echo "my prompt" | transformer generate --checkpoint runs/answers --temperature 0

The files have lines of: prompt TAB answer. The model and its tokenizer are those of
--train.init-from: an imported one (transformer import) or one trained here.
"""

from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig

config = Config(
    # No settings: the model is that of train.init_from.
    model=ModelConfig(),
    data=DataConfig(
        objective="answers",
        dataset="files",
        train=("train.tsv",),
        max_length=256,
        batch_tokens=2048,
        num_buckets=4,
    ),
    optimizer=OptimizerConfig(
        schedule="linear",
        learning_rate=5e-5,
        warmup_steps=100,
        beta2=0.999,
        epsilon=1e-8,
        clip_norm=1.0,
        weight_decay=0.01,
    ),
    train=TrainConfig(
        init_from="runs/gpt2", steps=1000, label_smoothing=0.0, eval_every=200, save_every=200
    ),
)
