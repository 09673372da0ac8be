"""Answers in texts as BERT's on SQuAD (Devlin et al. 2019, sections 4.2 and 4.3).

The published recipe: Adam with decay 0.01 except on biases and norms, 3 epochs in batches of 32
windows, 5e-5 after a rise over a tenth of the steps. First the model: transformer import --from
FOLDER --workdir runs/bert, of a published one. Then, with the files of SQuAD 1.1:

python train.py --config configs/bert_squad.py --workdir runs/squad \
    --data.train train-v1.1.json --data.validation dev-v1.1.json
transformer evaluate --checkpoint runs/squad --split validation --predictions answers.json
printf 'Who wrote it?\tMary Shelley wrote it.\n' | transformer answer --checkpoint runs/squad

SQuAD 2.0, which has questions without an answer (the best thresholds are found as well):

python train.py --config configs/bert_squad.py --workdir runs/squad2 --train.epochs 2 \
    --data.batch-size 48 --data.train train-v2.0.json --data.validation dev-v2.0.json
transformer evaluate --checkpoint runs/squad2 --split validation --predictions answers.json \
    --null-odds odds.json

Either through TFDS: --data.dataset tfds:squad/v1.1 --data.train (or tfds:squad/v2.0).

A small one, XQuAD's English part (1,190 questions; the last fifth of its texts, with 220 of them,
is held out), from the weights of all-MiniLM-L6-v2 (6 layers, 22.6 million parameters):

python train.py --config configs/bert_squad.py --workdir runs/xquad --train.epochs 6 \
    --data.train xquad.en.json --data.validation-fraction 0.2 --data.batch-size 16 \
    --optimizer.learning-rate 2e-4 --model.attention-dropout 0 --train.eval-every 128

Exact match 34.1 % and F1 49.7 % after 6 epochs (23.2 % and 39.8 % after 2, 33.2 % and 47.4 % after
4). The validation loss rises meanwhile: the best checkpoint is that of the best F1. An epoch takes
5 minutes of one CPU core.
"""

from transformer.config import Config, DataConfig, OptimizerConfig, TrainConfig

config = Config(
    data=DataConfig(
        objective="spans",
        train=("train-v1.1.json",),
        max_length=384,
        stride=128,
        question_length=64,
        batch_size=32,
        num_buckets=4,
    ),
    optimizer=OptimizerConfig(
        schedule="linear",
        learning_rate=5e-5,
        warmup_fraction=0.1,
        beta2=0.999,
        epsilon=1e-6,
        clip_norm=1.0,
        weight_decay=0.01,
        decay_embeddings=True,
    ),
    train=TrainConfig(
        epochs=3,
        init_from="runs/bert",
        label_smoothing=0.0,
        best_by="score",
        eval_every=2000,
        save_every=1000,
    ),
)
