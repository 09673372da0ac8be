"""Fine-tuning as BERT's on sentences and pairs (Devlin et al. 2019, sections 4.1 and A.3).

python train.py --config configs/bert_classify.py --workdir runs/sst2 --train.init-from runs/minilm\
    --data.dataset glue:sst2 --data.train train.tsv --data.validation dev.tsv

The published recipe: batches of 32, 3 epochs, Adam with decay 0.01 (not of biases and norms), a
learning rate that rises for a tenth of the steps and then falls to 0, dropout of the model that
training starts from.
"""

from transformer.config import Config, DataConfig, OptimizerConfig, TrainConfig

config = Config(
    data=DataConfig(
        objective="classification",
        train=("train.tsv",),
        columns=("text", "label"),
        max_length=128,
        batch_size=32,
        num_buckets=6,
    ),
    optimizer=OptimizerConfig(
        schedule="linear",
        learning_rate=5e-5,
        warmup_fraction=0.1,
        beta2=0.999,
        epsilon=1e-6,
        clip_norm=1.0,
        weight_decay=0.01,
    ),
    train=TrainConfig(
        epochs=3,
        init_from="runs/bert",
        label_smoothing=0.0,
        eval_every=500,
        save_every=500,
    ),
)
